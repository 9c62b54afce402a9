// Failures and deaths, stopping one replica or all.
#include <algorithm>
#include <cassert>
#include <csignal>
#include <utility>

#include "deploy/launcher/command_name.h"
#include "deploy/launcher/planner.h"

namespace deploy {
namespace {

using enum ReplicaState;

/// "10 min", "30 s"
std::string in_minutes(Duration time) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time).count();
    return seconds >= 60 && seconds % 60 == 0 ? std::to_string(seconds / 60) + " min"
                                              : std::to_string(seconds) + " s";
}

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
    state += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

}  // namespace

void Planner::transition(Replica& replica, ReplicaState to) {
    const ReplicaState from = replica.state;
    assert(is_allowed(from, to) && "a transition that the table of states does not have");
    if (is_loading(from)) {
        const auto phase = static_cast<std::size_t>(from) - static_cast<std::size_t>(kLoading);
        replica.phase_times[phase] = std::chrono::duration_cast<Duration>(now_ - replica.since);
    }
    replica.state = to;
    replica.since = now_;
    if (!has_process(to)) {
        replica.pid = 0;
        replica.running = replica.waiting = 0;
        replica.done = replica.total = 0;
    }
    act(Announce{.replica = replica.index, .from = from, .to = to});
}

/// Ends a replica that must not live on. The router hears of it now, the process is reaped later.
void Planner::condemn(Replica& replica, Failure failure) {
    assert(has_process(replica.state) && "only a process can be condemned");
    if (replica.state == kStopping || replica.state == kUnkillable) return;
    warn(title_of(replica) + ": " + failure.what + " (" + failure.why + "); it is killed");
    replica.condemned = std::move(failure);
    transition(replica, kStopping);
    replica.kill_at = now_;
    act(SignalReplica{.replica = replica.index, .signal = SIGKILL});
}

void Planner::spawn_failed(Replica& replica, const Failure& failure) {
    assert(replica.state == kWaitLock && "a spawn follows WAIT_LOCK");
    if (is_permanent(failure.kind)) {
        quarantine(replica, failure);
    } else {
        back_off(replica, failure);
    }
    release_lock(replica);
}

void Planner::died(Replica& replica, const ExitEvidence& evidence) {
    assert(has_process(replica.state) && "a replica without a process died");
    const bool is_wanted_death = replica.state == kStopping || replica.state == kUnkillable;
    if (is_stopping() || (is_wanted_death && !replica.condemned.has_value())) {
        if (!is_wanted_death) transition(replica, kStopping);
        transition(replica, kAbsent);
        release_lock(replica);
        if (!is_stopping() && replica.goal == Goal::kRestart) {
            ++replica.restarts;
            want_start(replica);
        }
        return;
    }
    // Our own reason wins over its words, its words over its exit code.
    const Failure failure = replica.condemned.has_value()    ? *replica.condemned
                            : replica.last_words.has_value() ? *replica.last_words
                                                             : classify(evidence);
    replica.condemned.reset();
    if (replica.goal == Goal::kHold) {  // it was drained and died on the way: it stays away
        replica.last_failure = failure;
        if (!is_wanted_death) transition(replica, kStopping);
        transition(replica, kAbsent);
        release_lock(replica);
        return;
    }
    fail(replica, failure, true);
    release_lock(replica);
}

void Planner::fail(Replica& replica, const Failure& failure, bool is_death) {
    warn(title_of(replica) + " failed while " + std::string(name_of(replica.state)) + ": " +
         failure.what + (failure.why.empty() ? "" : " (" + failure.why + ")"));
    const bool was_stable =
        replica.ready_at.has_value() && now_ - *replica.ready_at >= fleet_.limits.ready_resets;
    if (was_stable) {
        replica.deaths.clear();
        replica.backoff_step = 0;
    }
    if (is_death) replica.deaths.push_back(now_);
    while (!replica.deaths.empty() && now_ - replica.deaths.front() > fleet_.limits.crash_window) {
        replica.deaths.pop_front();
    }
    const bool is_loop = static_cast<int>(replica.deaths.size()) >= fleet_.limits.crash_limit;
    if (is_permanent(failure.kind)) {
        quarantine(replica, failure);
    } else if (is_loop) {
        Failure loop = failure;
        loop.what = std::to_string(replica.deaths.size()) + " failures within " +
                    in_minutes(fleet_.limits.crash_window) + " and never READY for " +
                    in_minutes(fleet_.limits.ready_resets) + " between, the last: " + failure.what;
        quarantine(replica, loop);
    } else {
        back_off(replica, failure);
    }
}

void Planner::back_off(Replica& replica, const Failure& failure) {
    replica.last_failure = failure;
    const Duration delay = backoff_delay(replica.backoff_step++);
    replica.retry_at = now_ + delay;
    ++replica.restarts;
    transition(replica, kBackoff);
}

void Planner::quarantine(Replica& replica, const Failure& failure) {
    replica.last_failure = failure;
    transition(replica, kQuarantined);
    const bool is_hopeless =
        !fleet_.was_ready && std::ranges::all_of(fleet_.replicas, [](const Replica& other) {
            return other.state == kQuarantined ||
                   (other.state == kAbsent && other.goal == Goal::kHold);
        });
    // Where nothing is left to serve, the launcher ends: then there is nothing to retry.
    warn(title_of(replica) + " is QUARANTINED: " + failure.what +
         (is_hopeless
              ? ""
              : "; after a cure: " + command_name() + " retry " + std::to_string(replica.index)));
    if (is_hopeless) end_fleet(*fleet_.replicas.front().last_failure);
}

/// 1, 2, 4 ... 60 s, +-20 %, so that two replicas do not come back in step.
Duration Planner::backoff_delay(int step) {
    const FleetLimits& limits = fleet_.limits;
    const auto first = static_cast<double>(limits.backoff_first.count());
    const auto most = static_cast<double>(limits.backoff_max.count());
    const double plain = std::min(most, first * static_cast<double>(1ULL << std::min(step, 20)));
    const double unit = static_cast<double>(next_random(fleet_.random) >> 11) * 0x1.0p-53;
    return Duration{static_cast<Duration::rep>(plain * (0.8 + 0.4 * unit))};
}

/// TERM now, KILL after term_to_kill.
void Planner::stop_replica(Replica& replica) {
    assert(has_process(replica.state) && "nothing to stop");
    if (replica.state == kStopping || replica.state == kUnkillable) return;
    transition(replica, kStopping);
    replica.term_at = now_;
    act(SignalReplica{.replica = replica.index, .signal = SIGTERM});
}

void Planner::check_stopping(Replica& replica) {
    if (replica.state == kStopping) {
        if (!replica.kill_at.has_value()) {
            if (now_ - replica.term_at < fleet_.limits.term_to_kill) return;
            warn(title_of(replica) + " did not end after TERM; it is killed");
            replica.kill_at = now_;
            act(SignalReplica{.replica = replica.index, .signal = SIGKILL});
        } else if (now_ - *replica.kill_at >= fleet_.limits.unkillable) {
            transition(replica, kUnkillable);
            warn(title_of(replica) + " (pid " + std::to_string(replica.pid) +
                 ") survives KILL: its device stays out until a reboot; the others serve");
            release_lock(replica);
        }
    } else if (replica.state == kBackoff && now_ >= replica.retry_at) {
        want_start(replica);
    }
}

void Planner::work_reported(Replica& replica, const WorkReported& event) {
    replica.answered_at = now_;
    if (event.step != replica.step || event.running == 0) replica.step_changed_at = now_;
    replica.step = event.step;
    replica.running = event.running;
    replica.waiting = event.waiting;
    check_work(replica);  // now, not at the next tick: reports may come faster than ticks are due
}

/// Busy is not dead: a long prefill makes steps. Work without a step, or silence, is.
void Planner::check_work(Replica& replica) {
    if (replica.state != kReady && replica.state != kDraining) return;
    if (replica.running > 0 && now_ - replica.step_changed_at >= fleet_.limits.step_stall) {
        condemn(replica, {.kind = FailureClass::kWedged,
                          .what = "wedged: it has work but makes no step",
                          .why = "step " + std::to_string(replica.step) + " does not move",
                          .fix = "it is loaded again by itself; if this comes back, its last lines "
                                 "tell where it hangs, and step_stall_s sets how long a step may "
                                 "take"});
    } else if (now_ - replica.answered_at >= fleet_.limits.silence) {
        condemn(replica, {.kind = FailureClass::kWedged,
                          .what = "wedged: its status page does not answer",
                          .why = "no answer for too long",
                          .fix = "it is loaded again by itself; silence_s sets how long it may be "
                                 "silent"});
    } else if (replica.state == kDraining && replica.goal != Goal::kServe) {
        const bool is_idle = replica.running == 0 && replica.waiting == 0 &&
                             replica.answered_at > replica.since;  // an answer from after the order
        if (is_idle || now_ >= replica.drain_until) stop_replica(replica);
    }
}

void Planner::order(const ReplicaOrder& order) {
    assert(refusal_of(fleet_, order).empty() && "refusals are the caller's business");
    Replica& replica = fleet_.replicas.at(static_cast<std::size_t>(order.replica));
    switch (order.order) {
        case Order::kRetry:
            replica.deaths.clear();
            replica.backoff_step = 0;
            ++replica.restarts;
            want_start(replica);
            break;
        case Order::kRestart:
            drain(replica, Goal::kRestart);
            if (replica.state == kAbsent) want_start(replica);
            break;
        case Order::kDrain:
            drain(replica, Goal::kHold);
            break;
        case Order::kSetAside:
            replica.is_set_aside = true;
            if (replica.state == kReady) transition(replica, kDraining);
            break;
        case Order::kUndrain:
            undrain(replica);
            break;
    }
}

void Planner::drain(Replica& replica, Goal goal) {
    const bool is_idling = replica.state == kDraining && replica.goal == Goal::kServe;
    replica.goal = goal;
    if (replica.state == kReady || is_idling) {
        replica.drain_until = now_ + fleet_.limits.drain_deadline;
        if (!is_idling) transition(replica, kDraining);
    } else if (is_loading(replica.state)) {
        stop_replica(replica);
    } else if (!has_process(replica.state)) {
        leave(replica);
    }
}

/// Whatever drain it was. One that is stopping already comes back when it has ended.
void Planner::undrain(Replica& replica) {
    replica.is_set_aside = false;
    if (replica.goal == Goal::kRestart) return;  // that goes on
    const bool was_held = std::exchange(replica.goal, Goal::kServe) == Goal::kHold;
    if (replica.state == kDraining) {
        transition(replica, kReady);
    } else if (was_held && replica.state == kAbsent) {
        want_start(replica);
    } else if (was_held) {
        replica.goal = Goal::kRestart;
    }
}

/// To ABSENT from a state without a process.
void Planner::leave(Replica& replica) {
    assert(!has_process(replica.state) && "a process must be reaped first");
    if (replica.state != kAbsent) transition(replica, kAbsent);
    release_lock(replica);
}

/// First: the router drains, what is not serving stops at once. Second: the router hurries, or,
/// when the replicas are already stopping, they are killed. Third: everything is killed.
void Planner::stop_asked(const StopAsked& event) {
    ++fleet_.stop_requests;
    if (fleet_.stop_requests >= 3 ||
        (fleet_.stop_requests == 2 && fleet_.phase == FleetPhase::kStopping)) {
        kill_everything();
        return;
    }
    Router& router = fleet_.router;
    if (fleet_.stop_requests == 2) {
        router.deadline = std::min(router.deadline, now_ + kRouterHurry);
        act(SignalRouter{SIGTERM});
        signal_retired_routers(SIGTERM, now_ + kRouterHurry);
        return;
    }
    if (fleet_.phase == FleetPhase::kStopping) return;  // ending already
    fleet_.phase = FleetPhase::kDraining;
    for (Replica& replica : fleet_.replicas) {
        if (is_loading(replica.state)) {
            stop_replica(replica);
        } else if (!has_process(replica.state)) {
            leave(replica);
        }
    }
    const TimePoint deadline =
        now_ + fleet_.limits.drain_grace + fleet_.limits.drain_deadline + kRouterMargin;
    const int signal = event.has_grace ? SIGTERM : SIGQUIT;
    retire_successor(deadline);
    signal_retired_routers(signal, deadline);
    if (router.state == RouterState::kBackoff) router.state = RouterState::kAbsent;
    if (!is_router_left()) {
        stop_all_replicas();
        return;
    }
    say("stopping: the router drains");
    act(ShowStop{});
    if (router.state == RouterState::kAbsent) return;  // only retired ones
    router.state = RouterState::kDraining;
    router.since = now_;
    router.deadline = deadline;
    act(SignalRouter{signal});
}

void Planner::stop_all_replicas() {
    fleet_.phase = FleetPhase::kStopping;
    for (Replica& replica : fleet_.replicas) {
        if (has_process(replica.state)) {
            stop_replica(replica);
        } else {
            leave(replica);
        }
    }
}

/// The launcher ends because nothing can run. Nobody is being served, so nothing drains.
void Planner::end_fleet(const Failure& failure) {
    if (is_stopping()) return;
    fleet_.ending = failure;
    Router& router = fleet_.router;
    retire_successor(now_ + kRouterHurry);
    for (int i = 0; i < 2; ++i)  // the second one skips the wait for what runs
        signal_retired_routers(SIGTERM, now_ + kRouterHurry);
    if (router.state == RouterState::kRunning) {
        router.state = RouterState::kDraining;
        router.since = now_;
        router.deadline = now_ + kRouterHurry;
        act(SignalRouter{SIGTERM});
        act(SignalRouter{SIGTERM});  // the second one skips its grace period
    } else {
        router.state = RouterState::kAbsent;
    }
    stop_all_replicas();
}

void Planner::kill_everything() {
    fleet_.phase = FleetPhase::kStopping;
    signal_retired_routers(SIGKILL, now_ + kRouterHurry);
    if (fleet_.router.pid != 0) {
        fleet_.router.state = RouterState::kDraining;
        fleet_.router.deadline = now_ + kRouterHurry;
        act(SignalRouter{SIGKILL});
    }
    for (Replica& replica : fleet_.replicas) {
        if (!has_process(replica.state)) {
            leave(replica);
        } else if (replica.state != kUnkillable) {
            if (replica.state != kStopping) transition(replica, kStopping);
            if (!replica.kill_at.has_value()) replica.kill_at = now_;
            act(SignalReplica{.replica = replica.index, .signal = SIGKILL});
        }
    }
}

void Planner::finish_if_done() {
    if (fleet_.phase != FleetPhase::kStopping || is_router_left()) return;
    bool is_survivor = false;
    for (const Replica& replica : fleet_.replicas) {
        if (replica.state == kUnkillable) {
            is_survivor = true;
        } else if (replica.state != kAbsent) {
            return;
        }
    }
    fleet_.phase = FleetPhase::kDone;
    const int code = fleet_.ending.has_value() ? exit_code_of(fleet_.ending->kind)
                     : is_survivor             ? exit_code_of(FailureClass::kUnkillable)
                                               : 0;
    act(Exit{code});
}

}  // namespace deploy

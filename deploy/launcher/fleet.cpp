#include "deploy/launcher/fleet.h"

#include <algorithm>
#include <cassert>

#include "deploy/launcher/command_name.h"
#include "deploy/launcher/planner.h"

namespace deploy {
namespace {

using enum ReplicaState;

/// A gap between events longer than this means that the process was suspended (next_tick asks for
/// one event a second): all clocks are set back by the gap, so nothing fires without a new look.
constexpr Duration kSuspended{5'000};
constexpr Duration kTickMax{1'000};
/// Guess for a load nobody has seen yet.
constexpr double kLoadGuess_s = 30.0;

/// Moves every point in time of the fleet forward by `gap`.
void forgive(Fleet& fleet, Clock::duration gap) {
    const auto move = [gap](TimePoint& time) { time += gap; };
    for (Replica& replica : fleet.replicas) {
        for (TimePoint* time : {&replica.progress_at, &replica.settle_until, &replica.term_at,
                                &replica.step_changed_at, &replica.answered_at,
                                &replica.drain_until, &replica.sample_at, &replica.retry_at}) {
            move(*time);
        }
        if (replica.kill_at.has_value()) move(*replica.kill_at);
        if (replica.state == kWaitVram) move(replica.since);
    }
    move(fleet.router.deadline);
    if (fleet.successor.has_value()) move(fleet.successor->deadline);
    for (RetiredRouter& router : fleet.retired_routers)
        move(router.deadline);
    move(fleet.lock.retry_at);
}

void tick(Fleet& fleet, Planner& planner) {
    for (Replica& replica : fleet.replicas) {
        planner.check_loading(replica);
        planner.check_work(replica);
        planner.check_stopping(replica);
    }
    planner.check_lock();
    planner.check_router();
}

Replica& at(Fleet& fleet, int index) {
    return fleet.replicas.at(static_cast<std::size_t>(index));
}

template <class... Ts>
struct Overloaded : Ts... {
    using Ts::operator()...;
};

}  // namespace

Fleet make_fleet(int replica_count, const FleetLimits& limits, std::uint64_t seed) {
    assert(replica_count > 0 && "a fleet has a replica");
    Fleet fleet;
    fleet.limits = limits;
    fleet.random = seed;
    fleet.replicas.resize(static_cast<std::size_t>(replica_count));
    for (int i = 0; i < replica_count; ++i) {
        Replica& replica = fleet.replicas[static_cast<std::size_t>(i)];
        replica.index = i;
        replica.device = "CPU-" + std::to_string(i);
    }
    return fleet;
}

std::vector<Action> plan(Fleet& fleet, const Event& event, TimePoint now) {
    if (fleet.phase == FleetPhase::kDone) return {};
    if (fleet.seen_at != TimePoint{} && now - fleet.seen_at > kSuspended) {
        forgive(fleet, now - fleet.seen_at);
    }
    fleet.seen_at = now;
    Planner planner(fleet, now);
    std::visit(
        Overloaded{
            [&](const Begin&) { planner.begin(); },
            [&](const MemoryMeasured& e) { planner.memory_measured(at(fleet, e.replica), e); },
            [&](const FileLockTaken&) { planner.file_lock_taken(); },
            [&](const FileLockBusy& e) { planner.file_lock_busy(e); },
            [&](const ReplicaSpawned& e) { planner.spawned(at(fleet, e.replica), e); },
            [&](const SpawnFailed& e) { planner.spawn_failed(at(fleet, e.replica), e.failure); },
            [&](const ReplicaSaid& e) { planner.said(at(fleet, e.replica), e.line); },
            [&](const ReplicaGarbled& e) { planner.garbled(at(fleet, e.replica), e.why); },
            [&](const ReplicaDied& e) { planner.died(at(fleet, e.replica), e.evidence); },
            [&](const WorkReported& e) { planner.work_reported(at(fleet, e.replica), e); },
            [&](const PowerSettled& e) { planner.power_settled(at(fleet, e.replica)); },
            [&](const RouterSpawned& e) { planner.router_spawned(e); },
            [&](const RouterDied& e) { planner.router_died(e.evidence); },
            [&](const RouterSaid& e) { planner.router_said(e); },
            [&](const SuccessorSpawned& e) { planner.successor_spawned(e); },
            [&](const OtherRouterDied& e) { planner.other_router_died(e); },
            [&](const RestartRouter&) { planner.restart_router(); },
            [&](const StopAsked& e) { planner.stop_asked(e); },
            [&](const ReplicaOrder& e) { planner.order(e); },
            [&](const Tick&) { tick(fleet, planner); },
        },
        event);
    planner.finish_if_done();
    return planner.take_actions();
}

TimePoint next_tick(const Fleet& fleet, TimePoint now) {
    const FleetLimits& limits = fleet.limits;
    TimePoint next = now + kTickMax;
    const auto consider = [&](TimePoint time) { next = std::min(next, time); };
    for (const Replica& replica : fleet.replicas) {
        switch (replica.state) {
            case kWaitVram:
                consider(replica.sample_at);
                consider(replica.since + limits.memory_wait);
                break;
            case kLoading:
            case kWarming:
            case kSelftest:
                if (replica.is_ready_reported) {
                    consider(replica.settle_until);
                } else {
                    consider(replica.progress_at + (!replica.is_hello_seen ? limits.hello
                                                    : replica.state == kSelftest
                                                        ? limits.selftest_stall
                                                        : limits.load_stall));
                }
                break;
            case kReady:
            case kDraining:
                consider(replica.answered_at + limits.silence);
                if (replica.running > 0) consider(replica.step_changed_at + limits.step_stall);
                if (replica.state == kDraining && replica.goal != Goal::kServe) {
                    consider(replica.drain_until);
                }
                break;
            case kStopping:
                consider(replica.kill_at.has_value() ? *replica.kill_at + limits.unkillable
                                                     : replica.term_at + limits.term_to_kill);
                break;
            case kBackoff:
                consider(replica.retry_at);
                break;
            default:
                break;
        }
    }
    if (!fleet.lock.waits_for.empty()) consider(fleet.lock.retry_at);
    if (fleet.router.state != RouterState::kAbsent && fleet.router.state != RouterState::kRunning) {
        consider(fleet.router.deadline);
    }
    if (fleet.successor.has_value()) consider(fleet.successor->deadline);
    for (const RetiredRouter& router : fleet.retired_routers)
        consider(router.deadline);
    return std::max(next, now);
}

bool is_drained(const Replica& replica) {
    return replica.is_set_aside || replica.goal == Goal::kHold;
}

std::string refusal_of(const Fleet& fleet, const ReplicaOrder& order) {
    if (order.replica < 0 || order.replica >= static_cast<int>(fleet.replicas.size())) {
        return "there is no replica " + std::to_string(order.replica) +
               "; they are numbered 0 to " + std::to_string(fleet.replicas.size() - 1);
    }
    if (fleet.phase != FleetPhase::kRunning) return "the fleet is stopping";
    const Replica& replica = fleet.replicas[static_cast<std::size_t>(order.replica)];
    const std::string is = title_of(replica) + " is " + std::string(name_of(replica.state));
    switch (order.order) {
        case Order::kRetry:
            if (replica.state == kQuarantined || replica.state == kBackoff) return "";
            return is + "; retry is for QUARANTINED and BACKOFF";
        case Order::kRestart:
            if (replica.state == kStopping || replica.state == kUnkillable) return is;
            return "";
        case Order::kDrain:
            if (replica.state == kStopping || replica.state == kUnkillable) return is;
            return "";
        case Order::kSetAside:
            return "";
        case Order::kUndrain:
            return is_drained(replica) ? "" : title_of(replica) + " is not drained";
    }
    return "unknown order";
}

std::string router_restart_refusal(const Fleet& fleet) {
    if (fleet.phase != FleetPhase::kRunning) return "the fleet is stopping";
    if (fleet.successor.has_value()) return "the router is being restarted already";
    if (fleet.retired_routers.size() >= kRetiredRoutersMax) {
        return std::to_string(fleet.retired_routers.size()) +
               " earlier routers still finish their requests; wait until one has ended, see "
               "'" +
               command_name() + " status'";
    }
    return "";
}

double eta_s(const Fleet& fleet, int index, TimePoint now) {
    const Replica& replica = fleet.replicas.at(static_cast<std::size_t>(index));
    double load_s = 0;
    for (const Replica& other : fleet.replicas) {
        load_s = std::max(load_s, std::chrono::duration<double>(other.load_time).count());
    }
    if (load_s == 0) load_s = kLoadGuess_s;
    const auto rest = [&](const Replica& loading) {
        const double spent = std::chrono::duration<double>(now - loading.spawned_at).count();
        return std::max(0.0, load_s - spent);
    };
    if (replica.state == kReady) return 0;
    if (is_loading(replica.state)) return rest(replica);
    double wait_s = 0;
    if (replica.state == kBackoff) {
        wait_s = std::max(0.0, std::chrono::duration<double>(replica.retry_at - now).count());
    } else if (replica.state != kWaitVram && replica.state != kWaitLock) {
        return -1;
    }
    // Those before it in the line: the one that loads now, and lower numbers that also wait.
    for (const Replica& other : fleet.replicas) {
        if (is_loading(other.state)) {
            wait_s += rest(other);
        } else if (other.index < index && (other.state == kWaitVram || other.state == kWaitLock)) {
            wait_s += load_s;
        }
    }
    return wait_s + load_s;
}

}  // namespace deploy

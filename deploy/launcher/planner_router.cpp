// The router's life: deaths, restarts with new settings beside the one that serves, and the retired
// ones that still finish what they have accepted.
//
//   present ─ restart ─▶ present + successor on trial ─ it serves ─▶ it is the present one;
//      ▲                           │                                  the other retires
//      └────── dies, or too late ──┘  nothing has changed
#include <algorithm>
#include <cassert>
#include <csignal>
#include <utility>

#include "deploy/launcher/planner.h"

namespace deploy {
namespace {

/// From the start of a successor to its word that it serves. It takes some 50 ms, and a second more
/// where replicas do not report; a machine that is out of breath gets ten times that.
constexpr Duration kTrial{10'000};

std::string pid_text(int pid) {
    return "(pid " + std::to_string(pid) + ")";
}

std::string text_of(const Failure& failure) {
    return failure.what + (failure.why.empty() ? "" : " (" + failure.why + ")");
}

}  // namespace

void Planner::router_spawned(const RouterSpawned& event) {
    fleet_.router.state = is_stopping() ? RouterState::kDraining : RouterState::kRunning;
    fleet_.router.since = now_;
    fleet_.router.pid = event.pid;
}

void Planner::start_router() {
    fleet_.router.state = RouterState::kAbsent;
    fleet_.router.since = now_;
    act(SpawnRouter{});
}

/// The present one goes on until the other serves, so a bad one costs nobody anything.
void Planner::restart_router() {
    assert(router_restart_refusal(fleet_).empty() && "refusals are the caller's business");
    fleet_.successor = SuccessorRouter{.pid = 0, .deadline = now_ + kTrial};
    fleet_.successor_failure.clear();
    if (fleet_.router.state == RouterState::kBackoff) act(GuardRouterPort{false});
    act(SpawnSuccessor{});
}

void Planner::successor_spawned(const SuccessorSpawned& event) {
    assert(fleet_.successor.has_value() && "it was asked for");
    fleet_.successor->pid = event.pid;
}

void Planner::router_said(const RouterSaid& event) {
    if (event.word == proto::RouterNews::kServing) {
        if (fleet_.successor.has_value() && fleet_.successor->pid == event.pid) promote_successor();
        return;
    }
    const auto found = std::ranges::find(fleet_.retired_routers, event.pid, &RetiredRouter::pid);
    if (found != fleet_.retired_routers.end()) {
        found->has_let_go = true;
    } else if (event.pid == fleet_.router.pid && fleet_.router.state == RouterState::kRunning) {
        router_let_go();
    }
}

void Planner::retire_router(bool has_let_go) {
    fleet_.retired_routers.push_back(
        {.pid = std::exchange(fleet_.router.pid, 0),
         .since = now_,
         .deadline = now_ + fleet_.limits.drain_deadline + kRouterMargin,
         .has_let_go = has_let_go});
    act(RetireRouter{});
}

/// Somebody else has asked it to: clients wait for one that accepts.
void Planner::router_let_go() {
    warn("the router " + pid_text(fleet_.router.pid) +
         " has let go of its sockets unasked; another one is started");
    ++fleet_.router.restarts;
    retire_router(true);
    if (fleet_.successor.has_value()) {
        fleet_.router.state = RouterState::kBackoff;
        fleet_.router.deadline = now_;
    } else {
        start_router();
    }
}

void Planner::promote_successor() {
    Router& router = fleet_.router;
    const int earlier = router.pid;
    say("the router with new settings " + pid_text(fleet_.successor->pid) + " serves" +
        (earlier == 0
             ? ""
             : "; the one before it " + pid_text(earlier) + " finishes what it has accepted"));
    if (earlier != 0) retire_router(false);
    router = Router{.state = RouterState::kRunning,
                    .since = now_,
                    .pid = fleet_.successor->pid,
                    .restarts = router.restarts + 1};
    fleet_.successor.reset();
    act(PromoteSuccessor{});
    if (earlier != 0) act(SignalOtherRouter{earlier, SIGUSR1});
}

void Planner::successor_failed(const Failure& failure) {
    warn("the router cannot run with its new settings, the old ones stay in use: " +
         text_of(failure));
    fleet_.successor.reset();
    fleet_.successor_failure = text_of(failure);
    Router& router = fleet_.router;
    if (router.state != RouterState::kBackoff) return;
    if (now_ >= router.deadline) {
        start_router();
    } else {
        act(GuardRouterPort{true});
    }
}

/// A successor, or one that has retired.
void Planner::other_router_died(const OtherRouterDied& event) {
    if (fleet_.successor.has_value() && fleet_.successor->pid == event.pid) {
        successor_failed(fleet_.successor->is_overdue
                             ? Failure{.kind = FailureClass::kStalled,
                                       .what = "it did not serve within " +
                                               std::to_string(kTrial.count() / 1000) + " s",
                                       .why = event.evidence.last_line,
                                       .fix = ""}
                             : classify(event.evidence));
        return;
    }
    const auto found = std::ranges::find(fleet_.retired_routers, event.pid, &RetiredRouter::pid);
    assert(found != fleet_.retired_routers.end() && "only these are left");
    const std::string title = "the earlier router " + pid_text(event.pid);
    if (event.evidence.wait_status == 0) {
        say(title + " has finished its requests and ended");
    } else {
        warn(title + " ended: " + text_of(classify(event.evidence)));
    }
    fleet_.retired_routers.erase(found);
    if (fleet_.phase == FleetPhase::kDraining && !is_router_left()) stop_all_replicas();
}

/// The first restart is immediate, with the same listening socket; then BACKOFF, but no load lock.
void Planner::router_died(const ExitEvidence& evidence) {
    Router& router = fleet_.router;
    const bool was_stable =
        router.state == RouterState::kRunning && now_ - router.since >= fleet_.limits.ready_resets;
    router.pid = 0;
    if (is_stopping()) {
        router.state = RouterState::kAbsent;
        if (fleet_.phase == FleetPhase::kDraining && !is_router_left()) stop_all_replicas();
        return;
    }
    const Failure failure = classify(evidence);
    // What its options name has gone bad while it served: that can be mended, and the replicas are
    // loaded. Until then its port is closed at once.
    if (is_permanent(failure.kind) && !fleet_.was_ready && !fleet_.successor.has_value()) {
        router.state = RouterState::kAbsent;
        Failure ending = failure;
        ending.what = "the router cannot run: " + failure.what;
        end_fleet(ending);
        return;
    }
    if (was_stable) router.backoff_step = 0;
    ++router.restarts;
    warn("the router ended: " + text_of(failure));
    router.since = now_;
    if (fleet_.successor.has_value()) {  // it takes the place, or makes it free at its end
        router.state = RouterState::kBackoff;
        router.deadline = now_;
    } else if (router.backoff_step++ == 0 && !is_permanent(failure.kind)) {
        start_router();
    } else {
        router.state = RouterState::kBackoff;
        router.deadline = now_ + backoff_delay(std::max(0, router.backoff_step - 2));
        act(GuardRouterPort{true});
    }
}

void Planner::check_router() {
    Router& router = fleet_.router;
    const bool is_on_trial = fleet_.successor.has_value();
    if (router.state == RouterState::kBackoff && !is_on_trial && now_ >= router.deadline) {
        act(GuardRouterPort{false});
        start_router();
    } else if (router.state == RouterState::kDraining && now_ >= router.deadline) {
        router.deadline = now_ + kRouterHurry;
        act(SignalRouter{SIGKILL});
    }
    if (is_on_trial && now_ >= fleet_.successor->deadline) {
        fleet_.successor->is_overdue = true;
        fleet_.successor->deadline = now_ + kRouterHurry;
        act(SignalOtherRouter{fleet_.successor->pid, SIGKILL});
    }
    for (RetiredRouter& retired : fleet_.retired_routers) {
        if (now_ >= retired.deadline) {
            warn("the earlier router " + pid_text(retired.pid) +
                 " has not ended in time; it is killed");
            retired.deadline = now_ + kRouterHurry;
            act(SignalOtherRouter{retired.pid, SIGKILL});
        } else if (!retired.has_let_go && !is_stopping()) {
            // The first came too early if it had only just been started.
            act(SignalOtherRouter{retired.pid, SIGUSR1});
        }
    }
}

/// A stop: the successor may have accepted something, so it ends as those do that have retired.
void Planner::retire_successor(TimePoint deadline) {
    if (!fleet_.successor.has_value()) return;
    fleet_.retired_routers.push_back(
        {.pid = fleet_.successor->pid, .since = now_, .deadline = deadline});
    fleet_.successor.reset();
    fleet_.successor_failure = "the fleet is stopping";
}

/// They have until `deadline`, or until their own where that is earlier.
void Planner::signal_retired_routers(int signal, TimePoint deadline) {
    for (RetiredRouter& retired : fleet_.retired_routers) {
        retired.deadline = std::min(retired.deadline, deadline);
        act(SignalOtherRouter{retired.pid, signal});
    }
}

/// Whether a process still serves clients, or is about to.
bool Planner::is_router_left() const {
    return fleet_.router.state != RouterState::kAbsent || !fleet_.retired_routers.empty();
}

}  // namespace deploy

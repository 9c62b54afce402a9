// The inside of plan(): one object per event, which changes the fleet and collects actions.
// planner_load.cpp: from ABSENT to READY, and the load lock. planner_end.cpp: failures, deaths,
// stopping. planner_router.cpp: the router's life. fleet.cpp: which event and which timer calls
// what.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "deploy/launcher/fleet.h"

namespace deploy {

/// After the second request to stop, the router gets this long to end its streams with an error
/// event; the same when the fleet ends because nothing could be started.
constexpr Duration kRouterHurry{2'000};
/// Beyond its own grace and deadline, before the router is killed.
constexpr Duration kRouterMargin{5'000};

class Planner {
public:
    Planner(Fleet& fleet, TimePoint now) : fleet_(fleet), now_(now) {}
    std::vector<Action> take_actions() { return std::move(actions_); }

    // planner_load.cpp
    void begin();
    void want_start(Replica& replica);
    void memory_measured(Replica& replica, const MemoryMeasured& event);
    void file_lock_taken();
    void file_lock_busy(const FileLockBusy& event);
    void spawned(Replica& replica, const ReplicaSpawned& event);
    void said(Replica& replica, const proto::PipeEvent& line);
    void garbled(Replica& replica, const std::string& why);
    void power_settled(Replica& replica);
    void become_ready(Replica& replica);
    void check_loading(Replica& replica);
    void check_lock();

    // planner_end.cpp
    void condemn(Replica& replica, Failure failure);
    void spawn_failed(Replica& replica, const Failure& failure);
    void died(Replica& replica, const ExitEvidence& evidence);
    void stop_replica(Replica& replica);
    void check_stopping(Replica& replica);
    void check_work(Replica& replica);
    void work_reported(Replica& replica, const WorkReported& event);
    void order(const ReplicaOrder& order);
    void stop_asked(const StopAsked& event);
    void finish_if_done();

    // planner_router.cpp
    void router_spawned(const RouterSpawned& event);
    void router_died(const ExitEvidence& evidence);
    void router_said(const RouterSaid& event);
    void successor_spawned(const SuccessorSpawned& event);
    void other_router_died(const OtherRouterDied& event);
    void restart_router();
    void check_router();

    /// Backs off without a process: too little memory, for example. Not counted as a death.
    void back_off(Replica& replica, const Failure& failure);

private:
    void transition(Replica& replica, ReplicaState to);
    void release_lock(const Replica& replica);
    void grant_next();
    void said_phase(Replica& replica, const proto::PhaseEvent& phase);
    void said_selftest(Replica& replica, const proto::SelftestEvent& selftest);
    void said_ready(Replica& replica, const proto::ReadyEvent& ready);
    void fail(Replica& replica, const Failure& failure, bool is_death);
    void quarantine(Replica& replica, const Failure& failure);
    void leave(Replica& replica);
    void drain(Replica& replica, Goal goal);
    void undrain(Replica& replica);
    void end_fleet(const Failure& failure);
    void stop_all_replicas();
    void kill_everything();
    Duration backoff_delay(int step);
    void start_router();
    void retire_router(bool has_let_go);
    void router_let_go();
    void promote_successor();
    void successor_failed(const Failure& failure);
    void retire_successor(TimePoint deadline);
    void signal_retired_routers(int signal, TimePoint deadline);
    bool is_router_left() const;
    bool is_stopping() const { return fleet_.phase >= FleetPhase::kDraining; }

    template <class T>
    void act(T action) {
        actions_.emplace_back(std::move(action));
    }
    void say(std::string text) { act(Say{.text = std::move(text)}); }
    void warn(std::string text) { act(Say{.text = std::move(text), .is_warning = true}); }

    Fleet& fleet_;
    TimePoint now_;
    std::vector<Action> actions_;
};

/// "replica 2"
std::string title_of(const Replica& replica);

}  // namespace deploy

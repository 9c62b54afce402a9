// A world for the pure fleet: simulated time, processes that exist only as pids, and everything the
// fleet asked for, in order. Memory is always enough and the file lock is free, unless told
// otherwise.
#pragma once

#include <algorithm>
#include <csignal>
#include <deque>
#include <string>
#include <vector>

#include "deploy/launcher/fleet.h"

namespace deploy {

class FleetWorld {
public:
    explicit FleetWorld(int replicas, FleetLimits limits = {}) {
        limits.memory_samples_good = 1;
        fleet = make_fleet(replicas, limits, 42);
    }

    void give(Event event) {
        queue_.push_back(std::move(event));
        while (!queue_.empty()) {
            const Event next = queue_.front();
            queue_.pop_front();
            for (const Action& action : plan(fleet, next, now))
                carry_out(action);
        }
    }

    void begin() { give(Begin{}); }

    /// Lets time pass in small steps, with a Tick after each, as the supervisor does.
    void pass(Duration time) {
        const TimePoint end = now + time;
        while (now < end) {
            now = std::min(end, std::max(next_tick(fleet, now), now + Duration{1}));
            give(Tick{});
        }
    }

    Replica& replica(int index) { return fleet.replicas.at(static_cast<std::size_t>(index)); }
    ReplicaState state(int index) { return replica(index).state; }

    void say(int index, decltype(proto::PipeEvent::event) event) {
        give(ReplicaSaid{index, {.instance = replica(index).instance, .event = std::move(event)}});
    }
    void say_phase(int index, ReplicaState phase, std::uint64_t done, std::uint64_t total = 100) {
        say(index, proto::PhaseEvent{.phase = phase, .done = done, .total = total});
    }
    /// Everything between hello and the self-test's result.
    void say_until_selftest(int index) {
        say(index, proto::HelloEvent{.pid = replica(index).pid, .build = "", .config = ""});
        say_phase(index, ReplicaState::kLoading, 100);
        say_phase(index, ReplicaState::kWarming, 1);
        say_phase(index, ReplicaState::kSelftest, 1);
        say(index, proto::KernelsEvent{});
    }
    void say_ready(int index, const std::string& tokens = "same") {
        say_until_selftest(index);
        say(index, proto::SelftestEvent{.passed = true, .tokens_sha256 = tokens});
        say(index, proto::ReadyEvent{.gpu_uuids = {"CPU-" + std::to_string(index)}});
    }
    void all_ready() {
        begin();
        for (int i = 0; i < static_cast<int>(fleet.replicas.size()); ++i)
            say_ready(i);
    }
    void die(int index, int wait_status) { give(ReplicaDied{index, {.wait_status = wait_status}}); }
    void exit(int index, int code) { die(index, code << 8); }

    /// How many of `signal` the replica got.
    int signals(int index, int signal) const {
        return static_cast<int>(std::ranges::count_if(sent, [&](const SignalReplica& one) {
            return one.replica == index && one.signal == signal;
        }));
    }
    int router_signals(int signal) const {
        return static_cast<int>(std::ranges::count(router_sent, signal));
    }
    int other_router_signals(int pid, int signal) const {
        return static_cast<int>(std::ranges::count_if(other_routers_sent, [&](const auto& one) {
            return one.pid == pid && one.signal == signal;
        }));
    }
    std::string log() const {
        std::string text;
        for (const std::string& line : said)
            text += line + "\n";
        return text;
    }

    Fleet fleet;
    TimePoint now = TimePoint{} + std::chrono::hours(1);
    bool is_memory_enough = true;
    bool is_file_lock_free = true;
    std::vector<int> spawned;  // replicas, in the order of their spawns
    int routers_spawned = 0;
    bool is_file_locked = false;
    int file_locks_taken = 0;
    std::vector<SignalReplica> sent;
    std::vector<int> router_sent;
    int successors_spawned = 0;
    int successors_promoted = 0;
    int routers_retired = 0;
    std::vector<SignalOtherRouter> other_routers_sent;
    std::vector<std::pair<int, ReplicaState>> announced;
    std::vector<std::string> said;
    std::optional<int> exit_code;
    bool is_router_guarded = false;

private:
    void carry_out(const Action& action) {
        if (const auto* measure = std::get_if<MeasureMemory>(&action)) {
            queue_.push_back(MemoryMeasured{measure->replica, is_memory_enough, "need 2 have 1"});
        } else if (std::holds_alternative<TakeFileLock>(action)) {
            if (is_file_lock_free) {
                is_file_locked = true;
                ++file_locks_taken;
                queue_.push_back(FileLockTaken{});
            } else {
                queue_.push_back(FileLockBusy{"the launcher with pid 7"});
            }
        } else if (std::holds_alternative<DropFileLock>(action)) {
            is_file_locked = false;
        } else if (const auto* spawn = std::get_if<SpawnReplica>(&action)) {
            spawned.push_back(spawn->replica);
            const std::string digits = std::to_string(next_pid_);
            queue_.push_back(ReplicaSpawned{spawn->replica, next_pid_++,
                                            std::string(16 - digits.size(), 'a') + digits});
        } else if (std::holds_alternative<SpawnRouter>(action)) {
            ++routers_spawned;
            queue_.push_back(RouterSpawned{next_pid_++});
        } else if (const auto* signal = std::get_if<SignalReplica>(&action)) {
            sent.push_back(*signal);
        } else if (const auto* router_signal = std::get_if<SignalRouter>(&action)) {
            router_sent.push_back(router_signal->signal);
        } else if (std::holds_alternative<SpawnSuccessor>(action)) {
            ++successors_spawned;
            queue_.push_back(SuccessorSpawned{next_pid_++});
        } else if (std::holds_alternative<RetireRouter>(action)) {
            ++routers_retired;
        } else if (std::holds_alternative<PromoteSuccessor>(action)) {
            ++successors_promoted;
        } else if (const auto* other = std::get_if<SignalOtherRouter>(&action)) {
            other_routers_sent.push_back(*other);
        } else if (const auto* announce = std::get_if<Announce>(&action)) {
            announced.emplace_back(announce->replica, state(announce->replica));
        } else if (const auto* guard = std::get_if<GuardRouterPort>(&action)) {
            is_router_guarded = guard->is_guarded;
        } else if (const auto* line = std::get_if<Say>(&action)) {
            said.push_back(line->text);
        } else if (std::holds_alternative<ShowStop>(action)) {
            said.emplace_back("what a stop waits for");
        } else {
            exit_code = std::get<Exit>(action).code;
        }
    }

    std::deque<Event> queue_;
    int next_pid_ = 1000;
};

}  // namespace deploy

// From ABSENT to READY: memory, the load lock, the ready pipe's words, progress.
#include <algorithm>
#include <cassert>
#include <cstdio>

#include "deploy/launcher/planner.h"

namespace deploy {
namespace {

using enum ReplicaState;

Failure protocol_failure(std::string why) {
    return {.kind = FailureClass::kProtocol,
            .what = "it broke the protocol of the ready pipe",
            .why = std::move(why),
            .fix = "use the replica program of the same build"};
}

std::string seconds(Duration duration) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
    return text;
}

/// "matmul_mma wrong_arch, attention_decode failed"; empty when every kernel is armed.
std::string missing_of(const proto::KernelsEvent& event) {
    std::string text;
    for (const proto::KernelState& kernel : event.kernels) {
        if (kernel.state == "armed") continue;
        text += (text.empty() ? "" : ", ") + kernel.name + " " + kernel.state;
    }
    return text;
}

Duration elapsed(TimePoint from, TimePoint to) {
    return std::chrono::duration_cast<Duration>(to - from);
}

}  // namespace

std::string title_of(const Replica& replica) {
    return "replica " + std::to_string(replica.index);
}

void Planner::begin() {
    assert(fleet_.phase == FleetPhase::kIdle && "a fleet begins once");
    fleet_.phase = FleetPhase::kRunning;
    for (Replica& replica : fleet_.replicas) {
        want_start(replica);
    }
    // Before any load, since loads wait for an answer first; but the first thing the router hears
    // of a replica is that it will come, not that it is absent.
    act(SpawnRouter{});
}

void Planner::want_start(Replica& replica) {
    replica.goal = Goal::kServe;
    replica.samples_good = 0;
    replica.sample_at = now_ + fleet_.limits.memory_poll;
    transition(replica, kWaitVram);
    act(MeasureMemory{replica.index});
}

void Planner::memory_measured(Replica& replica, const MemoryMeasured& event) {
    replica.memory_note = event.note;
    if (replica.state == kWaitVram) {
        replica.samples_good = event.is_enough ? replica.samples_good + 1 : 0;
        if (replica.samples_good < fleet_.limits.memory_samples_good) return;
        transition(replica, kWaitLock);
        fleet_.lock.queue.push_back(replica.index);
        grant_next();
    } else if (replica.state == kWaitLock && fleet_.lock.holder == replica.index &&
               fleet_.lock.is_sample_pending) {
        fleet_.lock.is_sample_pending = false;
        if (event.is_enough) {
            act(SpawnReplica{replica.index});
        } else {
            say(title_of(replica) + ": memory was taken meanwhile (" + event.note + ")");
            replica.samples_good = 0;
            replica.sample_at = now_ + fleet_.limits.memory_poll;
            transition(replica, kWaitVram);
            release_lock(replica);
        }
    }
}

/// Gives the lock to the first in the queue, unless somebody has it.
void Planner::grant_next() {
    LoadLock& lock = fleet_.lock;
    if (lock.holder.has_value() || lock.queue.empty() || is_stopping()) return;
    lock.holder = lock.queue.front();
    lock.queue.pop_front();
    act(TakeFileLock{});
}

void Planner::release_lock(const Replica& replica) {
    LoadLock& lock = fleet_.lock;
    std::erase(lock.queue, replica.index);
    if (lock.holder != replica.index) return;
    lock.holder.reset();
    lock.is_sample_pending = false;
    lock.waits_for.clear();
    if (lock.is_file_locked) {
        lock.is_file_locked = false;
        act(DropFileLock{});
    }
    grant_next();
}

void Planner::file_lock_taken() {
    LoadLock& lock = fleet_.lock;
    if (!lock.holder.has_value()) {  // its replica was stopped meanwhile
        act(DropFileLock{});
        return;
    }
    lock.is_file_locked = true;
    lock.locked_at = now_;
    lock.waits_for.clear();
    lock.is_sample_pending = true;
    act(MeasureMemory{*lock.holder});
}

void Planner::file_lock_busy(const FileLockBusy& event) {
    LoadLock& lock = fleet_.lock;
    if (!lock.holder.has_value()) return;
    if (lock.waits_for != event.holder) {
        lock.waits_for = event.holder;
        say("replica " + std::to_string(*lock.holder) + " waits for the load lock of " +
            event.holder);
    }
    lock.retry_at = now_ + fleet_.limits.lock_poll;
}

void Planner::check_lock() {
    LoadLock& lock = fleet_.lock;
    if (lock.holder.has_value() && !lock.is_file_locked && !lock.waits_for.empty() &&
        now_ >= lock.retry_at) {
        act(TakeFileLock{});
    }
}

void Planner::spawned(Replica& replica, const ReplicaSpawned& event) {
    assert(fleet_.lock.holder == replica.index && fleet_.lock.is_file_locked &&
           "a replica is spawned only under the load lock");
    replica.instance = event.instance;
    replica.pid = event.pid;
    replica.is_hello_seen = replica.is_kernels_seen = false;
    replica.is_selftest_passed = replica.is_ready_reported = false;
    replica.done = replica.total = 0;
    replica.condemned.reset();
    replica.last_words.reset();
    replica.kill_at.reset();
    replica.ready_at.reset();
    replica.degraded.clear();
    replica.step = 0;
    replica.running = replica.waiting = 0;
    replica.spawned_at = replica.progress_at = now_;
    transition(replica, kLoading);
}

void Planner::garbled(Replica& replica, const std::string& why) {
    if (is_loading(replica.state)) condemn(replica, protocol_failure(why));
}

void Planner::said(Replica& replica, const proto::PipeEvent& line) {
    if (replica.state == kStopping || replica.state == kUnkillable) return;  // too late to matter
    if (line.instance != replica.instance) {
        condemn(replica,
                protocol_failure("instance " + line.instance + " instead of " + replica.instance));
        return;
    }
    if (const auto* fatal = std::get_if<proto::FatalEvent>(&line.event)) {
        replica.last_words = Failure{.kind = failure_class_of(fatal->error_class),
                                     .what = fatal->what,
                                     .why = fatal->why,
                                     .fix = fatal->fix};
        return;  // it ends itself now; if not, progress stops
    }
    if (!is_loading(replica.state)) {
        condemn(replica, protocol_failure("it spoke again after ready"));
        return;
    }
    if (std::holds_alternative<proto::HelloEvent>(line.event)) {
        if (replica.is_hello_seen) {
            condemn(replica, protocol_failure("it said hello twice"));
            return;
        }
        replica.is_hello_seen = true;
        replica.progress_at = now_;
        return;
    }
    if (!replica.is_hello_seen) {
        condemn(replica, protocol_failure("its first line is not hello"));
    } else if (const auto* phase = std::get_if<proto::PhaseEvent>(&line.event)) {
        said_phase(replica, *phase);
    } else if (const auto* kernels = std::get_if<proto::KernelsEvent>(&line.event)) {
        replica.is_kernels_seen = true;
        replica.degraded = missing_of(*kernels);
    } else if (const auto* selftest = std::get_if<proto::SelftestEvent>(&line.event)) {
        said_selftest(replica, *selftest);
    } else {
        said_ready(replica, std::get<proto::ReadyEvent>(line.event));
    }
}

/// Phases come in order, none left out: LOADING, WARMING, SELFTEST. Progress is `done` growing or a
/// new phase.
void Planner::said_phase(Replica& replica, const proto::PhaseEvent& phase) {
    if (phase.phase != replica.state) {
        if (!is_loading(phase.phase) || !is_allowed(replica.state, phase.phase)) {
            condemn(replica, protocol_failure("phase " + std::string(name_of(phase.phase)) +
                                              " while " + std::string(name_of(replica.state))));
            return;
        }
        replica.progress_at = now_;
        replica.done = 0;
        replica.total = phase.total;
        transition(replica, phase.phase);
    }
    if (phase.done > replica.done) replica.progress_at = now_;
    replica.done = std::max(replica.done, phase.done);
    replica.total = phase.total;
}

void Planner::said_selftest(Replica& replica, const proto::SelftestEvent& selftest) {
    if (replica.state != kSelftest) {
        condemn(replica, protocol_failure("a self-test result before the phase SELFTEST"));
    } else if (!selftest.passed) {
        condemn(replica, {.kind = FailureClass::kSelftest,
                          .what = "its self-test failed",
                          .why = "the replica itself found its answer wrong",
                          .fix = "quadriga why " + std::to_string(replica.index)});
    } else if (!fleet_.selftest_tokens.empty() &&
               fleet_.selftest_tokens != selftest.tokens_sha256) {
        condemn(replica,
                {.kind = FailureClass::kSelftest,
                 .what = "its self-test gave other tokens than the first replica's",
                 .why = "expected " + fleet_.selftest_tokens + ", got " + selftest.tokens_sha256,
                 .fix = "if it repeats, suspect this device: the others agree"});
    } else {
        if (fleet_.selftest_tokens.empty()) fleet_.selftest_tokens = selftest.tokens_sha256;
        replica.is_selftest_passed = true;
        replica.progress_at = now_;
    }
}

void Planner::said_ready(Replica& replica, const proto::ReadyEvent& ready) {
    if (replica.state != kSelftest || !replica.is_selftest_passed || !replica.is_kernels_seen) {
        condemn(replica, protocol_failure("ready before kernels and self-test were reported"));
        return;
    }
    const std::string& expected = replica.device;
    const bool is_placed = ready.gpu_uuids.size() == 1 && ready.gpu_uuids.front() == expected;
    if (!is_placed) {
        std::string got;
        for (const std::string& uuid : ready.gpu_uuids)
            got += (got.empty() ? "" : ", ") + uuid;
        condemn(replica, {.kind = FailureClass::kPlacement,
                          .what = "it opened other devices than planned",
                          .why = "planned " + expected + ", opened " + (got.empty() ? "none" : got),
                          .fix = "check the device list of the configuration"});
        return;
    }
    replica.is_ready_reported = true;
    replica.settle_until = now_ + fleet_.limits.settle;
    if (fleet_.limits.settle.count() == 0) become_ready(replica);
}

/// Sooner than the limit, where the power can be read.
void Planner::power_settled(Replica& replica) {
    if (is_loading(replica.state) && replica.is_ready_reported) become_ready(replica);
}

void Planner::become_ready(Replica& replica) {
    fleet_.was_ready = true;
    replica.load_time = elapsed(replica.spawned_at, now_);
    replica.answered_at = replica.step_changed_at = now_;
    replica.ready_at = now_;
    transition(replica, kReady);
    std::string text = title_of(replica) + " is ready after " + seconds(replica.load_time);
    if (!replica.degraded.empty()) text += ", DEGRADED: " + replica.degraded;
    say(text);
    if (replica.is_set_aside) transition(replica, kDraining);  // still so after a restart
    release_lock(replica);
}

/// The waits of launcher.md section 5 between WAIT_VRAM and READY.
void Planner::check_loading(Replica& replica) {
    const FleetLimits& limits = fleet_.limits;
    if (replica.state == kWaitVram) {
        if (now_ - replica.since >= limits.memory_wait) {
            back_off(replica, {.kind = FailureClass::kDeviceMemory,
                               .what = "not enough free memory to load",
                               .why = replica.memory_note,
                               .fix = "free memory, or use fewer replicas (--layout)"});
        } else if (now_ >= replica.sample_at) {
            replica.sample_at = now_ + limits.memory_poll;
            act(MeasureMemory{replica.index});
        }
        return;
    }
    if (!is_loading(replica.state)) return;
    if (replica.is_ready_reported) {
        if (now_ >= replica.settle_until) become_ready(replica);
        return;
    }
    const Duration allowed = !replica.is_hello_seen       ? limits.hello
                             : replica.state == kSelftest ? limits.selftest_stall
                                                          : limits.load_stall;
    if (now_ - replica.progress_at < allowed) return;
    const std::string what = replica.is_hello_seen
                                 ? "no progress while " + std::string(name_of(replica.state))
                                 : "no hello on the ready pipe";
    condemn(replica, {.kind = FailureClass::kStalled,
                      .what = what + " for " + seconds(allowed),
                      .why = "stopped at " + std::to_string(replica.done) + " of " +
                             std::to_string(replica.total),
                      .fix = "check the disk, or raise load_stall_s"});
}

}  // namespace deploy

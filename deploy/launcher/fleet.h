// The launcher's decision core: from state, event and time to actions. No clock, no process, no
// socket and no randomness but a seed in the state, so that every rule is tested without any.
//
//   supervisor (one thread, owns pipes, pids, sockets)        fleet (pure)
//      event: a line on a ready pipe, a death, a timer  ──▶  plan(fleet, event, now)
//      does them, which may cause new events            ◀──  actions, in order
//
// Rules, in short: replicas load strictly one at a time, first starts and restarts alike, under one
// lock: a FIFO queue in this process plus a file lock between launchers. Loading is waited for by
// progress, never by total time. A death is answered by BACKOFF, a loop of deaths or an incurable
// cause by QUARANTINED. A stop lets the router finish, then ends the replicas in parallel.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "deploy/launcher/failure.h"
#include "deploy/launcher/replica_state.h"
#include "proto/ready_pipe.h"

namespace deploy {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = std::chrono::milliseconds;

/// Times and counts of launcher.md sections 3 to 6; the defaults there.
struct FleetLimits {
    Duration hello{5'000};
    Duration load_stall{120'000};
    Duration selftest_stall{60'000};
    Duration memory_wait{60'000};
    Duration memory_poll{200};
    int memory_samples_good = 2;  // in a row; 1 on the CPU, whose readings do not linger
    Duration settle{0};           // after the self-test, before READY; 0 on the CPU
    Duration lock_poll{100};      // between tries of the file lock while another launcher has it
    Duration term_to_kill{10'000};
    Duration unkillable{30'000};
    Duration step_stall{60'000};
    Duration silence{60'000};
    Duration drain_grace{5'000};
    Duration drain_deadline{600'000};
    Duration backoff_first{1'000};
    Duration backoff_max{60'000};
    Duration ready_resets{60'000};  // this long READY forgets earlier deaths
    Duration crash_window{600'000};
    int crash_limit = 3;  // deaths within the window: QUARANTINED
};

/// What a replica is wanted to do once its present state ends.
enum class Goal { kServe, kRestart, kHold };

struct Replica {
    int index = 0;
    ReplicaState state = ReplicaState::kAbsent;
    TimePoint since{};
    Goal goal = Goal::kServe;
    /// An operator drained it at the router: it is DRAINING instead of READY, but its process
    /// stays.
    bool is_set_aside = false;
    std::string device;  // that it must open: "CPU-0", "GPU-5a1c..."

    // The present process; meaningful while has_process(state).
    std::string instance;  // 16 hex digits, fresh for every spawn
    int pid = 0;
    bool is_hello_seen = false;
    bool is_kernels_seen = false;
    bool is_selftest_passed = false;
    bool is_ready_reported = false;  // ready said, settle time running
    std::uint64_t done = 0;          // progress within the present phase
    std::uint64_t total = 0;
    TimePoint spawned_at{};
    TimePoint progress_at{};
    TimePoint settle_until{};
    std::optional<TimePoint> ready_at;
    std::optional<Failure> condemned;   // why we ended it ourselves
    std::optional<Failure> last_words;  // its own `fatal` event
    TimePoint term_at{};                // STOPPING since; KILL follows after term_to_kill
    std::optional<TimePoint> kill_at;   // KILL sent
    std::string degraded;               // "matmul_mma wrong_arch", empty when every kernel is armed

    // Its work, from its status page.
    std::uint64_t step = 0;
    int running = 0;
    int waiting = 0;
    TimePoint step_changed_at{};
    TimePoint answered_at{};
    TimePoint drain_until{};

    // WAIT_VRAM and BACKOFF.
    TimePoint sample_at{};
    int samples_good = 0;
    std::string memory_note;
    TimePoint retry_at{};

    // History.
    std::optional<Failure> last_failure;
    int backoff_step = 0;
    std::deque<TimePoint> deaths;  // within crash_window, without a long READY between
    int restarts = 0;
    Duration load_time{0};                                              // of the last complete load
    Duration phase_times[3] = {Duration{0}, Duration{0}, Duration{0}};  // LOADING WARMING SELFTEST
};

enum class RouterState { kAbsent, kRunning, kDraining, kBackoff };

struct Router {
    RouterState state = RouterState::kAbsent;
    TimePoint since{};
    int pid = 0;
    TimePoint deadline{};  // kDraining: KILL then; kBackoff: start then
    int backoff_step = 0;
    int restarts = 0;
};

/// A router with new settings, on the same listening sockets, that has not said yet that it serves.
struct SuccessorRouter {
    int pid = 0;           // 0: about to be started
    TimePoint deadline{};  // KILL then
    bool is_overdue = false;
};

/// A router that has a successor and finishes what it has accepted.
struct RetiredRouter {
    int pid = 0;
    TimePoint since{};
    TimePoint deadline{};     // KILL then
    bool has_let_go = false;  // of the listening sockets; it is asked every second until it says so
};
/// More at once are refused: each costs memory, and its streams are seen in no metrics.
inline constexpr std::size_t kRetiredRoutersMax = 4;

enum class FleetPhase { kIdle, kRunning, kDraining, kStopping, kDone };

struct LoadLock {
    std::deque<int> queue;      // replicas in WAIT_LOCK, first come first served
    std::optional<int> holder;  // the replica whose turn it is
    bool is_file_locked = false;
    bool is_sample_pending = false;  // locked; one more memory sample before the spawn
    TimePoint locked_at{};
    TimePoint retry_at{};
    std::string waits_for;  // the other launcher, in words
};

struct Fleet {
    FleetLimits limits;
    FleetPhase phase = FleetPhase::kIdle;
    std::vector<Replica> replicas;
    Router router;
    std::optional<SuccessorRouter> successor;
    std::string successor_failure;  // of the last restart of the router; empty: none, so far
    /// Oldest first; at most kRetiredRoutersMax, and a successor that a stop has overtaken.
    std::vector<RetiredRouter> retired_routers;
    LoadLock lock;
    std::string selftest_tokens;  // expected sha256 of the self-test's token ids, empty until known
    bool was_ready = false;       // some replica has been READY
    int stop_requests = 0;
    std::optional<Failure> ending;  // why the launcher ends itself, if it does
    std::uint64_t random = 1;       // seed of the backoff jitter
    TimePoint seen_at{};            // time of the last event, to notice that we were suspended
};

Fleet make_fleet(int replica_count, const FleetLimits& limits, std::uint64_t seed);

// --- events -------------------------------------------------------------------------------------
struct Begin {};  // every socket listens
struct MemoryMeasured {
    int replica;
    bool is_enough;
    std::string note;  // need, available and holders in words
};
struct FileLockTaken {};
struct FileLockBusy {
    std::string holder;
};
struct ReplicaSpawned {
    int replica;
    int pid;
    std::string instance;
};
struct SpawnFailed {
    int replica;
    Failure failure;
};
struct ReplicaSaid {  // a line on its ready pipe
    int replica;
    proto::PipeEvent line;
};
struct ReplicaGarbled {  // a line that is none
    int replica;
    std::string why;
};
struct ReplicaDied {
    int replica;
    ExitEvidence evidence;
};
struct WorkReported {  // an answer of the replica's status page
    int replica;
    std::uint64_t step = 0;
    int running = 0;
    int waiting = 0;
};
struct PowerSettled {  // the card of a replica draws little again
    int replica;
};
struct RouterSpawned {
    int pid;
};
struct RouterDied {
    ExitEvidence evidence;
};
struct RouterSaid {  // whichever of them
    int pid;
    proto::RouterNews word;
};
struct SuccessorSpawned {
    int pid;
};
struct OtherRouterDied {  // the successor (pid 0: it could not be started) or one that has retired
    int pid;
    ExitEvidence evidence;
};
struct RestartRouter {};  // an operator's order; its new settings have been checked
struct StopAsked {  // TERM or INT; `quadriga down` waits for what runs and for nobody who may come
    bool has_grace = true;
};
/// kSetAside is a drain at the router: no new work, but the process stays.
enum class Order { kRetry, kRestart, kDrain, kSetAside, kUndrain };
struct ReplicaOrder {
    int replica;
    Order order;
};
struct Tick {};

using Event = std::variant<Begin, MemoryMeasured, FileLockTaken, FileLockBusy, ReplicaSpawned,
                           SpawnFailed, ReplicaSaid, ReplicaGarbled, ReplicaDied, WorkReported,
                           PowerSettled, RouterSpawned, RouterDied, RouterSaid, SuccessorSpawned,
                           OtherRouterDied, RestartRouter, StopAsked, ReplicaOrder, Tick>;

// --- actions ------------------------------------------------------------------------------------
struct MeasureMemory {  // answered by MemoryMeasured
    int replica;
};
struct TakeFileLock {};  // answered by FileLockTaken or FileLockBusy
struct DropFileLock {};
struct SpawnReplica {  // answered by ReplicaSpawned or SpawnFailed
    int replica;
};
struct SpawnRouter {};  // answered by RouterSpawned or RouterDied
struct SignalReplica {
    int replica;
    int signal;  // KILL goes to its whole process group
};
struct SignalRouter {
    int signal;
};
struct SpawnSuccessor {};    // answered by SuccessorSpawned or OtherRouterDied
struct RetireRouter {};      // the present one is one of the others from now on
struct PromoteSuccessor {};  // its settings are those in use, and it is the present one
struct SignalOtherRouter {
    int pid;
    int signal;
};
struct Announce {  // state changed: tell the router, the board, the metrics and the state file
    int replica;
    ReplicaState from;
    ReplicaState to;
};
struct GuardRouterPort {  // close connections to the router's port until it runs again
    bool is_guarded;
};
struct ShowStop {};  // tell the operator what a stop waits for
struct Say {         // one line for the log
    std::string text;
    bool is_warning = false;
};
struct Exit {
    int code;
};
using Action =
    std::variant<MeasureMemory, TakeFileLock, DropFileLock, SpawnReplica, SpawnRouter,
                 SignalReplica, SignalRouter, SpawnSuccessor, RetireRouter, PromoteSuccessor,
                 SignalOtherRouter, Announce, GuardRouterPort, ShowStop, Say, Exit>;

/// Applies `event` to `fleet` and returns what is to be done, in order.
std::vector<Action> plan(Fleet& fleet, const Event& event, TimePoint now);

/// When the next Tick is due; never more than a second away, so that a suspension is noticed.
TimePoint next_tick(const Fleet& fleet, TimePoint now);

/// Whether an operator wants no work on it, whichever program was asked.
bool is_drained(const Replica& replica);

/// Why an order cannot be followed now, empty when it can.
std::string refusal_of(const Fleet& fleet, const ReplicaOrder& order);

/// The same for a restart of the router.
std::string router_restart_refusal(const Fleet& fleet);

/// Seconds until `replica` is probably READY; 0 when it is, -1 when nothing says so.
double eta_s(const Fleet& fleet, int replica, TimePoint now);

}  // namespace deploy

// Which replica takes a request: a pure function of a snapshot. No clock, no socket, no randomness.
//
//   snapshot of all replicas + what one request needs ──choose()──▶ Decision
//
// Least outstanding tokens: the replica that has the fewest tokens still to compute, counting
//   queued     prompt tokens it has accepted and not yet prefilled, less cached ones (its report)
//   unseen     prompt tokens we sent it that no report can contain yet (our own charges)
//   output     tokens that our requests there are still expected to generate
// Counting our own charges at the moment of selection is what spreads a burst: a hundred requests
// that arrive between two reports would otherwise all follow the same stale number.
//
// Source: spec of the router, sections 3, 4 and 6. The cost function in seconds replaces
// outstanding_tokens() when it comes; the shape of snapshot and decision stays.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace router {

/// States of a replica as the router sees it. Only READY takes new work.
///
///   STARTING ──▶ READY ◀──▶ SUSPECT ──▶ DOWN        DRAINING: finishes what it has
enum class ReplicaState : std::uint8_t { kStarting, kReady, kSuspect, kDown, kDraining };
inline constexpr int kReplicaStateCount = 5;

/// `STARTING`, `READY`, …: the word used in metrics, logs and bodies.
[[nodiscard]] std::string_view name_of(ReplicaState state);

/// One replica at the moment of a decision.
struct ReplicaView {
    int index = 0;
    std::uint64_t life = 0;  // counts its instances: a restarted replica is a new candidate
    ReplicaState state = ReplicaState::kDown;
    int slots = 1;                            // sequences it runs at once
    int occupied = 0;                         // sequences there now: in its report or sent since
    std::int64_t queued_tokens = 0;           // from its report, uncached only
    std::int64_t unseen_tokens = 0;           // our prompt tokens that no report contains
    std::int64_t expected_output_tokens = 0;  // still to come from our sequences
    std::uint64_t last_dispatch = 0;          // running number of its last dispatch, 0 = never
    bool is_saturated = false;                // it answered 429 or 503 and has not shown room since
};

struct Snapshot {
    std::vector<ReplicaView> replicas;
    int dispatch_ahead = 1;  // requests a full replica may hold waiting, so that no step runs short
};

/// One instance of one replica.
struct InstanceRef {
    int index = 0;
    std::uint64_t life = 0;
    bool operator==(const InstanceRef&) const = default;
};

/// What the choice depends on in a request.
struct Demand {
    int sequences = 1;                  // `n`
    std::vector<InstanceRef> excluded;  // those that failed this request, or that are reserved
};

enum class Verdict : std::uint8_t {
    kDispatch,     // start on `replica` now
    kWait,         // READY replicas exist but none can start it; `replica` is the one to reserve
    kUnavailable,  // no candidate is READY
};

struct Decision {
    Verdict verdict = Verdict::kUnavailable;
    std::optional<InstanceRef> replica;
    std::int64_t outstanding_tokens = 0;  // of the chosen replica, before this request
};

/// Picks the startable replica with the least outstanding tokens; ties go to fewer sequences, then
/// to the longest since its last dispatch, then to the lower index. O(replicas).
[[nodiscard]] Decision choose(const Snapshot& snapshot, const Demand& demand);

[[nodiscard]] std::int64_t outstanding_tokens(const ReplicaView& replica);

/// True when the replica is READY and has room for `sequences` more. A request wider than the
/// replica starts when the replica is idle: it would never start otherwise.
[[nodiscard]] bool is_startable(const ReplicaView& replica, int sequences, int dispatch_ahead);

/// What clients are told to wait, in whole seconds, 1 to 60.
struct Backlog {
    std::int64_t prompt_tokens = 0;   // uncached, queued here and there
    std::int64_t output_tokens = 0;   // expected
    double prefill_tokens_per_s = 0;  // sum over READY replicas
    double decode_tokens_per_s = 0;
};
/// `spread` in [0, 1): drawn by the caller, so that clients do not return together.
[[nodiscard]] int retry_after_s(const Backlog& backlog, double spread);

}  // namespace router

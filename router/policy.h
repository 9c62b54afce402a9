// Which replica takes a request: a pure function of a snapshot. No clock, no socket, no randomness.
//
//   all replicas ──▶ candidates (READY, serve the model, not failed by this request)
//                        └──▶ startable ──▶ cheapest
//                         │ cheaper than all of those
//                         └ that can start: held for it, at most 2 s
//
// The cost is in seconds (cost.h). Ties, within 1 % or 2 ms, go to fewer sequences, then to the
// longest since its last dispatch. Least-loaded is the same choice with no match anywhere, so
//   (a) without a match both pick the same replica;
//   (b) with matches, the pick costs at most what the least-loaded pick costs with its own match,
//       plus the width of a tie.
// Charges count from the moment of selection: a hundred requests that arrive between two reports
// would otherwise all follow the same stale number.
//
// Source: spec of the router, sections 4 and 7.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "router/cost.h"
#include "router/policy_snapshot.h"

namespace router {

enum class Verdict : std::uint8_t {
    kDispatch,     // start on `replica` now
    kWait,         // READY replicas exist but none is to start it now; `replica` is waited for
    kUnavailable,  // no candidate is READY
};

/// Why this replica, as the decision record has it.
enum class Reason : std::uint8_t {
    kLeastLoad,  // the cheapest, with or without its cache
    kPrefix,     // its cache made it the cheapest
    kOnly,       // there was no other candidate
    kLight,      // a cheaper one is kept for interactive requests
    kRetry,      // another one failed the request
    kTrial,      // a request to see whether it works again
};
inline constexpr int kReasonCount = 6;
[[nodiscard]] std::string_view name_of(Reason reason);

/// Why a replica cannot start the request now.
enum class Obstacle : std::uint8_t {
    kNone,
    // no candidate at all
    kNotReady,
    kModel,  // it serves other models, or has not said which
    kBreaker,
    kExcluded,
    // candidates
    kReserved,   // kept for a request that was passed too long
    kSaturated,  // it said that it is full
    kSlots,
    kBlocks,
    kBigCap,   // it prefills a long prompt and others wait, or too many run over all
    kLight,    // kept for interactive requests
    kStagger,  // another long prefill began a moment ago
};
inline constexpr int kObstacleCount = 12;
[[nodiscard]] std::string_view name_of(Obstacle obstacle);

/// One replica as the decision saw it.
struct Candidate {
    InstanceRef replica;
    Obstacle obstacle = Obstacle::kNone;
    CostTerms terms;  // of candidates only
    std::int64_t matched_tokens = 0;
    std::int64_t uncached_tokens = 0;
    double expected_ttft_s = 0;
    bool is_big = false;

    [[nodiscard]] bool is_candidate() const {
        return obstacle > Obstacle::kExcluded || can_start();
    }
    [[nodiscard]] bool can_start() const { return obstacle == Obstacle::kNone; }
};

struct Decision {
    Verdict verdict = Verdict::kUnavailable;
    std::optional<InstanceRef> replica;
    Reason reason = Reason::kLeastLoad;
    Obstacle obstacle = Obstacle::kNone;  // of `replica`, when the verdict is to wait
    bool is_hold = false;  // it waits for `replica` although another one could start it
    double expected_ttft_s = 0;
    double least_load_ttft_s = 0;  // what the pick without matches would have taken
    std::int64_t matched_tokens = 0;
    std::int64_t uncached_tokens = 0;
    std::int64_t blocks = 0;  // of KV memory that it takes there, what the cache holds included
    bool is_big = false;
    std::vector<Candidate> candidates;  // every replica, in the order of the snapshot

    [[nodiscard]] const Candidate* find(InstanceRef ref) const;
};

/// O(replicas).
[[nodiscard]] Decision choose(const Snapshot& snapshot, const Demand& demand);

/// How far above the cheapest a replica still counts as equally cheap.
[[nodiscard]] double tie_width_s(double least_cost_s);

/// True when the replica is READY and has a slot for `sequences` more. A request wider than the
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

// What a choice is made of: the replicas at one moment, and what one request needs.
//
//   ReplicaSet (reports, own charges) ─┐
//   PolicyMemory (trust, long prompts) ┼─▶ Snapshot ─┐
//                                      │             ├─▶ choose() ─▶ Decision
//   parsed request ── AffinityTable ───┴─▶ Demand ───┘
//
// Plain values: whoever decides reads nothing else, so a decision can be repeated, recorded and
// tested. Times in it are durations, never points of a clock.
#pragma once

#include <chrono>
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

// Used until a replica has measured its own rates.
inline constexpr double kPrefillRateFallback = 2000;
inline constexpr double kDecodeRateFallback = 40;

/// One instance of one replica.
struct InstanceRef {
    int index = 0;
    std::uint64_t life = 0;
    bool operator==(const InstanceRef&) const = default;
};

/// One replica at the moment of a decision.
struct ReplicaView {
    int index = 0;
    std::uint64_t life = 0;  // counts its instances: a restarted replica is a new candidate
    ReplicaState state = ReplicaState::kDown;

    int slots = 1;                            // sequences it may run at once; fewer in slow start
    int occupied = 0;                         // sequences there now: in its report or sent since
    std::int64_t queued_tokens = 0;           // from its report, uncached only
    std::int64_t unseen_tokens = 0;           // our prompt tokens that no report contains
    std::int64_t expected_output_tokens = 0;  // still to come from our sequences
    double prefill_tokens_per_s = kPrefillRateFallback;
    double decode_tokens_per_s = kDecodeRateFallback;

    std::int64_t blocks_total = 0;  // 0: not known, then KV memory decides nothing
    std::int64_t blocks_used = 0;   // in its report, evictable ones not counted, or ours since
    int block_tokens = 0;

    double trust = 1;                 // how much of a predicted prefix it has had lately, 0.05 to 1
    int big_prefills = 0;             // long prompts of ours there without a first token
    int gpus = 1;                     // what one big prefill there counts for
    int reserved_slots = 0;           // kept for requests that were passed too long
    bool is_reserved = false;         // kept whole for such a request
    bool is_saturated = false;        // it answered 429 or 503 and has not shown room since
    bool is_shut = false;             // its breaker is open
    bool is_trial = false;            // its breaker lets single requests through
    std::uint64_t last_dispatch = 0;  // running number of its last dispatch, 0 = never

    /// Prompt tokens it has to compute before the next one's turn.
    [[nodiscard]] std::int64_t ahead() const { return queued_tokens + unseen_tokens; }
    [[nodiscard]] InstanceRef ref() const { return {index, life}; }
};

/// Weights of the cost; the keys `cost_...` of the table [router].
struct CostOptions {
    double decode_weight = 0.25;
    double kv_s = 0.15;
    double decay = 0.5;
};

/// Long prompts beside interactive ones: the rules and what they depend on now.
struct BigPrefills {
    double threshold_s = 2;                        // own prefill above this is big
    int count_max = 0;                             // over all replicas, in GPUs; 0: no cap
    std::chrono::milliseconds light_hold{10'000};  // after this wait the light replica is open
    bool is_interactive = false;   // a request that is not big arrived a short while ago
    bool is_start_recent = false;  // one began a moment ago: no idle replica begins another
};

struct Snapshot {
    std::vector<ReplicaView> replicas;
    int dispatch_ahead = 1;  // requests a full replica may hold waiting, so that no step runs short
    int waiting = 0;         // other requests in the queue
    CostOptions cost;
    BigPrefills big;
};

/// A replica that holds the beginning of the prompt.
struct Match {
    InstanceRef replica;
    std::int64_t tokens = 0;
    bool operator==(const Match&) const = default;
};

/// What the choice depends on in a request.
struct Demand {
    int sequences = 1;                  // `n`
    std::vector<InstanceRef> excluded;  // those that failed this request
    /// Those of which it is not known that they serve its model; empty where all serve one.
    std::vector<InstanceRef> not_serving;
    std::int64_t prompt_tokens = 1;
    std::int64_t output_tokens_kept = 0;   // KV room asked for beside the prompt: min(max, 256)
    std::vector<Match> matches;            // at most one a replica
    std::optional<InstanceRef> preferred;  // breaks ties only
    std::chrono::milliseconds waited{0};   // since its arrival
    bool may_hold = true;   // may wait for a better replica than those that can start it now
    bool is_retry = false;  // it was on a replica before
};

}  // namespace router

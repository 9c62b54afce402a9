// What it costs to send a request to a replica, in seconds.
//
//   cost =   ahead/P                      the prefill queue there
//          + tokens/P - credit*matched/P  own prefill, less what its cache saves
//          + 0.25 * out/D                 decode load, which shares the steps
//          + 0.15 * k/(1-k)               pressure on KV memory, k = share in use with this request
//          + slot_wait                    time to the next free slot, 0 if there is one
//
//   credit = trust / (1 + 0.5 * (ahead - least ahead of all) / tokens)
//
// Credit is why affinity never loses much: the further a replica falls behind the least loaded one,
// the less its cache counts, and a replica that did not have what was predicted is not believed.
// P and D are the replica's own measured rates. Pure. Source: spec of the router, section 4.
#pragma once

#include "router/policy_snapshot.h"

namespace router {

/// The terms, each in seconds, as they stand in the decision record.
struct CostTerms {
    double queue_s = 0;
    double prefill_s = 0;
    double saved_s = 0;  // to be subtracted
    double decode_s = 0;
    double kv_s = 0;
    double slot_s = 0;

    /// The cost that decides.
    [[nodiscard]] double total() const {
        return queue_s + prefill_s - saved_s + decode_s + kv_s + slot_s;
    }
    /// The same for a router that knows of no cache.
    [[nodiscard]] double without_match() const { return total() + saved_s; }
};

/// What a request asks of one replica.
struct CostQuestion {
    std::int64_t tokens = 1;
    std::int64_t matched = 0;  // of them in the replica's cache, as far as known
    std::int64_t output_tokens_kept = 0;
    int sequences = 1;
    std::int64_t least_ahead = 0;  // over all candidates
};

[[nodiscard]] CostTerms cost_of(const ReplicaView& replica, const CostQuestion& question,
                                const CostOptions& options);

/// Prompt tokens the replica is expected to compute: all but what it is trusted to have.
[[nodiscard]] std::int64_t uncached_tokens(const ReplicaView& replica, std::int64_t tokens,
                                           std::int64_t matched);

/// Seconds from dispatch to the first token: the waits and the own prefill, without the terms that
/// only weigh replicas against each other.
[[nodiscard]] double expected_ttft_s(const ReplicaView& replica, const CostTerms& terms,
                                     std::int64_t uncached);

/// KV blocks a request takes at most before it has shown that it needs more.
[[nodiscard]] std::int64_t blocks_for(const ReplicaView& replica, const CostQuestion& question);

}  // namespace router

#include "router/cost.h"

#include <algorithm>

namespace router {
namespace {

/// Reports could name any rate; a division by almost nothing would drown all other terms.
constexpr double kRateMin = 1;
/// Nobody knows how long sequences of other senders run on; ours end no sooner than this either.
constexpr double kRemainingTokensMin = 16;
constexpr double kPressureMax = 0.999;

double seconds(std::int64_t tokens, double rate) {
    return static_cast<double>(tokens) / std::max(rate, kRateMin);
}

/// Time until enough sequences have ended. With n sequences at random points of answers that have m
/// tokens to go on average, the first ends after 2m/(n+1) tokens of its own, at D/n tokens a
/// second.
double slot_wait_s(const ReplicaView& replica, int sequences) {
    const int missing = std::min(replica.occupied, replica.occupied + sequences - replica.slots);
    if (missing <= 0) return 0;
    const double running = std::clamp(replica.occupied, 1, std::max(1, replica.slots));
    const double remaining =
        std::max(kRemainingTokensMin, static_cast<double>(replica.expected_output_tokens) /
                                          static_cast<double>(std::max(1, replica.occupied)));
    const double next_s =
        2 * remaining * running / (running + 1) / std::max(replica.decode_tokens_per_s, kRateMin);
    return missing * next_s;
}

double kv_share(const ReplicaView& replica, const CostQuestion& question) {
    if (replica.blocks_total <= 0) return 0;
    const double wanted = static_cast<double>(replica.blocks_used + blocks_for(replica, question));
    return std::clamp(wanted / static_cast<double>(replica.blocks_total), 0.0, kPressureMax);
}

}  // namespace

CostTerms cost_of(const ReplicaView& replica, const CostQuestion& question,
                  const CostOptions& options) {
    const std::int64_t tokens = std::max<std::int64_t>(1, question.tokens);
    const double behind =
        static_cast<double>(std::max<std::int64_t>(0, replica.ahead() - question.least_ahead));
    const double credit =
        replica.trust / (1 + options.decay * behind / static_cast<double>(tokens));
    const double share = kv_share(replica, question);
    const std::int64_t matched = std::clamp<std::int64_t>(question.matched, 0, tokens);
    return {.queue_s = seconds(replica.ahead(), replica.prefill_tokens_per_s),
            .prefill_s = seconds(tokens, replica.prefill_tokens_per_s),
            .saved_s = credit * seconds(matched, replica.prefill_tokens_per_s),
            .decode_s = options.decode_weight *
                        seconds(replica.expected_output_tokens, replica.decode_tokens_per_s),
            .kv_s = options.kv_s * share / (1 - share),
            .slot_s = slot_wait_s(replica, question.sequences)};
}

std::int64_t uncached_tokens(const ReplicaView& replica, std::int64_t tokens,
                             std::int64_t matched) {
    const double believed = replica.trust * static_cast<double>(std::clamp<std::int64_t>(
                                                matched, 0, std::max<std::int64_t>(0, tokens)));
    return std::max<std::int64_t>(1, tokens - static_cast<std::int64_t>(believed));
}

double expected_ttft_s(const ReplicaView& replica, const CostTerms& terms, std::int64_t uncached) {
    return terms.queue_s + seconds(uncached, replica.prefill_tokens_per_s) + terms.slot_s;
}

std::int64_t blocks_for(const ReplicaView& replica, const CostQuestion& question) {
    if (replica.block_tokens <= 0) return 0;
    const std::int64_t tokens = question.tokens + question.sequences * question.output_tokens_kept;
    return (tokens + replica.block_tokens - 1) / replica.block_tokens;
}

}  // namespace router

// How one row of logits becomes a token: the rules every backend shares.
//
//   logits ─▶ bias ─▶ penalties ─▶ banned and unused ids ─▶ temperature
//          ─▶ top_k ─▶ top_p ─▶ min_p ─▶ draw
//
// Every filter keeps a prefix of the ids ordered by (logit descending, id ascending), so each is
// one boundary and nothing is sorted in full. The draw then walks the kept ids in ascending order
// until their probabilities pass the row's random number (kernels/philox.h).
//
//   temperature  below kGreedyTemperature: the largest logit, lowest id on ties; filters are moot
//   penalties    a token that occurred: a positive logit is divided by the repetition penalty, a
//                negative one multiplied; then minus frequency x generated count, minus presence.
//                Drafts in front of the row count as generated
//   top_k        exactly k ids (lowest ids on ties at the border); 0 or below = off
//   top_p        the shortest prefix with at least p of the mass that top_k left; 0 keeps one id
//   min_p        ids with at least min_p times the best id's probability
//
// Log-probabilities are of the raw logits: before any of the above, over the ids that may be drawn.
//
// A logit that is not finite (NaN, either infinity) is never drawn; neither are ids from
// `vocabulary_used` on. Ids of bias, counts or bans outside the vocabulary are ignored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace kernels {

/// api.md section 3: below this a temperature means "the best token".
inline constexpr float kGreedyTemperature = 1e-5F;
/// A bias of this or less bans its token.
inline constexpr float kBanBias = -100.0F;

struct SampledToken {
    std::int32_t token = 0;
    bool error = false;  // no id had a finite logit; `token` then means nothing
};

/// Work memory of one sampling thread. Once reserved, sample_row allocates nothing.
class SampleScratch {
public:
    struct Candidate {
        float logit;
        float weight;  // exp((logit - best) / temperature)
        std::int32_t id;
    };

    SampleScratch() = default;
    explicit SampleScratch(std::int32_t vocabulary) { reserve(vocabulary); }
    /// Makes room for rows of up to `vocabulary` logits: 20 bytes each.
    void reserve(std::int32_t vocabulary);

    // For the sampling code only.
    std::vector<float> adjusted;  // logits after bias, penalties and bans
    std::vector<float> weights;
    std::vector<Candidate> candidates;
};

/// Draws one token by the rules above. `logits` [vocabulary] stay as they are; ids from
/// `vocabulary_used` on are padding of the table. Grows `scratch` only when it was reserved for
/// less. The result depends on the arguments alone.
SampledToken sample_row(std::span<const float> logits, const SamplingRow& row,
                        std::int32_t vocabulary_used, SampleScratch& scratch);

/// Log-softmax of the drawn token and of the `top_count` best ones (0..kTopLogprobsMax), fewer when
/// fewer logits are finite. A row without a finite logit gives nothing of use.
RowLogprobs row_logprobs(std::span<const float> logits, std::int32_t vocabulary_used,
                         const SampledToken& drawn, std::int32_t top_count);

/// Whether any row asks for log-probabilities.
bool wants_logprobs(std::span<const SamplingRow> sampling);

}  // namespace kernels

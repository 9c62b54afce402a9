#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/philox.h"

namespace kernels {
namespace {

using Candidate = SampleScratch::Candidate;

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// The one order of ids: better logit first, lower id on ties.
bool comes_before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// Penalties of one token that is in the row's history.
float penalised(float logit, const SamplingRow& row, std::int32_t generated,
                std::int32_t in_prompt) {
    if (generated + in_prompt > 0)
        logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (generated > 0)
        logit -= row.frequency_penalty * static_cast<float>(generated) + row.presence_penalty;
    return logit;
}

std::int32_t occurrences(std::span<const std::int32_t> ids, std::int32_t id) {
    return static_cast<std::int32_t>(std::count(ids.begin(), ids.end(), id));
}

/// Bias, penalties and bans, in this order. Returns the logits themselves when there are none.
std::span<const float> adjust(std::span<const float> logits, const SamplingRow& row,
                              SampleScratch& scratch) {
    if (row.bias.empty() && row.counts.empty() && row.drafted.empty() && row.banned.empty())
        return logits;
    scratch.adjusted.assign(logits.begin(), logits.end());
    std::vector<float>& adjusted = scratch.adjusted;
    const auto slot = [&](std::int32_t id) -> float* {
        const bool is_known = id >= 0 && static_cast<std::size_t>(id) < adjusted.size();
        return is_known ? &adjusted[static_cast<std::size_t>(id)] : nullptr;
    };
    for (const LogitBias& bias : row.bias) {
        if (float* logit = slot(bias.token); logit != nullptr) {
            *logit = bias.bias <= kBanBias ? kNever : *logit + bias.bias;
        }
    }
    for (const TokenCount& count : row.counts) {
        if (float* logit = slot(count.token); logit != nullptr) {
            const std::int32_t generated = count.generated + occurrences(row.drafted, count.token);
            *logit = penalised(*logit, row, generated, count.in_prompt);
        }
    }
    for (std::size_t i = 0; i < row.drafted.size(); ++i) {  // a handful: those without a count
        const std::int32_t id = row.drafted[i];
        float* logit = slot(id);
        if (logit == nullptr || occurrences(row.drafted.first(i), id) > 0) continue;
        const auto has_token = [id](const TokenCount& count) { return count.token == id; };
        if (std::any_of(row.counts.begin(), row.counts.end(), has_token)) continue;
        *logit = penalised(*logit, row, occurrences(row.drafted, id), 0);
    }
    for (const std::int32_t id : row.banned) {
        if (float* logit = slot(id); logit != nullptr) *logit = kNever;
    }
    return adjusted;
}

/// The first of the best finite logits.
std::optional<std::int32_t> best_id(std::span<const float> logits) {
    std::optional<std::int32_t> best;
    float best_logit = kNever;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        // NaN fails the first comparison, infinity the second.
        if (logits[i] > best_logit && logits[i] <= std::numeric_limits<float>::max()) {
            best_logit = logits[i];
            best = static_cast<std::int32_t>(i);
        }
    }
    return best;
}

/// Softmax numerators relative to the best logit, so that the best weighs 1.
struct Softmax {
    float best_logit;
    float inverse_temperature;

    float weight(float logit) const {
        return std::isfinite(logit) ? std::exp((logit - best_logit) * inverse_temperature) : 0.0F;
    }
};

/// Fills `candidates` with the k first ids, in no order. A buffer of twice k is cut back to k
/// whenever it is full; the cut's last logit is the bar for all later ids (which lose ties).
void collect_top_k(std::span<const float> logits, std::size_t k,
                   std::vector<Candidate>& candidates) {
    const std::size_t buffer_size = std::min(logits.size(), std::max<std::size_t>(2 * k, 256));
    float bar = kNever;
    const auto cut = [&] {
        const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(k);
        std::nth_element(candidates.begin(), end - 1, candidates.end(), comes_before);
        candidates.erase(end, candidates.end());
        bar = candidates.back().logit;
    };
    candidates.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (!(logits[i] > bar) || !std::isfinite(logits[i])) continue;
        candidates.push_back({logits[i], 0.0F, static_cast<std::int32_t>(i)});
        if (candidates.size() == buffer_size && buffer_size > k) cut();
    }
    if (candidates.size() > k) cut();
}

/// Fills `candidates` with every id whose logit is at least `floor`.
void collect_from(std::span<const float> logits, float floor, std::vector<Candidate>& candidates) {
    candidates.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] >= floor && std::isfinite(logits[i])) {
            candidates.push_back({logits[i], 0.0F, static_cast<std::int32_t>(i)});
        }
    }
}

double total_weight(std::span<const Candidate> candidates) {
    double total = 0;
    for (const Candidate& candidate : candidates)
        total += static_cast<double>(candidate.weight);
    return total;
}

using Iterator = std::vector<Candidate>::iterator;

/// Narrows [begin, end) to the stretch of logits in which the running mass passes `mass`: what is
/// better moves in front of `begin` and is taken off `mass`, what is worse moves behind `end`.
void narrow_by_mass(Iterator& begin, Iterator& end, double& mass) {
    constexpr std::size_t kBins = 1024;  // 8 KiB of stack; leaves a few hundred of 250 000 ids
    const auto [worst, best] = std::minmax_element(
        begin, end, [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
    const float top = best->logit;
    const float range = top - worst->logit;
    if (!(range > 0)) return;
    const float scale = static_cast<float>(kBins - 1) / range;
    const auto bin_of = [=](const Candidate& candidate) {
        return static_cast<std::size_t>((top - candidate.logit) * scale);
    };
    std::array<double, kBins> mass_of_bin{};
    for (auto candidate = begin; candidate != end; ++candidate)
        mass_of_bin[bin_of(*candidate)] += static_cast<double>(candidate->weight);
    std::size_t crossing = 0;
    while (crossing + 1 < kBins && mass_of_bin[crossing] < mass)
        mass -= mass_of_bin[crossing++];
    begin = std::partition(begin, end, [&](const Candidate& c) { return bin_of(c) < crossing; });
    end = std::partition(begin, end, [&](const Candidate& c) { return bin_of(c) == crossing; });
}

/// Cuts `candidates` to the shortest prefix that weighs at least `mass`; its order is lost.
void keep_mass(std::vector<Candidate>& candidates, double mass) {
    constexpr std::ptrdiff_t kSortedAtMost = 1024;  // a sort of so many costs less than the bins
    auto begin = candidates.begin();
    auto end = candidates.end();
    if (end - begin > kSortedAtMost) narrow_by_mass(begin, end, mass);
    std::sort(begin, end, comes_before);
    while (begin != end) {
        mass -= static_cast<double>(begin->weight);
        ++begin;
        if (mass <= 0) break;
    }
    candidates.erase(begin, candidates.end());
}

/// Puts a prefix of the order of ids into ascending order of ids.
void order_by_id(std::span<const float> logits, const Softmax& softmax,
                 std::vector<Candidate>& candidates) {
    constexpr std::size_t kSortedAtMost = 4096;
    if (candidates.size() <= kSortedAtMost) {
        std::sort(candidates.begin(), candidates.end(),
                  [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
        return;
    }
    // Longer ones are cheaper collected anew: everything up to the prefix's last entry.
    const Candidate last = *std::max_element(candidates.begin(), candidates.end(), comes_before);
    collect_from(logits, last.logit, candidates);
    std::erase_if(candidates, [&](const Candidate& c) { return comes_before(last, c); });
    for (Candidate& candidate : candidates)
        candidate.weight = softmax.weight(candidate.logit);
}

/// The id at which the running sum, in ascending order of ids, passes `uniform` of the whole.
std::int32_t draw(std::span<const Candidate> candidates, double uniform) {
    assert(!candidates.empty() && "the best id passes every filter");
    const double target = uniform * total_weight(candidates);
    double sum = 0;
    for (const Candidate& candidate : candidates) {
        sum += static_cast<double>(candidate.weight);
        if (sum > target) return candidate.id;
    }
    return candidates.back().id;  // uniform * total rounded up to the total
}

/// Temperature and min_p alone: the same walk over all ids, without a list.
std::int32_t draw_from_all(std::span<const float> logits, const Softmax& softmax, float min_p,
                           double uniform, std::vector<float>& weights) {
    weights.resize(logits.size());
    double total = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const float weight = softmax.weight(logits[i]);
        weights[i] = weight >= min_p ? weight : 0.0F;
        total += static_cast<double>(weights[i]);
    }
    const double target = uniform * total;
    double sum = 0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < weights.size() && sum <= target; ++i) {
        if (weights[i] == 0.0F) continue;
        sum += static_cast<double>(weights[i]);
        last = i;
    }
    return static_cast<std::int32_t>(last);
}

/// Everything that can be in the top_p prefix: ids lighter than (1 - p) * total / n weigh, all n
/// together, less than (1 - p) of the total, so the prefix is complete before them.
void collect_for_top_p(std::span<const float> logits, const Softmax& softmax, double top_p,
                       double total, std::vector<Candidate>& candidates) {
    const double lightest = (1.0 - top_p) * total / static_cast<double>(logits.size());
    constexpr double kRounding = 1e-3;  // the bar's own rounding must not cut a needed id
    const double floor =
        static_cast<double>(softmax.best_logit) +
        (std::log(lightest) - kRounding) / static_cast<double>(softmax.inverse_temperature);
    collect_from(logits, static_cast<float>(std::max(floor, -3.0e38)), candidates);
}

}  // namespace

void SampleScratch::reserve(std::int32_t vocabulary) {
    const auto n = static_cast<std::size_t>(vocabulary);
    adjusted.reserve(n);
    weights.reserve(n);
    candidates.reserve(n);
}

SampledToken sample_row(std::span<const float> logits, const SamplingRow& row,
                        std::int32_t vocabulary_used, SampleScratch& scratch) {
    assert(vocabulary_used > 0 && static_cast<std::size_t>(vocabulary_used) <= logits.size());
    logits = adjust(logits.first(static_cast<std::size_t>(vocabulary_used)), row, scratch);
    const std::optional<std::int32_t> best = best_id(logits);
    if (!best) return {.token = 0, .error = true};
    if (row.temperature < kGreedyTemperature) return {.token = *best};

    const Softmax softmax{.best_logit = logits[static_cast<std::size_t>(*best)],
                          .inverse_temperature = 1.0F / row.temperature};
    const double uniform = draw_uniform(row.seed, row.draw_index);
    const bool has_top_k = row.top_k > 0 && static_cast<std::size_t>(row.top_k) < logits.size();
    const bool has_top_p = row.top_p < 1.0F;
    if (!has_top_k && !has_top_p) {
        return {.token = draw_from_all(logits, softmax, row.min_p, uniform, scratch.weights)};
    }

    const auto top_p = static_cast<double>(row.top_p);
    std::vector<Candidate>& candidates = scratch.candidates;
    double total = 0;
    if (has_top_k) {
        collect_top_k(logits, static_cast<std::size_t>(row.top_k), candidates);
    } else {
        for (const float logit : logits)
            total += static_cast<double>(softmax.weight(logit));
        collect_for_top_p(logits, softmax, top_p, total, candidates);
    }
    for (Candidate& candidate : candidates)
        candidate.weight = softmax.weight(candidate.logit);
    if (has_top_k) total = total_weight(candidates);
    if (has_top_p) keep_mass(candidates, top_p * total);
    order_by_id(logits, softmax, candidates);
    std::erase_if(candidates, [&](const Candidate& c) { return c.weight < row.min_p; });
    return {.token = draw(candidates, uniform)};
}

RowLogprobs row_logprobs(std::span<const float> logits, std::int32_t vocabulary_used,
                         const SampledToken& drawn, std::int32_t top_count) {
    assert(vocabulary_used > 0 && static_cast<std::size_t>(vocabulary_used) <= logits.size());
    assert(top_count >= 0 && top_count <= kTopLogprobsMax);
    logits = logits.first(static_cast<std::size_t>(vocabulary_used));
    RowLogprobs result;
    const std::optional<std::int32_t> best = best_id(logits);
    if (!best || drawn.error) return result;
    const float best_logit = logits[static_cast<std::size_t>(*best)];
    double total = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const float logit = logits[i];
        if (!std::isfinite(logit)) continue;
        total += static_cast<double>(std::exp(logit - best_logit));
        if (top_count == 0) continue;
        // The best so far stay in order; a later id loses ties, so few ever get past the last one.
        const bool is_full = result.top_count == top_count;
        if (is_full && !(logit > result.top[static_cast<std::size_t>(top_count) - 1].logprob))
            continue;
        auto place = static_cast<std::size_t>(is_full ? top_count - 1 : result.top_count++);
        for (; place > 0 && result.top[place - 1].logprob < logit; --place)
            result.top[place] = result.top[place - 1];
        result.top[place] = {static_cast<std::int32_t>(i), logit};
    }
    const auto logprob = [best_logit, log_total = std::log(total)](float logit) {
        return static_cast<float>(static_cast<double>(logit) - static_cast<double>(best_logit) -
                                  log_total);
    };
    result.drawn = logprob(logits[static_cast<std::size_t>(drawn.token)]);
    for (std::size_t i = 0; i < static_cast<std::size_t>(result.top_count); ++i)
        result.top[i].logprob = logprob(result.top[i].logprob);
    return result;
}

bool wants_logprobs(std::span<const SamplingRow> sampling) {
    return std::any_of(sampling.begin(), sampling.end(),
                       [](const SamplingRow& row) { return row.top_logprobs >= 0; });
}

}  // namespace kernels

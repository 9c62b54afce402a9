// Sampling as a distribution: chi-square goodness of fit, and the selections on large vocabularies
// against the plain definition (sort everything). Seeds are fixed, so a pass stays a pass.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/sampling.h"

namespace kernels {
namespace {

/// The definition, in double: sort all ids, cut three times, renormalise. [vocabulary]
std::vector<double> reference_probabilities(const std::vector<float>& logits,
                                            const SamplingRow& row) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    std::vector<double> weight(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i)
        weight[i] = std::exp(static_cast<double>(logits[i] - logits[order[0]]) /
                             static_cast<double>(row.temperature));
    if (row.top_k > 0 && static_cast<std::size_t>(row.top_k) < order.size())
        order.resize(static_cast<std::size_t>(row.top_k));
    double total = 0;
    for (const std::size_t id : order)
        total += weight[id];
    if (row.top_p < 1.0F) {
        double mass = 0;
        std::size_t kept = 0;
        do {
            mass += weight[order[kept++]];
        } while (kept < order.size() && mass < static_cast<double>(row.top_p) * total);
        order.resize(kept);
    }
    std::erase_if(order,
                  [&](std::size_t id) { return weight[id] < static_cast<double>(row.min_p); });
    std::vector<double> probabilities(logits.size());
    total = 0;
    for (const std::size_t id : order)
        total += weight[id];
    for (const std::size_t id : order)
        probabilities[id] = weight[id] / total;
    return probabilities;
}

std::vector<float> random_logits(std::size_t count, float scale, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, scale);
    std::vector<float> logits(count);
    for (float& logit : logits)
        logit = normal(random);
    return logits;
}

/// Draws and compares counts with `expected`; a token of probability 0 must not occur at all.
/// With k kept tokens chi-square has k - 1 degrees of freedom, mean k - 1, deviation sqrt(2(k-1)).
void expect_fits(const std::vector<float>& logits, SamplingRow row) {
    constexpr std::uint64_t kDraws = 10000;
    const std::vector<double> expected = reference_probabilities(logits, row);
    SampleScratch scratch(static_cast<std::int32_t>(logits.size()));
    std::vector<int> counts(logits.size());
    for (row.draw_index = 0; row.draw_index < kDraws; ++row.draw_index) {
        const SampledToken sampled =
            sample_row(logits, row, static_cast<std::int32_t>(logits.size()), scratch);
        ASSERT_FALSE(sampled.error);
        ++counts[static_cast<std::size_t>(sampled.token)];
    }
    double chi_square = 0;
    int kept = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (expected[i] == 0.0) {
            ASSERT_EQ(counts[i], 0) << "token " << i << " was filtered out";
            continue;
        }
        const double wanted = expected[i] * static_cast<double>(kDraws);
        chi_square += (counts[i] - wanted) * (counts[i] - wanted) / wanted;
        ++kept;
    }
    const double freedom = kept - 1;
    EXPECT_LT(chi_square, freedom + 4 * std::sqrt(2 * freedom) + 1e-9);
}

TEST(SamplingDistributionTest, TemperatureAloneFitsTheSoftmax) {
    const std::vector<float> logits = random_logits(40, 1.0F, 1);
    expect_fits(logits, {.temperature = 1.0F, .seed = 11});
    expect_fits(logits, {.temperature = 0.5F, .seed = 12});
    expect_fits(logits, {.temperature = 2.0F, .seed = 13});
}

TEST(SamplingDistributionTest, EachFilterFitsItsDefinition) {
    const std::vector<float> logits = random_logits(40, 1.0F, 2);
    expect_fits(logits, {.top_k = 7, .seed = 21});
    expect_fits(logits, {.top_p = 0.7F, .seed = 22});
    expect_fits(logits, {.min_p = 0.2F, .seed = 23});
}

TEST(SamplingDistributionTest, AllFiltersTogetherFitTheirDefinition) {
    const std::vector<float> logits = random_logits(120, 1.0F, 3);
    expect_fits(logits,
                {.temperature = 0.8F, .top_k = 50, .top_p = 0.9F, .min_p = 0.05F, .seed = 31});
    expect_fits(logits, {.temperature = 1.3F, .top_p = 0.5F, .min_p = 0.1F, .seed = 32});
}

/// On a large vocabulary the size of the kept set is compared, and that each draw lands inside.
TEST(SamplingDistributionTest, SelectionKeepsWhatASortWouldKeepOnALargeVocabulary) {
    constexpr std::size_t kVocabulary = 12000;
    for (const float scale : {0.01F, 1.0F, 4.0F}) {
        std::vector<float> logits = random_logits(kVocabulary, scale, 4);
        for (std::size_t i = 0; i < kVocabulary; i += 3)
            logits[i] = std::round(logits[i] * 4) / 4;  // many ties
        for (const SamplingRow& row :
             {SamplingRow{.top_k = 1}, SamplingRow{.top_k = 40}, SamplingRow{.top_k = 7000},
              SamplingRow{.top_p = 0.3F}, SamplingRow{.top_p = 0.95F},
              SamplingRow{.top_k = 1000, .top_p = 0.9F}, SamplingRow{.min_p = 0.1F},
              SamplingRow{.temperature = 0.3F, .top_p = 0.999F, .min_p = 0.001F}}) {
            SCOPED_TRACE(testing::Message() << "scale " << scale << " top_k " << row.top_k
                                            << " top_p " << row.top_p << " min_p " << row.min_p);
            const std::vector<double> expected = reference_probabilities(logits, row);
            SampleScratch scratch(kVocabulary);
            SamplingRow drawn = row;
            for (drawn.draw_index = 0; drawn.draw_index < 5; ++drawn.draw_index) {
                const SampledToken sampled = sample_row(logits, drawn, kVocabulary, scratch);
                ASSERT_GT(expected[static_cast<std::size_t>(sampled.token)], 0.0);
            }
            if (row.top_p == 1.0F && row.top_k == 0) continue;
            const auto kept =
                std::count_if(expected.begin(), expected.end(), [](double p) { return p > 0; });
            // One id of slack: summed in another order, a mass may pass the border one id later.
            EXPECT_NEAR(static_cast<double>(scratch.candidates.size()), static_cast<double>(kept),
                        1.0);
            const auto strangers = std::count_if(
                scratch.candidates.begin(), scratch.candidates.end(), [&](const auto& candidate) {
                    return expected[static_cast<std::size_t>(candidate.id)] == 0.0;
                });
            EXPECT_LE(strangers, 1);
        }
    }
}

}  // namespace
}  // namespace kernels

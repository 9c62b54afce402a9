// Each sampling parameter by its definition. A parameter's effect is seen in the set of tokens that
// many draws reach, or in the greedy choice.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/sampling.h"

namespace kernels {
namespace {

using testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr SamplingRow kGreedy{.temperature = 0.0F};

SampledToken sample(const std::vector<float>& logits, const SamplingRow& row) {
    SampleScratch scratch;
    return sample_row(logits, row, static_cast<std::int32_t>(logits.size()), scratch);
}

/// The tokens that 2000 draws reach.
std::set<std::int32_t> reachable(const std::vector<float>& logits, SamplingRow row) {
    std::set<std::int32_t> tokens;
    for (row.draw_index = 0; row.draw_index < 2000; ++row.draw_index) {
        const SampledToken sampled = sample(logits, row);
        EXPECT_FALSE(sampled.error);
        tokens.insert(sampled.token);
    }
    return tokens;
}

/// Logits of the given probabilities.
std::vector<float> logits_of(std::vector<float> probabilities) {
    for (float& value : probabilities)
        value = std::log(value);
    return probabilities;
}

TEST(SamplingTest, GreedyTakesTheLargestLogit) {
    EXPECT_EQ(sample({1, 5, 3}, kGreedy).token, 1);
    EXPECT_EQ(sample({-3, -1, -2}, kGreedy).token, 1);
}

TEST(SamplingTest, GreedyTakesTheLowestIdOfEqualLogits) {
    EXPECT_EQ(sample({1, 4, 4, 4}, kGreedy).token, 1);
}

TEST(SamplingTest, TemperatureBelowTheThresholdIsGreedy) {
    EXPECT_EQ(reachable({1.0F, 1.00001F, 1.0F}, {.temperature = 1e-9F}), std::set{1});
    EXPECT_EQ(reachable({2, 2, 2}, {.temperature = 9.9e-6F}), std::set{0});
}

TEST(SamplingTest, GreedyIgnoresTheFilters) {
    EXPECT_EQ(sample({1, 5, 3}, {.temperature = 0, .top_k = 2, .top_p = 0.1F, .min_p = 1}).token,
              1);
}

TEST(SamplingTest, NanNeverWins) {
    EXPECT_EQ(sample({kNan, 1, 2, kNan}, kGreedy).token, 2);
    EXPECT_EQ(reachable({kNan, 1, 1, kNan}, {}), (std::set{1, 2}));
    EXPECT_EQ(reachable({kNan, 1, 1, kNan}, {.top_k = 3}), (std::set{1, 2}));
    EXPECT_EQ(reachable({kNan, 1, 1, kNan}, {.top_p = 0.99F}), (std::set{1, 2}));
}

TEST(SamplingTest, InfinityNeverWins) {
    EXPECT_EQ(sample({kInfinity, 1, 2, -kInfinity}, kGreedy).token, 2);
    EXPECT_EQ(reachable({kInfinity, 1, 1, -kInfinity}, {.top_k = 3}), (std::set{1, 2}));
}

TEST(SamplingTest, ARowWithoutAFiniteLogitIsAnError) {
    for (const SamplingRow& row : {kGreedy, SamplingRow{}, SamplingRow{.top_k = 2}}) {
        EXPECT_TRUE(sample({kNan, kNan, kNan}, row).error);
        EXPECT_TRUE(sample({kNan, kInfinity, -kInfinity}, row).error);
    }
}

TEST(SamplingTest, ARowWhoseIdsAreAllBannedIsAnError) {
    const std::vector<std::int32_t> banned{0, 1};
    EXPECT_TRUE(sample({1, 2}, {.banned = banned}).error);
}

TEST(SamplingTest, BannedIdsAreNeverDrawn) {
    const std::vector<std::int32_t> banned{1, 3};
    EXPECT_EQ(sample({1, 9, 3, 8}, {.temperature = 0, .banned = banned}).token, 2);
    EXPECT_EQ(reachable({1, 9, 1, 8}, {.banned = banned}), (std::set{0, 2}));
}

TEST(SamplingTest, UnusedIdsAreNeverDrawn) {
    SampleScratch scratch;
    const std::vector<float> logits{1, 2, 9, 9};
    EXPECT_EQ(sample_row(logits, kGreedy, 2, scratch).token, 1);
    for (std::uint64_t i = 0; i < 200; ++i)
        EXPECT_LT(sample_row(logits, {.draw_index = i}, 2, scratch).token, 2);
}

TEST(SamplingTest, BiasIsAddedToTheLogit) {
    const std::vector<LogitBias> bias{{.token = 0, .bias = 2.5F}, {.token = 1, .bias = -1}};
    EXPECT_EQ(sample({1, 4, 3.2F}, {.temperature = 0, .bias = bias}).token, 0);
}

TEST(SamplingTest, BiasOfMinusAHundredBans) {
    const std::vector<LogitBias> bias{{.token = 1, .bias = -100}};
    EXPECT_EQ(sample({1, 1e6F, 0}, {.temperature = 0, .bias = bias}).token, 0);
    EXPECT_EQ(reachable({1, 200, 1}, {.bias = bias}), (std::set{0, 2}));
}

TEST(SamplingTest, AnIdOutsideTheVocabularyIsIgnoredEverywhere) {
    const std::vector<LogitBias> bias{{.token = -1, .bias = 9}, {.token = 3, .bias = 9}};
    const std::vector<TokenCount> counts{{.token = 99, .generated = 1, .in_prompt = 1}};
    const std::vector<std::int32_t> banned{-5, 3, 1 << 30};
    EXPECT_EQ(
        sample({1, 3, 2}, {.temperature = 0, .bias = bias, .counts = counts, .banned = banned})
            .token,
        1);
}

TEST(SamplingTest, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
    const std::vector<TokenCount> counts{{.token = 0, .generated = 1, .in_prompt = 0},
                                         {.token = 1, .generated = 0, .in_prompt = 3}};
    const SamplingRow row{.temperature = 0, .repetition_penalty = 2, .counts = counts};
    EXPECT_EQ(sample({4, 4, 1.9F}, row).token, 0);        // 2, 2, 1.9
    EXPECT_EQ(sample({4, 3.9F, 2.1F}, row).token, 2);     // 2, 1.95, 2.1
    EXPECT_EQ(sample({-1, -1.5F, -1.9F}, row).token, 2);  // -2, -3, -1.9
}

TEST(SamplingTest, FrequencyPenaltyCountsGeneratedTokensOnly) {
    const std::vector<TokenCount> counts{{.token = 0, .generated = 3, .in_prompt = 9},
                                         {.token = 1, .generated = 0, .in_prompt = 9}};
    const SamplingRow row{.temperature = 0, .frequency_penalty = 0.5F, .counts = counts};
    EXPECT_EQ(sample({2.4F, 1}, row).token, 1);  // 0.9, 1
    EXPECT_EQ(sample({2.6F, 1}, row).token, 0);  // 1.1, 1
}

TEST(SamplingTest, PresencePenaltyIsTheSameForOneAndManyOccurrences) {
    const std::vector<TokenCount> counts{{.token = 0, .generated = 7, .in_prompt = 0},
                                         {.token = 1, .generated = 1, .in_prompt = 0},
                                         {.token = 2, .generated = 0, .in_prompt = 7}};
    const SamplingRow row{.temperature = 0, .presence_penalty = 1, .counts = counts};
    EXPECT_EQ(sample({3, 3.1F, 2}, row).token, 1);     // 2, 2.1, 2
    EXPECT_EQ(sample({3, 2.9F, 2.1F}, row).token, 2);  // 2, 1.9, 2.1
}

TEST(SamplingTest, BiasComesBeforeThePenalties) {
    const std::vector<LogitBias> bias{{.token = 0, .bias = 3}};
    const std::vector<TokenCount> counts{{.token = 0, .generated = 1, .in_prompt = 0}};
    const SamplingRow row{
        .temperature = 0, .repetition_penalty = 2, .bias = bias, .counts = counts};
    // (1 + 3) / 2 = 2 loses to 3; the other order, 1 / 2 + 3 = 3.5, would win.
    EXPECT_EQ(sample({1, 3}, row).token, 1);
}

TEST(SamplingTest, TopKKeepsExactlyTheKBestIds) {
    EXPECT_EQ(reachable({1, 1.5F, 0.9F, 1.4F, 1.3F}, {.top_k = 3}), (std::set{1, 3, 4}));
    EXPECT_EQ(reachable({1, 2, 1}, {.top_k = 1}), std::set{1});
}

TEST(SamplingTest, TopKKeepsTheLowestIdsOfATieAtItsBorder) {
    EXPECT_EQ(reachable({1, 1, 1, 1, 1.5F}, {.top_k = 3}), (std::set{0, 1, 4}));
}

TEST(SamplingTest, TopKOfZeroOrTheWholeVocabularyIsOff) {
    EXPECT_EQ(reachable({1, 1, 1}, {.top_k = 0}), (std::set{0, 1, 2}));
    EXPECT_EQ(reachable({1, 1, 1}, {.top_k = 3}), (std::set{0, 1, 2}));
    EXPECT_EQ(reachable({1, 1, 1}, {.top_k = 1000000}), (std::set{0, 1, 2}));
}

TEST(SamplingTest, TopPKeepsTheShortestPrefixThatReachesIt) {
    const std::vector<float> logits = logits_of({0.1F, 0.4F, 0.2F, 0.3F});
    EXPECT_EQ(reachable(logits, {.top_p = 0.39F}), std::set{1});
    EXPECT_EQ(reachable(logits, {.top_p = 0.41F}), (std::set{1, 3}));
    EXPECT_EQ(reachable(logits, {.top_p = 0.69F}), (std::set{1, 3}));
    EXPECT_EQ(reachable(logits, {.top_p = 0.71F}), (std::set{1, 2, 3}));
    EXPECT_EQ(reachable(logits, {.top_p = 1.0F}), (std::set{0, 1, 2, 3}));
}

TEST(SamplingTest, TopPOfZeroKeepsTheBestId) {
    EXPECT_EQ(reachable({1, 2, 2, 1}, {.top_p = 0}), std::set{1});
    EXPECT_EQ(reachable({1, 2, 2, 1}, {.top_k = 3, .top_p = 0}), std::set{1});
}

TEST(SamplingTest, TopPCountsTheMassThatTopKLeft) {
    // Of 0.4 and 0.3 the first holds 57 %, of all four 40 %.
    const std::vector<float> logits = logits_of({0.1F, 0.4F, 0.2F, 0.3F});
    EXPECT_EQ(reachable(logits, {.top_k = 2, .top_p = 0.5F}), std::set{1});
    EXPECT_EQ(reachable(logits, {.top_p = 0.5F}), (std::set{1, 3}));
}

TEST(SamplingTest, TopPFollowsTheTemperature) {
    const std::vector<float> logits = logits_of({0.4F, 0.3F, 0.3F});
    EXPECT_EQ(reachable(logits, {.temperature = 0.1F, .top_p = 0.8F}), std::set{0});
}

TEST(SamplingTest, MinPIsAShareOfTheBestProbability) {
    const std::vector<float> logits = logits_of({0.05F, 0.5F, 0.25F, 0.2F});
    EXPECT_EQ(reachable(logits, {.min_p = 0.45F}), (std::set{1, 2}));
    EXPECT_EQ(reachable(logits, {.min_p = 0.35F}), (std::set{1, 2, 3}));
    EXPECT_EQ(reachable(logits, {.top_k = 3, .min_p = 0.45F}), (std::set{1, 2}));
    EXPECT_EQ(reachable(logits, {.top_p = 0.99F, .min_p = 0.45F}), (std::set{1, 2}));
    EXPECT_EQ(reachable(logits, {.min_p = 1}), std::set{1});
}

TEST(SamplingTest, TheSameSeedAndIndexGiveTheSameTokenWhateverTheScratchSaw) {
    std::vector<float> logits(500);
    for (std::size_t i = 0; i < logits.size(); ++i)
        logits[i] = std::sin(static_cast<float>(i * i));
    SampleScratch used(500);
    for (std::uint64_t i = 0; i < 100; ++i) {
        const SamplingRow row{.top_k = static_cast<std::int32_t>(i % 3) * 20,
                              .top_p = i % 2 == 0 ? 1.0F : 0.8F,
                              .seed = 9,
                              .draw_index = i};
        EXPECT_EQ(sample_row(logits, row, 500, used).token, sample(logits, row).token);
    }
}

TEST(SamplingTest, LogitsStayAsTheyAre) {
    const std::vector<LogitBias> bias{{.token = 0, .bias = -100}};
    const std::vector<float> logits{1, 2, 3};
    sample(logits, {.bias = bias});
    EXPECT_THAT(logits, ElementsAre(1, 2, 3));
}

TEST(SamplingTest, AReservedScratchIsNotGrown) {
    SampleScratch scratch(4096);
    const std::vector<float> logits(4096, 1.0F);
    const std::vector<LogitBias> bias{{.token = 0, .bias = 1}};
    const auto capacities = [&] {
        return std::vector{scratch.adjusted.capacity(), scratch.weights.capacity(),
                           scratch.candidates.capacity()};
    };
    const std::vector<std::size_t> before = capacities();
    for (const SamplingRow& row : {SamplingRow{.bias = bias}, SamplingRow{.top_k = 4000},
                                   SamplingRow{.top_k = 1500}, SamplingRow{.top_p = 0.999F}})
        sample_row(logits, row, 4096, scratch);
    EXPECT_EQ(capacities(), before);
}

}  // namespace
}  // namespace kernels

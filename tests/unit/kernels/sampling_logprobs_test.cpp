// Log-probabilities of raw logits, against a softmax written out in double; and drafts counted as
// generated tokens in the penalties.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/sampling.h"

namespace kernels {
namespace {

using testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

RowLogprobs logprobs_of(const std::vector<float>& logits, std::int32_t drawn, std::int32_t top) {
    return row_logprobs(logits, static_cast<std::int32_t>(logits.size()), {.token = drawn}, top);
}

std::vector<std::int32_t> ids_of(const RowLogprobs& row) {
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < row.top_count; ++i)
        ids.push_back(row.top[static_cast<std::size_t>(i)].token);
    return ids;
}

double log_softmax(const std::vector<float>& logits, std::size_t id) {
    double total = 0;
    for (const float logit : logits)
        if (std::isfinite(logit)) total += std::exp(double{logit} - double{logits[id]});
    return -std::log(total);
}

TEST(LogprobsTest, AreTheLogSoftmaxBestFirst) {
    const std::vector<float> logits = {0.5F, 3.25F, -2.0F, 3.0F, 1.0F};
    const RowLogprobs row = logprobs_of(logits, 4, 3);
    EXPECT_THAT(ids_of(row), ElementsAre(1, 3, 4));
    EXPECT_NEAR(row.drawn, log_softmax(logits, 4), 1e-6);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(row.top[i].logprob,
                    log_softmax(logits, static_cast<std::size_t>(row.top[i].token)), 1e-6);
}

TEST(LogprobsTest, TiesGoToTheLowestId) {
    EXPECT_THAT(ids_of(logprobs_of({1, 2, 1, 2, 1, 2}, 0, 4)), ElementsAre(1, 3, 5, 0));
    EXPECT_THAT(ids_of(logprobs_of({5, 5, 5}, 2, 2)), ElementsAre(0, 1));
}

TEST(LogprobsTest, AsManyAsAskedAtMostTheVocabulary) {
    EXPECT_THAT(ids_of(logprobs_of({1, 3, 2}, 0, kTopLogprobsMax)), ElementsAre(1, 2, 0));
    const RowLogprobs none = logprobs_of({1, 3, 2}, 0, 0);
    EXPECT_EQ(none.top_count, 0);
    EXPECT_NEAR(none.drawn, log_softmax({1, 3, 2}, 0), 1e-6) << "the drawn one is always there";
}

TEST(LogprobsTest, LogitsThatAreNotFiniteDoNotExist) {
    const std::vector<float> logits = {kNan, 1.0F, kInfinity, 2.0F, -kInfinity};
    const RowLogprobs row = logprobs_of(logits, 1, 5);
    EXPECT_THAT(ids_of(row), ElementsAre(3, 1));
    EXPECT_NEAR(row.drawn, log_softmax({1.0F, 2.0F}, 0), 1e-6);
    EXPECT_EQ(logprobs_of({kNan, kNan}, 0, 2).top_count, 0);
}

TEST(LogprobsTest, PaddingOfTheTableDoesNotExist) {
    const std::vector<float> logits = {1.0F, 2.0F, 9.0F, 9.0F};
    const RowLogprobs row = row_logprobs(logits, 2, {.token = 1}, 4);
    EXPECT_THAT(ids_of(row), ElementsAre(1, 0));
    EXPECT_NEAR(row.drawn, log_softmax({1.0F, 2.0F}, 1), 1e-6);
}

TEST(LogprobsTest, LargeLogitsDoNotOverflow) {
    const RowLogprobs row = logprobs_of({3e38F, -3e38F, 3e38F}, 0, 2);
    EXPECT_THAT(ids_of(row), ElementsAre(0, 2));
    EXPECT_NEAR(row.drawn, -std::log(2.0), 1e-6);
}

TEST(LogprobsTest, AgreeWithAFullSortOfARealVocabulary) {
    std::vector<float> logits;
    std::uint32_t state = 7;
    for (int i = 0; i < 50000; ++i) {
        state = state * 1664525U + 1013904223U;
        logits.push_back(static_cast<float>(state >> 20) * 0.01F - 20.0F);  // many ties
    }
    std::vector<std::int32_t> order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i)
        order[i] = static_cast<std::int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    order.resize(kTopLogprobsMax);
    const RowLogprobs row = logprobs_of(logits, 17, kTopLogprobsMax);
    EXPECT_EQ(ids_of(row), order);
    EXPECT_NEAR(row.drawn, log_softmax(logits, 17), 1e-5);
}

TEST(LogprobsTest, SomebodyMustAsk) {
    std::vector<SamplingRow> rows(2);
    EXPECT_FALSE(wants_logprobs(rows));
    rows[1].top_logprobs = 0;
    EXPECT_TRUE(wants_logprobs(rows));
}

/// Greedy choices as one adjustment after another is made visible: the token and, by banning it,
/// the next best, and so on.
std::vector<std::int32_t> ranking(const std::vector<float>& logits, SamplingRow row) {
    row.temperature = 0.0F;
    std::vector<std::int32_t> banned;
    SampleScratch scratch;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        row.banned = banned;
        banned.push_back(
            sample_row(logits, row, static_cast<std::int32_t>(logits.size()), scratch).token);
    }
    return banned;
}

TEST(DraftPenaltyTest, DraftsCountAsGeneratedTokens) {
    // 4 twice and 6 once drafted; 4 was generated once before, 6 stood in the prompt, 2 is new.
    const std::vector<float> logits = {1.0F, 1.9F, 2.2F, 0.8F, 2.6F, 1.4F, 2.4F, -0.5F};
    const std::vector<std::int32_t> drafted = {4, 6, 4, 2};
    const std::vector<TokenCount> before = {{4, 1, 0}, {6, 0, 2}, {7, 1, 0}};
    const std::vector<TokenCount> after = {{4, 3, 0}, {6, 1, 2}, {7, 1, 0}, {2, 1, 0}};
    const SamplingRow kinds[] = {
        {.frequency_penalty = 0.31F},
        {.presence_penalty = 0.77F},
        {.repetition_penalty = 1.37F},
        {.repetition_penalty = 1.2F, .presence_penalty = 0.1F, .frequency_penalty = 0.2F}};
    for (SamplingRow row : kinds) {
        row.counts = before;
        const auto without = ranking(logits, row);
        row.drafted = drafted;
        const auto with_drafts = ranking(logits, row);
        row.drafted = {};
        row.counts = after;
        EXPECT_EQ(with_drafts, ranking(logits, row));
        EXPECT_NE(with_drafts, without) << "the drafts must matter here";
    }
}

TEST(DraftPenaltyTest, ADrawIsTheSameToTheBit) {
    // 400 ids whose weights depend on the penalties; every draw must fall alike.
    std::vector<float> logits;
    for (int i = 0; i < 400; ++i)
        logits.push_back(std::sin(static_cast<float>(i)));
    const std::vector<std::int32_t> drafted = {17, 3, 17, 200};
    const std::vector<TokenCount> before = {{3, 2, 1}, {5, 1, 0}};
    const std::vector<TokenCount> after = {{3, 3, 1}, {5, 1, 0}, {17, 2, 0}, {200, 1, 0}};
    SampleScratch scratch;
    SamplingRow row{
        .repetition_penalty = 1.3F, .presence_penalty = 0.2F, .frequency_penalty = 0.4F};
    for (row.draw_index = 0; row.draw_index < 500; ++row.draw_index) {
        row.counts = before;
        row.drafted = drafted;
        const SampledToken a = sample_row(logits, row, 400, scratch);
        row.counts = after;
        row.drafted = {};
        EXPECT_EQ(a.token, sample_row(logits, row, 400, scratch).token) << row.draw_index;
    }
}

TEST(DraftPenaltyTest, DraftsWithoutCountsAndOutsideTheVocabulary) {
    const std::vector<std::int32_t> drafted = {1, 99, -1};
    SampleScratch scratch;
    const std::vector<float> logits = {1.0F, 1.2F};
    EXPECT_EQ(
        sample_row(logits, {.temperature = 0.0F, .presence_penalty = 0.5F, .drafted = drafted}, 2,
                   scratch)
            .token,
        0);
}

}  // namespace
}  // namespace kernels

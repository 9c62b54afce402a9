// How many tokens to draft, driven by a clock that the test turns: a machine with known times and
// drafts with known luck.
#include "replica/engine/draft_policy.h"

#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace replica {
namespace {

using Seconds = DraftPolicy::Seconds;

TEST(RowTimesTest, TakesTheMedianAndDrawsALineBetween) {
    RowTimes times(100);
    EXPECT_FALSE(times.estimate(5).has_value());
    for (const double ms : {10.0, 10.0, 500.0, 11.0, 10.0})
        times.record(10, Seconds(ms));
    EXPECT_NEAR(times.estimate(10)->count(), 10.0, 1e-5);
    EXPECT_NEAR(times.estimate(1)->count(), 10.0, 1e-5);
    times.record(30, Seconds(50));
    EXPECT_NEAR(times.estimate(20)->count(), 30.0, 1e-5);
    EXPECT_NEAR(times.estimate(1000)->count(), 50.0, 1e-5);
    times.record(101, Seconds(1));
    EXPECT_EQ(times.measured(101), 0);
    EXPECT_EQ(times.measured(10), 5);
}

/// A device whose verify row costs `row` plain steps, a draft `draft`; draft j comes true with
/// alpha[j] given those before.
struct Machine {
    double row = 0.05;
    double draft = 0.08;
    std::vector<double> alpha = {0.8, 0.7, 0.6, 0.5};
    std::int32_t sequences = 1;
};

struct Result {
    double tokens = 0, seconds = 0;
    std::int32_t last_drafts = 0;
    double tokens_per_plain_step() const { return tokens / seconds; }
};

Result drive(DraftPolicy& policy, const Machine& machine, std::int32_t rounds,
             std::uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::vector<Acceptance> requests(static_cast<std::size_t>(machine.sequences));
    std::vector<const Acceptance*> batch;
    for (const Acceptance& request : requests)
        batch.push_back(&request);
    Result result;
    std::int32_t drafts = 0;
    for (std::int32_t round = 0; round < rounds; ++round) {
        const std::int32_t rows = machine.sequences * (1 + drafts);
        const double step = 1.0 + machine.row * (rows - machine.sequences);
        policy.record_trunk(rows, Seconds(step));
        result.seconds += step;
        for (Acceptance& request : requests) {
            std::int32_t accepted = 0;
            while (accepted < drafts &&
                   uniform(random) < machine.alpha[static_cast<std::size_t>(accepted)])
                ++accepted;
            request.record(drafts, accepted);
            policy.record_acceptance(drafts, accepted);
            result.tokens += (1.0 + accepted) / machine.sequences;
        }
        drafts = policy.choose(batch);
        policy.record_drafting(machine.sequences, drafts, Seconds(machine.draft * drafts));
        result.seconds += machine.draft * drafts;
    }
    result.last_drafts = drafts;
    return result;
}

DraftPolicy make_policy(std::int32_t most = 4, std::int32_t batch_max = 8) {
    return DraftPolicy({.draft_tokens_max = most, .batch_max = batch_max, .rows_max = 64});
}

TEST(DraftPolicyTest, DraftsAsFarAsItPays) {
    DraftPolicy policy = make_policy();
    const Result cheap = drive(policy, {}, 2000);
    // Four drafts yield 2.86 tokens for 1.52 steps, three 2.70 for 1.39; the rest is the probes.
    EXPECT_GT(cheap.tokens_per_plain_step(), 1.80);
    EXPECT_NEAR(policy.gain_ratio(), 1.9, 0.15);
    EXPECT_GE(cheap.last_drafts, 3);
}

TEST(DraftPolicyTest, AnUnluckyDrafterCostsAtMostThreePercent) {
    DraftPolicy policy = make_policy();
    const Machine unlucky{.row = 0.1, .draft = 0.1, .alpha = {0.05, 0.05, 0.05, 0.05}};
    const Result result = drive(policy, unlucky, 3000);
    EXPECT_EQ(result.last_drafts, 0);
    EXPECT_GT(result.tokens_per_plain_step(), 0.97);
    EXPECT_LT(policy.gain_ratio(), kStopGain);
}

TEST(DraftPolicyTest, AnExpensiveVerifyStepSwitchesItOff) {
    DraftPolicy policy = make_policy();
    const Machine expensive{.row = 0.9, .draft = 0.3};
    const Result result = drive(policy, expensive, 3000);
    EXPECT_EQ(result.last_drafts, 0);
    EXPECT_GT(result.tokens_per_plain_step(), 0.97);
    EXPECT_GT(policy.cost_ratio(), 1.5);
}

TEST(DraftPolicyTest, ComesBackWhenLuckDoes) {
    DraftPolicy policy = make_policy();
    drive(policy, {.alpha = {0.05, 0.05, 0.05, 0.05}}, 2000, 2);
    const Result result = drive(policy, {.alpha = {0.95, 0.9, 0.9, 0.9}}, 40000, 3);
    EXPECT_GE(result.last_drafts, 2);
}

TEST(DraftPolicyTest, PicksTheShortDraftWhenLaterOnesFail) {
    DraftPolicy policy = make_policy();
    const Result result =
        drive(policy, {.row = 0.2, .draft = 0.1, .alpha = {0.95, 0.1, 0.1, 0.1}}, 2000);
    EXPECT_EQ(result.last_drafts, 1);
}

TEST(DraftPolicyTest, NeverInALargerBatchThanAllowedNorBeyondTheRowsOfAStep) {
    DraftPolicy policy = make_policy(4, 2);
    Acceptance request;
    const std::vector<const Acceptance*> three(3, &request);
    EXPECT_EQ(policy.choose(three), 0);
    EXPECT_EQ(policy.choose({}), 0);
    DraftPolicy narrow(
        {.draft_tokens_max = 4, .batch_max = 8, .rows_max = 9, .is_always_on = true});
    EXPECT_EQ(narrow.choose(three), 2);
    const std::vector<const Acceptance*> eight(8, &request);
    EXPECT_EQ(narrow.choose(eight), 0);
}

TEST(DraftPolicyTest, KeepsToTheRuleForLargerBatches) {
    DraftPolicy policy = make_policy();
    const Result result = drive(policy, {.row = 0.02, .sequences = 4}, 2000);
    EXPECT_GT(result.tokens_per_plain_step(), 1.3);
    EXPECT_GE(result.last_drafts, 1);
}

TEST(DraftPolicyTest, AcceptanceIsGivenThoseBefore) {
    DraftPolicy policy = make_policy();
    for (int i = 0; i < 500; ++i) {
        policy.record_acceptance(3, 1);  // the second never comes true, the third is never reached
    }
    EXPECT_NEAR(policy.acceptance()[0], 1.0, 1e-9);
    EXPECT_NEAR(policy.acceptance()[1], 0.0, 1e-9);
    EXPECT_EQ(policy.acceptance()[2], 0.0);
}

}  // namespace
}  // namespace replica

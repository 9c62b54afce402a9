// Options cut to the runner, and refusals that name the number.
#include "replica/engine/engine_limits.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace replica {
namespace {

RunnerLimits runner_limits() {
    return {.step = {.rows = 128,
                     .seqs = 8,
                     .logit_rows = 8,
                     .blocks_per_seq = 100,
                     .vocabulary = 1000},
            .blocks_total = 200,
            .block_tokens = 16,
            .state_slots = 8,
            .has_recurrent_state = true,
            .max_model_len = 1000};
}

TEST(EngineLimitsTest, TakesTheOptionsWhereTheRunnerAllows) {
    const EngineLimits limits = engine_limits(
        runner_limits(), {.sequences_max = 4, .waiting_max = 16, .step_token_budget = 64});
    EXPECT_EQ(limits.sequences_max, 4);
    EXPECT_EQ(limits.waiting_max, 16);
    EXPECT_EQ(limits.token_budget, 64);
    EXPECT_EQ(limits.max_model_len, 1000);
    EXPECT_EQ(limits.requests_max(), 20);
}

TEST(EngineLimitsTest, NoMoreSequencesThanSlotsOrRows) {
    RunnerLimits runner = runner_limits();
    EXPECT_EQ(engine_limits(runner, {.sequences_max = 50}).sequences_max, 8);
    runner.state_slots = 3;
    EXPECT_EQ(engine_limits(runner, {.sequences_max = 50}).sequences_max, 3);
    runner.has_recurrent_state = false;
    EXPECT_EQ(engine_limits(runner, {.sequences_max = 50}).sequences_max, 8);
    runner.step.rows = 2;
    EXPECT_EQ(engine_limits(runner, {.sequences_max = 50}).sequences_max, 2);
}

TEST(EngineLimitsTest, TheBudgetLetsEverySequenceDecode) {
    EXPECT_EQ(engine_limits(runner_limits(), {.step_token_budget = 1}).token_budget, 8);
    EXPECT_EQ(engine_limits(runner_limits(), {.step_token_budget = 9999}).token_budget, 128);
}

TEST(EngineLimitsTest, TheContextFitsIntoThePool) {
    RunnerLimits runner = runner_limits();
    runner.blocks_total = 20;
    EXPECT_EQ(engine_limits(runner, {}).max_model_len, 320);
    runner.step.blocks_per_seq = 10;
    EXPECT_EQ(engine_limits(runner, {}).max_model_len, 160);
}

TEST(EngineLimitsTest, RefusesWhatCouldNeverRun) {
    RunnerLimits runner = runner_limits();
    runner.blocks_total = 0;
    EXPECT_THROW(engine_limits(runner, {}), std::invalid_argument);
    runner = runner_limits();
    runner.state_slots = 0;
    EXPECT_THROW(engine_limits(runner, {}), std::invalid_argument);
    runner = runner_limits();
    runner.max_model_len = 1;
    EXPECT_THROW(engine_limits(runner, {}), std::invalid_argument);
    try {
        engine_limits(runner_limits(), {.sequences_max = 0});
        FAIL() << "accepted";
    } catch (const std::invalid_argument& error) {
        EXPECT_STREQ(error.what(), "engine: sequences_max is 0, it must be at least 1");
    }
}

}  // namespace
}  // namespace replica

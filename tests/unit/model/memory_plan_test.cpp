// The memory plan is arithmetic on shapes: checked against sums written out by hand, and for its
// refusals.
#include "replica/model/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace replica {
namespace {

constexpr std::uint64_t kPlenty = 1ULL << 40;

/// Two layers of the demo model's shape: one delta net, one attention.
ModelConfig small_hybrid() {
    ModelConfig config;
    config.arch = Arch::kQwen35;
    config.width = 256;
    config.vocabulary = 4096;
    config.context_train = 32768;
    config.head_dim = 256;
    config.n_rot = 64;
    config.has_output_gate = true;
    config.delta_net =
        DeltaNetConfig{.state_size = 128, .key_heads = 4, .value_heads = 8, .conv_kernel = 4};
    config.layers = {{.kind = LayerKind::kDeltaNet, .heads = 4, .kv_heads = 2, .ff_width = 1024},
                     {.kind = LayerKind::kAttention, .heads = 4, .kv_heads = 2, .ff_width = 1024}};
    return config;
}

TEST(MemoryPlanTest, CountsPagesSlotsAndBytes) {
    const auto plan = plan_memory(
        small_hybrid(), {.context = 1000, .sequences_max = 4, .block_tokens = 64}, kPlenty);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->limits.step.blocks_per_seq, 16);  // 1000 tokens in pages of 64
    EXPECT_EQ(plan->limits.blocks_total, 64);
    EXPECT_EQ(plan->limits.state_slots, 4);
    EXPECT_EQ(plan->limits.max_model_len, 1000);
    EXPECT_EQ(plan->kv_bytes,
              64ULL * 64 * 2 * 2 * 256 * 2);  // pages x tokens x (k, v) x heads x D x f16
    EXPECT_EQ(plan->state_bytes, 5ULL * (1024 * 128 + 3 * 2048) * 4);  // slots and scratch
    EXPECT_EQ(plan->rope_bytes, 1000ULL * 64 * 4);
}

TEST(MemoryPlanTest, DenseModelsHaveNoStateSlots) {
    ModelConfig config = small_hybrid();
    config.delta_net.reset();
    config.layers[0].kind = LayerKind::kAttention;
    const auto plan = plan_memory(config, {.context = 128}, kPlenty);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->limits.state_slots, 0);
    EXPECT_FALSE(plan->limits.has_recurrent_state);
    EXPECT_EQ(plan->state_bytes, 0U);
}

TEST(MemoryPlanTest, WithoutAFlagTheTrainedContextIsServedUpToTheDefaultBound) {
    ModelConfig config = small_hybrid();
    config.context_train = 8192;
    EXPECT_EQ(plan_memory(config, {}, kPlenty)->limits.max_model_len, 8192);
    config.context_train = 262144;
    EXPECT_EQ(plan_memory(config, {}, kPlenty)->limits.max_model_len, kContextDefaultMax);
}

TEST(MemoryPlanTest, RefusesAContextBeyondTheTrainedOne) {
    const auto plan = plan_memory(small_hybrid(), {.context = 40000}, kPlenty);
    ASSERT_FALSE(plan.has_value());
    EXPECT_THAT(plan.error().text(), testing::HasSubstr("trained for 32768"));
}

TEST(MemoryPlanTest, RefusalNamesTheLargestContextThatFitsAndItDoesFit) {
    const RunnerOptions options{.context = 32768, .sequences_max = 4};
    const std::uint64_t all = plan_memory(small_hybrid(), options, kPlenty)->total_bytes();
    const auto refused = plan_memory(small_hybrid(), options, all / 2);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().kind, ModelErrorKind::kMemory);
    const std::string text = refused.error().text();
    const std::string phrase = "largest context that fits is ";
    ASSERT_THAT(text, testing::HasSubstr(phrase));
    RunnerOptions smaller = options;
    smaller.context = std::stoi(text.substr(text.find(phrase) + phrase.size()));
    EXPECT_GT(smaller.context, 0);
    EXPECT_TRUE(plan_memory(small_hybrid(), smaller, all / 2).has_value());
    smaller.context += options.block_tokens;
    EXPECT_FALSE(plan_memory(small_hybrid(), smaller, all / 2).has_value());
}

TEST(MemoryPlanTest, SaysSoWhenNothingFits) {
    const auto refused = plan_memory(small_hybrid(), {.context = 64}, 1000);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().text(), testing::HasSubstr("no context fits"));
}

}  // namespace
}  // namespace replica

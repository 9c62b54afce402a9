// The memory plan is arithmetic on shapes: checked against sums written out by hand, over models of
// real size, and for its refusals.
#include "replica/model/memory_plan.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace replica {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kGib = 1ULL << 30;
const MemorySupply kPlenty{.free_bytes = 1ULL << 42};
constexpr std::int32_t kHuge = std::numeric_limits<std::int32_t>::max();

struct Shape {
    std::int32_t layers, width, ff, heads, kv_heads, key_heads, value_heads, vocabulary, context;
};

/// Three delta-net layers, then one attention layer, repeated; one MTP block.
ModelConfig hybrid(const Shape& shape) {
    ModelConfig config;
    config.arch = Arch::kQwen35;
    config.width = shape.width;
    config.vocabulary = shape.vocabulary;
    config.context_train = shape.context;
    config.head_dim = 256;
    config.n_rot = 64;
    config.has_output_gate = true;
    config.delta_net = DeltaNetConfig{.state_size = 128,
                                      .key_heads = shape.key_heads,
                                      .value_heads = shape.value_heads,
                                      .conv_kernel = 4};
    const LayerConfig attention{.kind = LayerKind::kAttention,
                                .heads = shape.heads,
                                .kv_heads = shape.kv_heads,
                                .ff_width = shape.ff};
    for (std::int32_t i = 0; i < shape.layers; ++i) {
        config.layers.push_back(attention);
        if (i % 4 != 3) config.layers.back().kind = LayerKind::kDeltaNet;
    }
    config.mtp_layers = {attention};
    return config;
}

/// The demo model's widths, two layers.
ModelConfig small_hybrid() {
    ModelConfig config = hybrid({.layers = 4,
                                 .width = 256,
                                 .ff = 1024,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .key_heads = 4,
                                 .value_heads = 8,
                                 .vocabulary = 4096,
                                 .context = 32768});
    config.layers.erase(config.layers.begin(), config.layers.begin() + 2);
    return config;
}

/// The 27B model: 64 layers, 16 of them attention.
ModelConfig large_hybrid() {
    return hybrid({.layers = 64,
                   .width = 5120,
                   .ff = 17408,
                   .heads = 24,
                   .kv_heads = 4,
                   .key_heads = 16,
                   .value_heads = 48,
                   .vocabulary = 248320,
                   .context = 262144});
}
constexpr std::uint64_t kLargeWeights = 15ULL * kGib;  // IQ4_XS

std::int32_t number_after(const std::string& text, const std::string& phrase) {
    const std::size_t at = text.find(phrase);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + phrase.size()));
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
    EXPECT_EQ(plan->replay_bytes, 0U);
    EXPECT_EQ(plan->snapshot_bytes, plan->limits.snapshot_bytes) << "one place at least";
    EXPECT_EQ(plan->reserve_bytes, kGib) << "a 32nd, at most 1 GiB of a GPU";
    EXPECT_EQ(plan->device_bytes(), plan->kv_bytes + plan->state_bytes + plan->rope_bytes +
                                        plan->buffer_bytes + plan->reserve_bytes);
}

TEST(MemoryPlanTest, DraftingAddsRingsReplayHiddenRowsAndTheBlocksPages) {
    const RunnerOptions plain{.context = 640, .sequences_max = 4, .step_rows_max = 16};
    RunnerOptions drafting = plain;
    drafting.draft_tokens_max = 3;
    const MemoryPlan without = *plan_memory(small_hybrid(), plain, kPlenty);
    const MemoryPlan with = *plan_memory(small_hybrid(), drafting, kPlenty);
    EXPECT_FALSE(without.has_mtp);
    EXPECT_TRUE(with.has_mtp);
    EXPECT_EQ(without.limits.draft_tokens_max, 0);
    EXPECT_EQ(with.limits.draft_tokens_max, 3);
    EXPECT_EQ(with.limits.kept_rows, 16);
    EXPECT_EQ(with.limits.step.logit_rows, 16) << "four sequences of 1 + 3 rows";
    EXPECT_EQ(without.limits.step.logit_rows, 4);
    EXPECT_EQ(with.kv_bytes, 2 * without.kv_bytes) << "one attention layer and the MTP block";
    EXPECT_EQ(with.state_bytes, 5ULL * (1024 * 128 + 7 * 2048) * 4);
    EXPECT_EQ(with.replay_bytes, 5ULL * 4 * (512 + 1024 + 8) * 4);
    // Kept hidden rows, the joined and the block's hidden rows, and twelve more rows of logits.
    EXPECT_EQ(with.buffer_bytes - without.buffer_bytes,
              4ULL * (5 * 16 * 256 + 16 * 3 * 256 + 12 * 4096));
}

TEST(MemoryPlanTest, WithoutAnMtpBlockNothingIsDrafted) {
    ModelConfig config = small_hybrid();
    config.mtp_layers.clear();
    const MemoryPlan plan = *plan_memory(config, {.context = 64, .draft_tokens_max = 4}, kPlenty);
    EXPECT_EQ(plan.limits.draft_tokens_max, 0);
    EXPECT_EQ(plan.limits.kept_rows, 0);
    EXPECT_EQ(plan.replay_bytes, 0U);
    EXPECT_FALSE(plan.has_mtp);
}

TEST(MemoryPlanTest, MtpMemoryMayBeAskedForWithoutDrafting) {
    const MemoryPlan plan =
        *plan_memory(small_hybrid(), {.context = 64, .with_mtp = true}, kPlenty);
    EXPECT_TRUE(plan.has_mtp);
    EXPECT_EQ(plan.limits.draft_tokens_max, 0);
}

TEST(MemoryPlanTest, DraftsAreBoundedAndStepsHoldWhatVerifies) {
    const MemoryPlan plan = *plan_memory(small_hybrid(),
                                         {.context = 64,
                                          .sequences_max = 100,
                                          .step_rows_max = 8,
                                          .draft_tokens_max = 1000,
                                          .draft_batch_max = 16},
                                         kPlenty);
    EXPECT_EQ(plan.limits.draft_tokens_max, kDraftTokensMax);
    EXPECT_EQ(plan.limits.step.logit_rows, 100 + 16 * kDraftTokensMax);
    EXPECT_EQ(plan.limits.step.rows, 100 + 16 * kDraftTokensMax);
}

TEST(MemoryPlanTest, SnapshotsAreAsManyAsTheirMemoryHolds) {
    const std::uint64_t slot = (1024ULL * 128 + 3 * 2048) * 4;
    RunnerOptions options{.context = 64, .snapshot_memory_bytes = 10 * slot + slot / 2};
    MemorySupply supply = kPlenty;
    const MemoryPlan device = *plan_memory(small_hybrid(), options, supply);
    EXPECT_EQ(device.limits.snapshots, 10);
    EXPECT_EQ(device.limits.snapshot_bytes, slot);
    EXPECT_EQ(device.snapshot_bytes, 10 * slot);
    supply.is_host = true;
    const MemoryPlan host = *plan_memory(small_hybrid(), options, supply);
    EXPECT_EQ(host.device_bytes() - host.reserve_bytes,
              device.device_bytes() - device.reserve_bytes + 10 * slot)
        << "on the CPU they come out of the same memory";
    options.snapshot_memory_bytes = slot - 1;
    EXPECT_EQ(plan_memory(small_hybrid(), options, supply)->limits.snapshots, 1)
        << "the choices of a request share their prompt through it";
}

TEST(MemoryPlanTest, DenseModelsHaveNoStateSlots) {
    ModelConfig config = small_hybrid();
    config.delta_net.reset();
    config.layers[0].kind = LayerKind::kAttention;
    const auto plan =
        plan_memory(config, {.context = 128, .snapshot_memory_bytes = 1ULL << 30}, kPlenty);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->limits.state_slots, 0);
    EXPECT_FALSE(plan->limits.has_recurrent_state);
    EXPECT_EQ(plan->state_bytes, 0U);
    EXPECT_EQ(plan->limits.snapshots, 0);
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
    EXPECT_THAT(plan.error().text(), HasSubstr("trained for 32768"));
}

TEST(MemoryPlanTest, PagesAreAsManyAsFitBetweenOneContextAndAll) {
    const RunnerOptions options{.context = 32768, .sequences_max = 4};
    const MemoryPlan all = *plan_memory(small_hybrid(), options, kPlenty);
    ASSERT_EQ(all.limits.blocks_total, 4 * 512);
    const std::uint64_t page = all.kv_bytes / 2048;
    const std::uint64_t rest = all.device_bytes() - all.kv_bytes - all.reserve_bytes;
    std::int32_t last = 0;
    for (std::uint64_t pages = 512; pages <= 2100; pages += 97) {
        // Free memory whose 31/32 hold the rest and so many pages, and not one more.
        const MemorySupply supply{.free_bytes = (rest + pages * page + page / 2) * 32 / 31};
        const auto plan = plan_memory(small_hybrid(), options, supply);
        ASSERT_TRUE(plan.has_value()) << pages;
        EXPECT_EQ(plan->limits.blocks_total, std::min<std::int32_t>(int(pages), 2048));
        EXPECT_LE(plan->device_bytes(), supply.free_bytes);
        EXPECT_GE(plan->limits.blocks_total, last) << "more memory never means fewer pages";
        last = plan->limits.blocks_total;
    }
    const MemorySupply little{.free_bytes = (rest + 511 * page) * 32 / 31};
    EXPECT_FALSE(plan_memory(small_hybrid(), options, little).has_value());
}

TEST(MemoryPlanTest, AFlagFixesThePool) {
    RunnerOptions options{.context = 1024, .sequences_max = 8, .kv_tokens = 4000};
    EXPECT_EQ(plan_memory(small_hybrid(), options, kPlenty)->limits.blocks_total, 63);
    options.kv_tokens = 1023;
    EXPECT_EQ(plan_memory(small_hybrid(), options, kPlenty)->limits.max_model_len, 1023)
        << "one sequence holds no more than the pool does";
    options.kv_tokens = 1LL << 40;
    const auto absurd = plan_memory(small_hybrid(), options, {.free_bytes = 64 * kGib});
    ASSERT_FALSE(absurd.has_value());
    EXPECT_THAT(absurd.error().text(), HasSubstr("the device has 64.00 GiB"));
}

TEST(MemoryPlanTest, RefusalNamesTheLargestContextThatFitsAndItDoesFit) {
    const RunnerOptions options{.context = 32768, .sequences_max = 4};
    const MemorySupply supply{.free_bytes = 60 << 20};
    const auto refused = plan_memory(small_hybrid(), options, supply);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().kind, ModelErrorKind::kMemory);
    const std::string text = refused.error().text();
    EXPECT_THAT(text, testing::StartsWith("context 32768 with 4 sequences: needs 0."));
    EXPECT_THAT(text, HasSubstr(" GiB, the device has 0.06 GiB; largest context that fits is "));
    RunnerOptions smaller = options;
    smaller.context = number_after(text, "largest context that fits is ");
    EXPECT_GT(smaller.context, 0);
    EXPECT_EQ(smaller.context % options.block_tokens, 0);
    EXPECT_TRUE(plan_memory(small_hybrid(), smaller, supply).has_value());
    smaller.context += options.block_tokens;
    EXPECT_FALSE(plan_memory(small_hybrid(), smaller, supply).has_value());
}

TEST(MemoryPlanTest, SaysSoWhenNothingFits) {
    const auto refused = plan_memory(small_hybrid(), {.context = 64}, {.free_bytes = 1000});
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().text(), HasSubstr("no context fits"));
}

TEST(MemoryPlanTest, WeightsAreTakenOutOfWhatIsFree) {
    const RunnerOptions options{.context = 4096};
    EXPECT_TRUE(plan_memory(small_hybrid(), options, {.free_bytes = kGib}).has_value());
    const auto refused = plan_memory(small_hybrid(), options,
                                     {.free_bytes = kGib, .weight_bytes = kGib - (1 << 20)});
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().text(), HasSubstr("no context fits"));
}

TEST(MemoryPlanTest, TheBackendIsAskedForItsScratchByTheLimitsOfThePlan) {
    const RunnerOptions options{.context = 4096, .sequences_max = 3, .step_rows_max = 200};
    kernels::StepLimits asked;
    MemorySupply supply{.free_bytes = 8 * kGib, .inputs_max = 1024};
    const MemoryPlan without = *plan_memory(small_hybrid(), options, supply);
    supply.scratch_bytes = [&](const kernels::StepLimits& limits) {
        asked = limits;
        return kGib;
    };
    const MemoryPlan with = *plan_memory(small_hybrid(), options, supply);
    EXPECT_EQ(with.scratch_bytes, kGib);
    EXPECT_EQ(with.device_bytes(), without.device_bytes() + kGib);
    EXPECT_EQ(asked.rows, 200);
    EXPECT_EQ(asked.seqs, 3);
    EXPECT_EQ(asked.inputs_max, 1024);
    EXPECT_EQ(asked.vocabulary, 4096);
    EXPECT_EQ(asked.blocks_per_seq, 64);
    supply.free_bytes = kGib;
    const auto refused = plan_memory(small_hybrid(), options, supply);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().text(), HasSubstr("no context fits"));
}

TEST(MemoryPlanTest, WhatLoadingTakesIsSparedUntilTheWeightsAreThere) {
    const RunnerOptions options{.context = 4096};
    MemorySupply supply{.free_bytes = 8 * kGib, .weight_bytes = kGib};
    const std::uint64_t bytes = plan_memory(small_hybrid(), options, supply)->device_bytes();
    supply.loading_bytes = 64 << 20;
    EXPECT_EQ(plan_memory(small_hybrid(), options, supply)->device_bytes(), bytes + (64 << 20));
}

TEST(MemoryPlanTest, TheLargeModelOnRealCards) {
    const RunnerOptions options{
        .context = 32768, .sequences_max = 8, .step_rows_max = 512, .draft_tokens_max = 3};
    // An H200: everything fits in whole. A token is 64 KiB of KV and 4 KiB for the MTP block.
    const MemorySupply large{.free_bytes = 139 * kGib, .weight_bytes = kLargeWeights};
    const MemoryPlan whole = *plan_memory(large_hybrid(), options, large);
    EXPECT_EQ(whole.limits.blocks_total, 8 * 512);
    EXPECT_EQ(whole.kv_bytes, 8ULL * 32768 * (64 + 4) * 1024);
    // 144 MiB of states and rings of 7 rows of 10240 in 48 layers, for eight slots and scratch.
    EXPECT_EQ(whole.state_bytes, 9ULL * 48 * (6144 * 128 + 7 * 10240) * 4);
    EXPECT_EQ(whole.replay_bytes, 9ULL * 48 * 4 * (2048 + 6144 + 48) * 4);

    // 32 GiB: the pool shrinks, but holds at least one context.
    const MemorySupply small{.free_bytes = 31 * kGib, .weight_bytes = kLargeWeights};
    const MemoryPlan part = *plan_memory(large_hybrid(), options, small);
    EXPECT_LT(part.limits.blocks_total, 8 * 512);
    EXPECT_GE(part.limits.blocks_total, 512);
    EXPECT_LE(part.device_bytes(), small.free_bytes);
    EXPECT_GT(part.device_bytes() + part.kv_bytes / 512, small.free_bytes) << "nearly full";

    // The trained context of one sequence needs 17 GiB there.
    RunnerOptions whole_context = options;
    whole_context.context = 262144;
    const auto refused = plan_memory(large_hybrid(), whole_context, small);
    ASSERT_FALSE(refused.has_value());
    const std::int32_t fits = number_after(refused.error().text(), "largest context that fits is ");
    EXPECT_GT(fits, 32768);
    EXPECT_LT(fits, 262144);
    EXPECT_TRUE(plan_memory(large_hybrid(), whole_context, large).has_value());

    // 16 GiB hold the weights alone.
    const auto none = plan_memory(large_hybrid(), options,
                                  {.free_bytes = 16 * kGib, .weight_bytes = kLargeWeights});
    ASSERT_FALSE(none.has_value());
    EXPECT_THAT(none.error().text(), HasSubstr("no context fits"));
}

TEST(MemoryPlanTest, MoreOfAnythingNeverNeedsLess) {
    const auto bytes = [](const RunnerOptions& options) {
        const auto plan = plan_memory(large_hybrid(), options, kPlenty);
        return plan ? plan->device_bytes() : std::numeric_limits<std::uint64_t>::max();
    };
    const RunnerOptions base{.context = 8192, .sequences_max = 4, .draft_tokens_max = 1};
    std::uint64_t last = 0;
    for (const std::int32_t context : {64, 65, 1000, 8192, 100000, 262144}) {
        RunnerOptions options = base;
        options.context = context;
        EXPECT_GE(bytes(options), last) << context;
        last = bytes(options);
    }
    last = 0;
    for (const std::int32_t sequences : {1, 2, 4, 5, 64, 1000, kHuge}) {
        RunnerOptions options = base;
        options.sequences_max = sequences;
        EXPECT_GE(bytes(options), last) << sequences;
        last = bytes(options);
    }
    last = 0;
    for (const std::int32_t drafts : {0, 1, 2, 8, 9, kHuge}) {
        RunnerOptions options = base;
        options.draft_tokens_max = drafts;
        EXPECT_GE(bytes(options), last) << drafts;
        last = bytes(options);
    }
}

TEST(MemoryPlanTest, AbsurdFlagsAreRefusedNotWrappedAround) {
    RunnerOptions options{.context = 262144,
                          .sequences_max = kHuge,
                          .step_rows_max = kHuge,
                          .draft_tokens_max = kHuge,
                          .draft_batch_max = kHuge,
                          .snapshot_memory_bytes = std::numeric_limits<std::uint64_t>::max()};
    const MemorySupply supply{
        .free_bytes = 141 * kGib, .weight_bytes = kLargeWeights, .is_host = true};
    const auto refused = plan_memory(large_hybrid(), options, supply);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().text(), HasSubstr("no context fits"));
    options.kv_tokens = std::numeric_limits<std::int64_t>::max();
    EXPECT_FALSE(plan_memory(large_hybrid(), options, supply).has_value());
    options = {.context = 4096, .block_tokens = kHuge};  // one page, larger than any sequence
    EXPECT_FALSE(plan_memory(large_hybrid(), options, supply).has_value());
}

TEST(MemoryPlanTest, TheFlagThatAsksForTooMuchIsNamed) {
    const MemorySupply supply{.free_bytes = 1ULL << 30, .is_host = true};
    const auto pool = plan_memory(
        small_hybrid(), {.context = 64, .sequences_max = 1, .kv_tokens = 1'000'000'000}, supply);
    ASSERT_FALSE(pool.has_value());
    EXPECT_THAT(pool.error().text(), testing::StartsWith("a KV pool of 1000000000 tokens: needs "));
    EXPECT_THAT(pool.error().text(), HasSubstr("kv_tokens"));
    const auto checkpoints = plan_memory(
        small_hybrid(), {.context = 64, .sequences_max = 1, .snapshot_memory_bytes = 900ULL << 30},
        supply);
    ASSERT_FALSE(checkpoints.has_value());
    EXPECT_THAT(checkpoints.error().text(), HasSubstr("checkpoint_memory_mib"));
}

TEST(MemoryPlanTest, WhatNoRetryCanHelpIsAMistakeInTheFlags) {
    const auto context = plan_memory(small_hybrid(), {.context = 100'000'000}, kPlenty);
    ASSERT_FALSE(context.has_value());
    EXPECT_EQ(context.error().kind, ModelErrorKind::kFlags);
}

}  // namespace
}  // namespace replica

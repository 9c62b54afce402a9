// The descriptor of a mixed step, field by field, and what a second step leaves behind.
#include "replica/engine/step_builder.h"

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/recording_sink.h"

namespace replica {
namespace {

using testing::ElementsAre;

constexpr kernels::StepLimits kLimits{
    .rows = 16, .seqs = 3, .logit_rows = 3, .blocks_per_seq = 4, .vocabulary = 100};

std::unique_ptr<Sequence> running(std::vector<TokenId> prompt, StateSlot slot) {
    EngineRequest request{.prompt = std::move(prompt),
                          .sinks = {std::make_shared<RecordingSink>()}};
    auto sequence = std::make_unique<Sequence>(
        std::move(request),
        SequenceOrigin{.family = std::make_shared<Family>(), .max_model_len = 16});
    sequence->admit(slot, 0, {});
    return sequence;
}

TEST(StepBuilderTest, LaysOutDecodeAndPrefillRows) {
    BlockPool pool({.block_count = 8, .block_tokens = 4});
    const auto decoding = running({10, 11, 12, 13}, 2);
    ASSERT_TRUE(decoding->blocks.grow_to(5, pool));
    decoding->advance(4);
    ASSERT_EQ(decoding->accept(14, nullptr, {}), std::nullopt);
    const auto prompt = running({20, 21, 22, 23, 24, 25}, 3);
    ASSERT_TRUE(prompt->blocks.grow_to(3, pool));
    const auto whole = running({30, 31}, 1);
    ASSERT_TRUE(whole->blocks.grow_to(2, pool));

    StepBuilder builder(kLimits);
    builder.add(*decoding, 1);
    builder.add(*prompt, 3);
    builder.add(*whole, 2);
    const kernels::StepDescriptor& step = builder.finish();
    EXPECT_EQ(step.rows, 6);
    EXPECT_EQ(step.seqs, 3);
    EXPECT_EQ(step.logit_rows, 2);
    EXPECT_THAT(step.token, ElementsAre(14, 20, 21, 22, 30, 31));
    EXPECT_THAT(step.position, ElementsAre(4, 0, 1, 2, 0, 1));
    EXPECT_THAT(step.seq_of_row, ElementsAre(0, 1, 1, 1, 2, 2));
    EXPECT_THAT(step.row_begin, ElementsAre(0, 1, 4, 6));
    EXPECT_THAT(step.kv_len_before, ElementsAre(4, 0, 0));
    EXPECT_THAT(step.kv_len, ElementsAre(5, 3, 2));
    EXPECT_THAT(step.state_slot, ElementsAre(2, 3, 1));
    EXPECT_THAT(step.block_table, ElementsAre(0, 1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1));
    EXPECT_EQ(step.blocks_per_seq_max, 4);
    EXPECT_THAT(step.logit_row, ElementsAre(0, 5));
    ASSERT_EQ(step.sampling.size(), 2U);
    EXPECT_EQ(step.sampling[0].draw_index, 5U);
    EXPECT_EQ(step.sampling[1].draw_index, 2U);
    EXPECT_FALSE(step.wants_logits);
    for (const auto& sequence : {&decoding, &prompt, &whole})
        (*sequence)->blocks.release_all(pool);
}

TEST(StepBuilderTest, AShorterTableLeavesNoStaleEntries) {
    BlockPool pool({.block_count = 8, .block_tokens = 4});
    const auto longer = running({1, 2, 3, 4, 5, 6, 7, 8, 9}, 1);
    ASSERT_TRUE(longer->blocks.grow_to(9, pool));
    const auto shorter = running({1, 2}, 2);
    ASSERT_TRUE(shorter->blocks.grow_to(2, pool));
    StepBuilder builder(kLimits);
    builder.add(*longer, 9);
    EXPECT_THAT(builder.finish().block_table, ElementsAre(0, 1, 2, -1));
    builder.clear();
    builder.add(*shorter, 2);
    EXPECT_THAT(builder.finish().block_table, ElementsAre(3, -1, -1, -1));
    longer->blocks.release_all(pool);
    shorter->blocks.release_all(pool);
}

TEST(StepBuilderTest, APromptCutBeforeItsEndYieldsNoToken) {
    BlockPool pool({.block_count = 8, .block_tokens = 4});
    const auto prompt = running({1, 2, 3, 4, 5}, 1);
    ASSERT_TRUE(prompt->blocks.grow_to(4, pool));
    StepBuilder builder(kLimits);
    builder.add(*prompt, 4);
    const kernels::StepDescriptor& step = builder.finish();
    EXPECT_EQ(step.logit_rows, 0);
    EXPECT_TRUE(step.sampling.empty());
    EXPECT_EQ(builder.entries()[0].logit_rows, 0);
    prompt->blocks.release_all(pool);
}

}  // namespace
}  // namespace replica

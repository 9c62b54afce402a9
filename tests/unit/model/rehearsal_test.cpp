// Which steps are made ready before the first request: every size that decodes, then speculation,
// never more than asked for; and that their descriptors are whole.
#include "replica/model/rehearsal.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace replica {
namespace {

using kernels::StepProgram;

bool has(const std::vector<Rehearsal>& plan, const Rehearsal& wanted) {
    return std::ranges::find(plan, wanted) != plan.end();
}

TEST(RehearsalTest, WithoutSpeculationEveryNumberOfSequencesDecodes) {
    const auto plan = plan_rehearsals({.sequences = 16, .steps_max = 128});
    ASSERT_EQ(plan.size(), 16U);
    for (std::int32_t n = 1; n <= 16; ++n)
        EXPECT_EQ(plan[static_cast<std::size_t>(n - 1)],
                  (Rehearsal{.program = StepProgram::kTrunk, .sequences = n, .rows = 1}));
}

TEST(RehearsalTest, SpeculationBringsVerifyStepsAndDraftsForTheSequencesThatDraft) {
    const auto plan = plan_rehearsals(
        {.sequences = 16, .draft_tokens_max = 3, .draft_batch_max = 4, .steps_max = 128});
    EXPECT_TRUE(has(plan, {.program = StepProgram::kTrunk, .sequences = 1, .rows = 4}));
    EXPECT_TRUE(has(plan, {.program = StepProgram::kTrunk, .sequences = 4, .rows = 2}));
    EXPECT_FALSE(has(plan, {.program = StepProgram::kTrunk, .sequences = 5, .rows = 2}));
    EXPECT_TRUE(has(plan, {.program = StepProgram::kDraftFromTrunk, .sequences = 1, .rows = 4}));
    EXPECT_TRUE(has(plan, {.program = StepProgram::kDraftFromDraft, .sequences = 4, .rows = 1}));
    const auto one = plan_rehearsals(
        {.sequences = 2, .draft_tokens_max = 1, .draft_batch_max = 4, .steps_max = 128});
    EXPECT_FALSE(has(one, {.program = StepProgram::kDraftFromDraft, .sequences = 1, .rows = 1}))
        << "a single draft has none behind it";
}

TEST(RehearsalTest, NothingIsLargerThanAStepAndNoMoreStepsThanAskedFor) {
    const auto plan = plan_rehearsals({.sequences = 200,
                                       .draft_tokens_max = 8,
                                       .draft_batch_max = 100,
                                       .rows_max = 64,
                                       .logit_rows = 40,
                                       .steps_max = 1000});
    for (const Rehearsal& one : plan) {
        EXPECT_LE(one.sequences * one.rows, 64);
        EXPECT_LE(RehearsedStep(one).descriptor().logit_rows, 40);
    }
    EXPECT_EQ(plan_rehearsals({.sequences = 16, .steps_max = 5}).size(), 5U);
    EXPECT_TRUE(plan_rehearsals({.sequences = 16, .steps_max = 0}).empty());
}

TEST(RehearsalTest, TheDescriptorHoldsWhatItsCountsSay) {
    const RehearsedStep verify({.program = StepProgram::kTrunk, .sequences = 3, .rows = 5});
    const kernels::StepDescriptor step = verify.descriptor();
    EXPECT_EQ(step.rows, 15);
    EXPECT_EQ(step.seqs, 3);
    EXPECT_EQ(step.logit_rows, 15);
    ASSERT_EQ(step.row_begin.size(), 4U);
    EXPECT_EQ(step.row_begin[2], 10);
    EXPECT_EQ(step.sampling.size(), 15U);
    EXPECT_EQ(step.commit[0], 0) << "rows that may be taken back";
    const RehearsedStep draft({.program = StepProgram::kDraftFromTrunk, .sequences = 2, .rows = 3});
    EXPECT_EQ(draft.descriptor().logit_rows, 2) << "the last row of each sequence draws";
    EXPECT_EQ(draft.descriptor().hidden_row.size(), 6U);
}

}  // namespace
}  // namespace replica

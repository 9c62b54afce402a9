// The scheduler's rules one by one, as a pure function: a list of sequences in, a plan out.
#include "replica/engine/scheduler.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace replica {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr ScheduleLimits kLimits{.token_budget = 64, .sequence_limit = 8, .block_tokens = 16};

/// A running sequence whose known tokens but the last are computed.
SequenceView decoding(std::int32_t tokens, std::uint64_t arrival) {
    return {.is_running = true,
            .is_decoding = true,
            .tokens = tokens,
            .computed = tokens - 1,
            .blocks = (tokens - 1 + 15) / 16,
            .arrival = arrival};
}

SequenceView prefilling(std::int32_t tokens, std::int32_t computed, std::uint64_t arrival) {
    return {.is_running = true,
            .tokens = tokens,
            .computed = computed,
            .blocks = (computed + 15) / 16,
            .arrival = arrival};
}

SequenceView waiting(std::int32_t tokens, std::uint64_t arrival) {
    return {.tokens = tokens, .arrival = arrival};
}

struct Resources {
    std::int32_t blocks_free = 100;
    std::int32_t slots_free = 8;
};

StepPlan plan(const std::vector<SequenceView>& sequences, Resources resources = {},
              ScheduleLimits limits = kLimits) {
    Scheduler scheduler(limits);
    return scheduler.plan({.sequences = sequences,
                           .blocks_free = resources.blocks_free,
                           .slots_free = resources.slots_free});
}

PlannedRows rows_of(std::int32_t sequence, std::int32_t rows) {
    return {.sequence = sequence, .rows = rows};
}

TEST(SchedulerTest, PlansNothingForNobody) {
    const StepPlan step = plan({});
    EXPECT_THAT(step.decode, IsEmpty());
    EXPECT_THAT(step.prefill, IsEmpty());
}

TEST(SchedulerTest, AdmitsAWaitingSequenceAndStartsItsPrompt) {
    const StepPlan step = plan({waiting(10, 1)});
    EXPECT_THAT(step.admitted, ElementsAre(0));
    EXPECT_THAT(step.prefill, ElementsAre(rows_of(0, 10)));
}

TEST(SchedulerTest, DecodesEveryRunningSequenceBeforeAnyPrompt) {
    const StepPlan step = plan({prefilling(500, 64, 1), decoding(20, 2), decoding(30, 3)});
    EXPECT_THAT(step.decode, ElementsAre(rows_of(1, 1), rows_of(2, 1)));
    EXPECT_THAT(step.prefill, ElementsAre(rows_of(0, 62)));
}

TEST(SchedulerTest, CutsALongPromptIntoChunksOfTheBudget) {
    EXPECT_THAT(plan({waiting(500, 1)}).prefill, ElementsAre(rows_of(0, 64)));
    EXPECT_THAT(plan({prefilling(500, 64, 1)}).prefill, ElementsAre(rows_of(0, 64)));
    EXPECT_THAT(plan({prefilling(500, 490, 1)}).prefill, ElementsAre(rows_of(0, 10)));
}

TEST(SchedulerTest, GivesTheBudgetToRunningPromptsBeforeNewOnes) {
    const StepPlan step = plan({waiting(30, 1), prefilling(100, 50, 2)});
    EXPECT_THAT(step.prefill, ElementsAre(rows_of(1, 50), rows_of(0, 14)));
}

TEST(SchedulerTest, SharesOneStepAmongShortPrompts) {
    const StepPlan step = plan({waiting(20, 1), waiting(20, 2), waiting(60, 3), waiting(5, 4)});
    EXPECT_THAT(step.admitted, ElementsAre(0, 1, 2));
    EXPECT_THAT(step.prefill, ElementsAre(rows_of(0, 20), rows_of(1, 20), rows_of(2, 24)));
}

TEST(SchedulerTest, AdmitsInOrderOfArrivalWhateverTheListsOrder) {
    const StepPlan step = plan({waiting(10, 9), waiting(10, 3), waiting(10, 6)});
    EXPECT_THAT(step.admitted, ElementsAre(1, 2, 0));
}

TEST(SchedulerTest, AdmitsALowerPriorityNumberFirst) {
    std::vector<SequenceView> sequences{waiting(10, 1), waiting(10, 2)};
    sequences[1].priority = -1;
    EXPECT_THAT(plan(sequences).admitted, ElementsAre(1, 0));
}

TEST(SchedulerTest, TenSecondsOfWaitingWeighOnePointOfPriority) {
    std::vector<SequenceView> sequences{waiting(10, 1), waiting(10, 2)};
    sequences[0].priority = 5;
    sequences[0].waited = 49s;
    EXPECT_THAT(plan(sequences).admitted, ElementsAre(1, 0));
    sequences[0].waited = 51s;
    EXPECT_THAT(plan(sequences).admitted, ElementsAre(0, 1));
}

TEST(SchedulerTest, KeepsToTheSequenceLimit) {
    const StepPlan step = plan({decoding(5, 1), waiting(5, 2), waiting(5, 3)}, {},
                               {.token_budget = 64, .sequence_limit = 2, .block_tokens = 16});
    EXPECT_THAT(step.admitted, ElementsAre(1));
}

TEST(SchedulerTest, AdmitsNobodyWithoutAStateSlot) {
    EXPECT_THAT(plan({waiting(5, 1)}, {.slots_free = 0}).admitted, IsEmpty());
    EXPECT_THAT(plan({waiting(5, 1), waiting(5, 2)}, {.slots_free = 1}).admitted, ElementsAre(0));
}

TEST(SchedulerTest, AdmitsNobodyWhosePromptDoesNotFit) {
    EXPECT_THAT(plan({waiting(48, 1)}, {.blocks_free = 3}).admitted, IsEmpty());
    EXPECT_THAT(plan({waiting(47, 1)}, {.blocks_free = 3}).admitted, ElementsAre(0));
}

TEST(SchedulerTest, NobodyOvertakesAPromptThatWaitsForRoom) {
    EXPECT_THAT(plan({waiting(100, 1), waiting(5, 2)}, {.blocks_free = 4}).admitted, IsEmpty());
}

TEST(SchedulerTest, LeavesRunningPromptsTheBlocksTheyStillNeed) {
    // The running prompt has 4 of its 8 blocks and takes 4 in this step and the next.
    EXPECT_THAT(plan({prefilling(127, 64, 1), waiting(15, 2)}, {.blocks_free = 4}).admitted,
                IsEmpty());
    EXPECT_THAT(plan({prefilling(97, 64, 1), waiting(15, 2)}, {.blocks_free = 4}).admitted,
                ElementsAre(1));
}

TEST(SchedulerTest, LeavesEachDecodingSequenceItsNextBlock) {
    EXPECT_THAT(plan({decoding(20, 1), waiting(20, 2)}, {.blocks_free = 2}).admitted, IsEmpty());
    EXPECT_THAT(plan({decoding(20, 1), waiting(20, 2)}, {.blocks_free = 3}).admitted,
                ElementsAre(1));
}

TEST(SchedulerTest, LeavesAnAdmittedPromptTheBlockOfItsFirstAnswer) {
    // 48 tokens fill three blocks; the first generated token needs the fourth.
    EXPECT_THAT(plan({waiting(48, 1), waiting(15, 2)}, {.blocks_free = 4}).admitted,
                ElementsAre(0));
    EXPECT_THAT(plan({waiting(48, 1), waiting(15, 2)}, {.blocks_free = 5}).admitted,
                ElementsAre(0, 1));
}

TEST(SchedulerTest, TakesABlockOnlyWhenTheLastOneIsFull) {
    EXPECT_THAT(plan({decoding(16, 1)}, {.blocks_free = 0}).decode, ElementsAre(rows_of(0, 1)));
    EXPECT_THAT(plan({decoding(16, 1)}, {.blocks_free = 0}).preempted, IsEmpty());
}

TEST(SchedulerTest, PreemptsTheYoungestSequenceWhenBlocksRunOut) {
    // Each fills two blocks exactly, so the next token needs a fifth of four blocks.
    const StepPlan step = plan({decoding(33, 1), decoding(33, 2)}, {.blocks_free = 0});
    EXPECT_THAT(step.preempted, ElementsAre(1));
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 1)));
}

TEST(SchedulerTest, PreemptsTheWorstPriorityBeforeTheYoungest) {
    std::vector<SequenceView> sequences{decoding(33, 1), decoding(33, 2)};
    sequences[0].priority = 3;
    const StepPlan step = plan(sequences, {.blocks_free = 0});
    EXPECT_THAT(step.preempted, ElementsAre(0));
    EXPECT_THAT(step.decode, ElementsAre(rows_of(1, 1)));
}

TEST(SchedulerTest, TheWorstSequenceGivesWayItselfWhenTheOthersNeedNoBlock) {
    const StepPlan step = plan({decoding(20, 1), decoding(33, 2)}, {.blocks_free = 0});
    EXPECT_THAT(step.preempted, ElementsAre(1));
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 1)));
}

TEST(SchedulerTest, PreemptsNoMoreThanItNeeds) {
    const StepPlan step =
        plan({decoding(33, 1), decoding(33, 2), decoding(33, 3)}, {.blocks_free = 0});
    EXPECT_THAT(step.preempted, ElementsAre(2));
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 1), rows_of(1, 1)));
}

TEST(SchedulerTest, ADecodingSequenceMayTakeTheBlocksOfAWorsePrompt) {
    const StepPlan step = plan({decoding(33, 1), prefilling(100, 64, 2)}, {.blocks_free = 0});
    EXPECT_THAT(step.preempted, ElementsAre(1));
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 1)));
    EXPECT_THAT(step.prefill, IsEmpty());
}

TEST(SchedulerTest, CutsAChunkToTheBlocksThereAre) {
    EXPECT_THAT(plan({prefilling(100, 32, 1)}, {.blocks_free = 2}).prefill,
                ElementsAre(rows_of(0, 32)));
    EXPECT_THAT(plan({prefilling(100, 40, 1)}, {.blocks_free = 0}).prefill,
                ElementsAre(rows_of(0, 8)));
}

TEST(SchedulerTest, APromptWithoutABlockTakesThoseOfAWorseSequence) {
    const StepPlan step = plan({prefilling(100, 64, 1), decoding(20, 2)}, {.blocks_free = 0});
    EXPECT_THAT(step.preempted, ElementsAre(1));
    EXPECT_THAT(step.decode, IsEmpty()) << "the decode row it had is taken back";
    EXPECT_THAT(step.prefill, ElementsAre(rows_of(0, 32)));
}

TEST(SchedulerTest, ATakenBackDecodeRowReturnsItsBlockAndItsPlaceInTheBudget) {
    const std::vector<SequenceView> sequences{prefilling(100, 64, 1), decoding(33, 2)};
    // The decode row took the only free block; two held ones and this one make 48 rows.
    EXPECT_THAT(plan(sequences, {.blocks_free = 1}).prefill, ElementsAre(rows_of(0, 36)));
    EXPECT_THAT(plan({prefilling(200, 64, 1), decoding(33, 2)}, {.blocks_free = 1}).prefill,
                ElementsAre(rows_of(0, 48)));
    EXPECT_THAT(plan(sequences, {.blocks_free = 1},
                     {.token_budget = 8, .sequence_limit = 8, .block_tokens = 16})
                    .prefill,
                ElementsAre(rows_of(0, 8)));
}

TEST(SchedulerTest, TheWorstPromptWaitsForABlockAndKeepsItsWork) {
    const StepPlan step = plan({decoding(20, 1), prefilling(100, 64, 2)}, {.blocks_free = 0});
    EXPECT_THAT(step.preempted, IsEmpty());
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 1)));
    EXPECT_THAT(step.prefill, IsEmpty());
}

TEST(SchedulerTest, AdmitsNobodyInAStepThatPreempts) {
    const StepPlan step =
        plan({decoding(33, 1), decoding(97, 2), waiting(5, 3)}, {.blocks_free = 0});
    EXPECT_THAT(step.preempted, ElementsAre(1));
    EXPECT_THAT(step.admitted, IsEmpty());
}

SequenceView drafting(std::int32_t tokens, std::int32_t drafts, std::uint64_t arrival) {
    SequenceView view = decoding(tokens, arrival);
    view.drafts = drafts;
    return view;
}

constexpr ScheduleLimits kDraftLimits{
    .token_budget = 64, .sequence_limit = 8, .block_tokens = 16, .logit_rows = 20};

TEST(SchedulerTest, DraftsRideBehindTheirDecodeRow) {
    EXPECT_THAT(plan({drafting(20, 3, 1), decoding(30, 2)}, {}, kDraftLimits).decode,
                ElementsAre(rows_of(0, 4), rows_of(1, 1)));
}

TEST(SchedulerTest, NobodyDraftsWithoutSpareLogitRows) {
    EXPECT_THAT(plan({drafting(20, 3, 1)}).decode, ElementsAre(rows_of(0, 1)));
    // Twelve rows are spare: eight may always yield a token.
    const StepPlan step =
        plan({drafting(20, 5, 1), drafting(20, 5, 2), drafting(20, 5, 3)}, {}, kDraftLimits);
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 6), rows_of(1, 6), rows_of(2, 3)));
}

TEST(SchedulerTest, DraftsLeaveEveryDecodingSequenceItsRow) {
    ScheduleLimits limits = kDraftLimits;
    limits.token_budget = limits.sequence_limit = 4;
    const StepPlan step =
        plan({drafting(20, 5, 1), drafting(20, 5, 2), decoding(9, 3)}, {}, limits);
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 2), rows_of(1, 1), rows_of(2, 1)));
}

TEST(SchedulerTest, NobodyIsPreemptedForADraft) {
    // Sixteen tokens fill the block; a draft would need the next one.
    const StepPlan step =
        plan({drafting(16, 2, 1), decoding(20, 2)}, {.blocks_free = 0}, kDraftLimits);
    EXPECT_THAT(step.preempted, IsEmpty());
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 1), rows_of(1, 1)));
}

TEST(SchedulerTest, AChunkStopsAtACheckpointAndNotBehindIt) {
    SequenceView prompt = waiting(50, 1);
    prompt.chunk_end = 30;
    EXPECT_THAT(plan({prompt}).prefill, ElementsAre(rows_of(0, 30)));
    prompt = prefilling(50, 30, 1);
    prompt.chunk_end = 30;
    EXPECT_THAT(plan({prompt}).prefill, ElementsAre(rows_of(0, 20)));
    prompt.chunk_end = 45;
    EXPECT_THAT(plan({prompt}).prefill, ElementsAre(rows_of(0, 15)));
}

TEST(SchedulerTest, WhatTheCacheGivesNeedsNoRowsAndSharedBlocksNoRoom) {
    SequenceView resumed = waiting(100, 1);
    resumed.computed = 90;
    resumed.blocks = 5;  // of the seven it needs, others read these now
    EXPECT_THAT(plan({resumed}, {.blocks_free = 2}).prefill, ElementsAre(rows_of(0, 10)));
    EXPECT_THAT(plan({resumed}, {.blocks_free = 1}).admitted, IsEmpty());
    resumed.copies = 1;
    EXPECT_THAT(plan({resumed}, {.blocks_free = 2}).admitted, IsEmpty());
    EXPECT_THAT(plan({resumed}, {.blocks_free = 3}).admitted, ElementsAre(0));
}

TEST(SchedulerTest, WhoWaitsForItsFirstChoiceHoldsNobodyUp) {
    SequenceView choice = waiting(10, 1);
    choice.is_blocked = true;
    EXPECT_THAT(plan({choice, waiting(10, 2)}).admitted, ElementsAre(1));
}

TEST(SchedulerTest, ASmallerBudgetShortensChunksOnly) {
    Scheduler scheduler(kLimits);
    const std::vector<SequenceView> sequences{decoding(20, 1), prefilling(200, 64, 2)};
    const StepPlan& step = scheduler.plan(
        {.sequences = sequences, .blocks_free = 100, .slots_free = 8, .token_budget = 20});
    EXPECT_THAT(step.decode, ElementsAre(rows_of(0, 1)));
    EXPECT_THAT(step.prefill, ElementsAre(rows_of(1, 19)));
}

TEST(SchedulerTest, EqualStatesGiveEqualPlans) {
    const std::vector<SequenceView> sequences{decoding(33, 4), waiting(90, 1),
                                              prefilling(99, 9, 2)};
    Scheduler scheduler(kLimits);
    const ScheduleState state{.sequences = sequences, .blocks_free = 9, .slots_free = 2};
    const StepPlan first = scheduler.plan(state);
    const std::vector<SequenceView> other{decoding(50, 1)};
    (void)scheduler.plan({.sequences = other, .blocks_free = 1, .slots_free = 1});
    const StepPlan second = scheduler.plan(state);
    EXPECT_EQ(first.decode, second.decode);
    EXPECT_EQ(first.prefill, second.prefill);
    EXPECT_EQ(first.admitted, second.admitted);
    EXPECT_EQ(first.preempted, second.preempted);
}

}  // namespace
}  // namespace replica

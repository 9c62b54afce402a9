// A sequence alone: its view, its sampling row, its counts, its clock.
#include "replica/engine/sequence.h"

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/recording_sink.h"

namespace replica {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;

const Clock::time_point kStart = Clock::time_point{} + 1000s;

Sequence sequence_of(EngineRequest request, const std::vector<TokenId>& end_tokens = {}) {
    request.sinks = {std::make_shared<RecordingSink>()};
    return Sequence(std::move(request), {.family = std::make_shared<Family>(),
                                         .arrival = 5,
                                         .max_model_len = 100,
                                         .end_tokens = end_tokens,
                                         .accepted_at = kStart});
}

void start(Sequence& sequence, Clock::time_point now = kStart) {
    sequence.admit(1, 0, now);
    sequence.advance(sequence.token_count());
}

void release(Sequence& sequence) {
    sequence.state_slot = kScratchSlot;
}

std::vector<std::vector<int>> counts_of(const Sequence& sequence) {
    std::vector<std::vector<int>> counts;
    for (const kernels::TokenCount& count : sequence.sampling_row().counts)
        counts.push_back({count.token, count.generated, count.in_prompt});
    return counts;
}

TEST(SequenceTest, DrawsByChoiceAndPosition) {
    Sequence sequence = sequence_of({.prompt = {7, 8, 9}, .choice_index = 2});
    EXPECT_EQ(sequence.sampling_row().draw_index, (2ULL << 32) | 3U);
    start(sequence);
    ASSERT_EQ(sequence.accept(10, nullptr, kStart), std::nullopt);
    EXPECT_EQ(sequence.sampling_row().draw_index, (2ULL << 32) | 4U);
}

TEST(SequenceTest, AViewGoesFromWaitingToPrefillToDecode) {
    Sequence sequence = sequence_of({.prompt = {7, 8, 9}, .priority = -3});
    SequenceView view = sequence.view(kStart + 4s);
    EXPECT_FALSE(view.is_running);
    EXPECT_EQ(view.waited, 4s);
    EXPECT_EQ(view.priority, -3);
    EXPECT_EQ(view.arrival, 5U);
    sequence.admit(1, 0, kStart + 6s);
    sequence.advance(2);
    view = sequence.view(kStart + 50s);
    EXPECT_TRUE(view.is_running);
    EXPECT_FALSE(view.is_decoding);
    EXPECT_EQ(view.waited, 6s) << "running does not age";
    EXPECT_EQ(sequence.prefill_left(), 1);
    sequence.advance(1);
    ASSERT_EQ(sequence.accept(10, nullptr, kStart), std::nullopt);
    view = sequence.view(kStart);
    EXPECT_TRUE(view.is_decoding);
    EXPECT_EQ(view.tokens, 4);
    EXPECT_EQ(view.computed, 3);
}

TEST(SequenceTest, APreemptedSequenceComputesItsOwnAnswerAgain) {
    Sequence sequence = sequence_of({.prompt = {7, 8, 9}});
    start(sequence, kStart + 2s);
    ASSERT_EQ(sequence.accept(10, nullptr, kStart), std::nullopt);
    release(sequence);
    sequence.preempt(kStart + 10s);
    EXPECT_EQ(sequence.computed(), 0);
    EXPECT_EQ(sequence.prefill_left(), 4);
    EXPECT_EQ(sequence.view(kStart + 15s).waited, 7s) << "both stays in the queue";
    sequence.admit(1, 0, kStart + 15s);
    sequence.advance(4);
    EXPECT_EQ(sequence.sampling_row().draw_index, 4U);
    EXPECT_EQ(static_cast<RecordingSink&>(sequence.sink()).starts(), 1);
}

TEST(SequenceTest, KeepsNoCountsWithoutAPenalty) {
    Sequence sequence = sequence_of({.prompt = {7, 8, 7}});
    start(sequence);
    ASSERT_EQ(sequence.accept(7, nullptr, kStart), std::nullopt);
    EXPECT_THAT(sequence.sampling_row().counts, IsEmpty());
}

TEST(SequenceTest, CountsPromptAndGeneratedTokensUnderAPenalty) {
    EngineRequest request{.prompt = {7, 8, 7}};
    request.sampling.presence_penalty = 0.1F;
    Sequence sequence = sequence_of(request);
    EXPECT_THAT(counts_of(sequence), ElementsAre(ElementsAre(7, 0, 2), ElementsAre(8, 0, 1)));
    start(sequence);
    ASSERT_EQ(sequence.accept(8, nullptr, kStart), std::nullopt);
    sequence.advance(1);
    ASSERT_EQ(sequence.accept(5, nullptr, kStart), std::nullopt);
    EXPECT_THAT(counts_of(sequence),
                ElementsAre(ElementsAre(5, 1, 0), ElementsAre(7, 0, 2), ElementsAre(8, 1, 1)));
}

TEST(SequenceTest, BansStopsUnderMinTokensAndEndsUnderIgnoreEos) {
    EngineRequest request{.prompt = {7}, .min_tokens = 1};
    request.stop_token_ids = {50};
    Sequence with_minimum = sequence_of(request, {1, 2});
    EXPECT_THAT(with_minimum.sampling_row().banned, ElementsAre(1, 2, 50));
    start(with_minimum);
    ASSERT_EQ(with_minimum.accept(9, nullptr, kStart), std::nullopt);
    EXPECT_THAT(with_minimum.sampling_row().banned, IsEmpty());
    request.min_tokens = 0;
    request.ignore_eos = true;
    Sequence without_end = sequence_of(request, {1, 2});
    EXPECT_THAT(without_end.sampling_row().banned, ElementsAre(1, 2));
}

TEST(SequenceTest, HandsOnTheSamplingOptions) {
    EngineRequest request{.prompt = {7}};
    request.sampling = {.temperature = 0.5F,
                        .top_k = -1,
                        .top_p = 0.9F,
                        .min_p = 0.1F,
                        .repetition_penalty = 1.1F,
                        .presence_penalty = 0.2F,
                        .frequency_penalty = 0.3F,
                        .seed = 99,
                        .logit_bias = {{.token = 3, .bias = -2}}};
    const Sequence sequence = sequence_of(request);
    const kernels::SamplingRow row = sequence.sampling_row();
    EXPECT_EQ(row.temperature, 0.5F);
    EXPECT_EQ(row.top_k, 0) << "-1 is off";
    EXPECT_EQ(row.top_p, 0.9F);
    EXPECT_EQ(row.min_p, 0.1F);
    EXPECT_EQ(row.repetition_penalty, 1.1F);
    EXPECT_EQ(row.presence_penalty, 0.2F);
    EXPECT_EQ(row.frequency_penalty, 0.3F);
    EXPECT_EQ(row.seed, 99U);
    ASSERT_EQ(row.bias.size(), 1U);
    EXPECT_EQ(row.bias[0].token, 3);
    EXPECT_EQ(row.bias[0].bias, -2.0F);
}

TEST(SequenceTest, TellsItsTimes) {
    Sequence sequence = sequence_of({.prompt = {7}});
    start(sequence, kStart + 2s);
    ASSERT_EQ(sequence.accept(9, nullptr, kStart + 5s), std::nullopt);
    release(sequence);
    sequence.finish(FinishReason::kCancelled, {}, kStart + 9s);
    EXPECT_EQ(sequence.finish_info().queue_time, 2s);
    EXPECT_EQ(sequence.finish_info().prefill_time, 3s);
    EXPECT_EQ(sequence.finish_info().decode_time, 4s);
}

TEST(SequenceTest, ARequestThatNeverRanOnlyQueued) {
    Sequence sequence = sequence_of({.prompt = {7}});
    sequence.finish(FinishReason::kCancelled, {}, kStart + 9s);
    EXPECT_EQ(sequence.finish_info().queue_time, 9s);
    EXPECT_EQ(sequence.finish_info().prefill_time, 0s);
    EXPECT_EQ(sequence.finish_info().decode_time, 0s);
}

}  // namespace
}  // namespace replica

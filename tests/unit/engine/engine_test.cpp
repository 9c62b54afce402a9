// The engine around a pseudo-model: what a request gets, and when it ends.
#include "replica/engine/engine.h"

#include <atomic>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/expected_text.h"
#include "tests/unit/engine/fake_step_runner.h"
#include "tests/unit/engine/recording_sink.h"

namespace replica {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

std::vector<TokenId> prompt_of(std::int32_t tokens, TokenId first = 1) {
    std::vector<TokenId> prompt(static_cast<std::size_t>(tokens));
    std::iota(prompt.begin(), prompt.end(), first);
    return prompt;
}

struct Submitted {
    SubmitResult result;
    std::shared_ptr<RecordingSink> sink;
    FinishInfo finish() const { return sink->wait_finished(); }
};

Submitted submit(Engine& engine, EngineRequest request) {
    auto sink = std::make_shared<RecordingSink>();
    request.sinks = {sink};
    return {.result = engine.submit(std::move(request)), .sink = sink};
}

TEST(EngineTest, GivesTheModelsTokensInOrder) {
    FakeStepRunner runner;
    Engine engine(runner, {});
    const EngineRequest request{.prompt = prompt_of(5), .max_tokens = 12};
    const Submitted submitted = submit(engine, request);
    const FinishInfo info = submitted.finish();
    EXPECT_THAT(submitted.sink->tokens(), ElementsAreArray(expected_text(request)));
    EXPECT_EQ(info.reason, FinishReason::kLength);
    EXPECT_EQ(info.prompt_tokens, 5);
    EXPECT_EQ(info.generated_tokens, 12);
    EXPECT_EQ(info.stop_token, std::nullopt);
}

TEST(EngineTest, APromptLongerThanAStepGivesTheSameText) {
    FakeStepRunner runner({.rows = 7});
    Engine engine(runner, {.sequences_max = 4, .step_token_budget = 7});
    const EngineRequest request{.prompt = prompt_of(40), .max_tokens = 5};
    const Submitted submitted = submit(engine, request);
    submitted.finish();
    EXPECT_THAT(submitted.sink->tokens(), ElementsAreArray(expected_text(request)));
}

TEST(EngineTest, SeedAndChoiceEnterTheDraw) {
    FakeStepRunner runner;
    Engine engine(runner, {});
    EngineRequest request{.prompt = prompt_of(5), .max_tokens = 8};
    request.sampling.seed = 17;
    request.choice_index = 3;
    const Submitted submitted = submit(engine, request);
    submitted.finish();
    EXPECT_THAT(submitted.sink->tokens(), ElementsAreArray(expected_text(request)));
    EngineRequest other = request;
    other.choice_index = 4;
    EXPECT_NE(expected_text(request), expected_text(other));
}

TEST(EngineTest, EndsAtAnEndTokenWithoutPassingItOn) {
    FakeStepRunner runner;
    const EngineRequest request{.prompt = prompt_of(5), .max_tokens = 20};
    const TokenId fourth = expected_text(request)[3];
    Engine engine(runner, {.end_tokens = {fourth}});
    const Submitted submitted = submit(engine, request);
    const FinishInfo info = submitted.finish();
    EXPECT_EQ(info.reason, FinishReason::kStop);
    EXPECT_EQ(info.stop_token, fourth);
    EXPECT_EQ(info.generated_tokens, 4);
    EXPECT_EQ(submitted.sink->tokens().size(), 3U);
}

TEST(EngineTest, EndsAtAStopTokenOfTheRequest) {
    FakeStepRunner runner;
    Engine engine(runner, {});
    EngineRequest request{.prompt = prompt_of(5), .max_tokens = 20};
    request.stop_token_ids = {499, expected_text(request)[1]};
    const Submitted submitted = submit(engine, request);
    const FinishInfo info = submitted.finish();
    EXPECT_EQ(info.stop_token, request.stop_token_ids[1]);
    EXPECT_EQ(submitted.sink->tokens().size(), 1U);
}

TEST(EngineTest, IgnoreEosMasksTheEndTokens) {
    FakeStepRunner runner;
    EngineRequest request{.prompt = prompt_of(5), .max_tokens = 20, .ignore_eos = true};
    const TokenId fourth = expected_text(request)[3];
    Engine engine(runner, {.end_tokens = {fourth}});
    const Submitted submitted = submit(engine, request);
    const FinishInfo info = submitted.finish();
    EXPECT_EQ(info.reason, FinishReason::kLength);
    EXPECT_EQ(info.generated_tokens, 20);
    EXPECT_THAT(submitted.sink->tokens(), testing::Not(testing::Contains(fourth)));
}

TEST(EngineTest, MinTokensMasksEveryStopUntilThen) {
    FakeStepRunner runner;
    EngineRequest request{.prompt = prompt_of(5), .max_tokens = 40, .min_tokens = 10};
    // In a vocabulary of stops alone but one, that one comes until the minimum is reached.
    for (TokenId token = 0; token < 500; ++token)
        if (token != 123) request.stop_token_ids.push_back(token);
    Engine engine(runner, {});
    const Submitted submitted = submit(engine, request);
    const FinishInfo info = submitted.finish();
    EXPECT_EQ(info.reason, FinishReason::kStop);
    EXPECT_EQ(info.generated_tokens, 11);
    EXPECT_THAT(submitted.sink->tokens(), ElementsAreArray(std::vector<TokenId>(10, 123)));
}

TEST(EngineTest, TheSinkMayEndTheSequence) {
    FakeStepRunner runner;
    Engine engine(runner, {});
    auto sink = std::make_shared<RecordingSink>();
    int left = 3;
    sink->verdict = [&](TokenId) {
        return --left == 0 ? SinkVerdict::kStop : SinkVerdict::kContinue;
    };
    ASSERT_EQ(engine.submit({.prompt = prompt_of(5), .sinks = {sink}}).status,
              SubmitStatus::kAccepted);
    const FinishInfo info = sink->wait_finished();
    EXPECT_EQ(info.reason, FinishReason::kStop);
    EXPECT_EQ(info.generated_tokens, 3);
    EXPECT_EQ(info.stop_token, std::nullopt);
}

TEST(EngineTest, ASinkMayCallBackIntoTheEngine) {
    FakeStepRunner runner;
    Engine engine(runner, {});
    auto second = std::make_shared<RecordingSink>();
    auto first = std::make_shared<RecordingSink>();
    first->verdict = [&](TokenId) {
        engine.submit({.prompt = prompt_of(3), .max_tokens = 2, .sinks = {second}});
        engine.cancel(1);
        EXPECT_EQ(engine.status().running, 1);
        return SinkVerdict::kContinue;
    };
    engine.submit({.prompt = prompt_of(5), .max_tokens = 50, .sinks = {first}});
    EXPECT_EQ(first->wait_finished().reason, FinishReason::kCancelled);
    EXPECT_EQ(second->wait_finished().reason, FinishReason::kLength);
}

TEST(EngineTest, TheContextLimitEndsAnAnswer) {
    FakeStepRunner runner({.max_model_len = 32});
    Engine engine(runner, {});
    const Submitted unbounded = submit(engine, {.prompt = prompt_of(20)});
    EXPECT_EQ(unbounded.finish().reason, FinishReason::kLength);
    EXPECT_EQ(unbounded.finish().generated_tokens, 12);
    const Submitted clipped = submit(engine, {.prompt = prompt_of(20), .max_tokens = 1000000000});
    EXPECT_EQ(clipped.finish().generated_tokens, 12);
    const Submitted longest = submit(engine, {.prompt = prompt_of(31)});
    EXPECT_EQ(longest.finish().generated_tokens, 1);
}

TEST(EngineTest, RefusesPromptsThatLeaveNoRoom) {
    FakeStepRunner runner({.max_model_len = 32});
    Engine engine(runner, {});
    EXPECT_EQ(submit(engine, {.prompt = prompt_of(32)}).result.status,
              SubmitStatus::kContextExceeded);
    EXPECT_EQ(submit(engine, {.prompt = prompt_of(33)}).result.status,
              SubmitStatus::kContextExceeded);
    EXPECT_EQ(submit(engine, {.prompt = {}}).result.status, SubmitStatus::kPromptEmpty);
}

TEST(EngineTest, TheContextIsNoLargerThanThePool) {
    FakeStepRunner runner({.blocks_total = 5, .block_tokens = 4, .max_model_len = 64});
    Engine engine(runner, {});
    EXPECT_EQ(engine.status().max_model_len, 20);
    const Submitted submitted = submit(engine, {.prompt = prompt_of(10)});
    EXPECT_EQ(submitted.finish().generated_tokens, 10);
}

TEST(EngineTest, RefusesWhatRunningAndQueueCannotHold) {
    FakeStepRunner runner;
    StepGate gate;
    runner.on_run = [&](const auto&) { gate.enter(); };
    Engine engine(runner, {.sequences_max = 2, .waiting_max = 3});
    std::vector<Submitted> accepted;
    for (int i = 0; i < 5; ++i) {
        accepted.push_back(submit(engine, {.prompt = prompt_of(4), .max_tokens = 2}));
        EXPECT_EQ(accepted.back().result.status, SubmitStatus::kAccepted);
    }
    EXPECT_EQ(submit(engine, {.prompt = prompt_of(4)}).result.status, SubmitStatus::kQueueFull);
    gate.open();
    for (const Submitted& each : accepted)
        EXPECT_EQ(each.finish().reason, FinishReason::kLength);
    EXPECT_EQ(submit(engine, {.prompt = prompt_of(4)}).result.status, SubmitStatus::kAccepted);
}

TEST(EngineTest, ACancelTakesEffectWithinOneStep) {
    FakeStepRunner runner;
    StepGate gate;
    runner.on_run = [&](const auto&) { gate.enter(); };
    Engine engine(runner, {});
    const Submitted submitted = submit(engine, {.prompt = prompt_of(4), .max_tokens = 50});
    gate.let_pass(2);
    gate.wait_for_step();  // the third step holds the sequence
    engine.cancel(submitted.result.id);
    engine.cancel(submitted.result.id);
    engine.cancel(987654);
    gate.let_pass(1);
    const FinishInfo info = submitted.finish();
    EXPECT_EQ(info.reason, FinishReason::kCancelled);
    EXPECT_EQ(info.generated_tokens, 3);
    const EngineStatus status = engine.status();
    EXPECT_EQ(status.running, 0);
    EXPECT_EQ(status.blocks_free, status.blocks_total);
    gate.open();
}

TEST(EngineTest, AWaitingRequestCanBeCancelled) {
    FakeStepRunner runner;
    StepGate gate;
    runner.on_run = [&](const auto&) { gate.enter(); };
    Engine engine(runner, {.sequences_max = 1});
    const Submitted running = submit(engine, {.prompt = prompt_of(4), .max_tokens = 3});
    gate.wait_for_step();
    const Submitted waiting = submit(engine, {.prompt = prompt_of(4)});
    EXPECT_EQ(engine.status().running, 1) << "a first prefill counts as running while it runs";
    EXPECT_EQ(engine.status().waiting, 1);
    EXPECT_EQ(engine.status().queued_tokens, 8) << "no prompt is computed yet";
    engine.cancel(waiting.result.id);
    gate.open();
    EXPECT_EQ(waiting.finish().reason, FinishReason::kCancelled);
    EXPECT_EQ(waiting.sink->starts(), 0);
    EXPECT_THAT(waiting.sink->tokens(), IsEmpty());
    EXPECT_EQ(running.finish().reason, FinishReason::kLength);
}

TEST(EngineTest, ALongPromptDelaysDecodingByOneChunkAtMost) {
    FakeStepRunner runner({.rows = 8});
    StepGate gate;
    std::vector<std::pair<std::int32_t, std::int32_t>> steps;  // rows of the first, of all
    runner.on_run = [&](const kernels::StepDescriptor& step) {
        gate.enter();
        steps.emplace_back(step.row_begin[1], step.rows);
    };
    Engine engine(runner, {.sequences_max = 2, .step_token_budget = 8});
    const Submitted first = submit(engine, {.prompt = prompt_of(4), .max_tokens = 12});
    gate.let_pass(1);
    gate.wait_for_step();
    const Submitted second = submit(engine, {.prompt = prompt_of(40), .max_tokens = 2});
    gate.open();
    first.finish();
    second.finish();
    for (std::size_t i = 1; i < 8; ++i) {
        EXPECT_EQ(steps[i].first, 1) << "step " << i << " has no decode row in front";
        EXPECT_LE(steps[i].second, 8);
    }
}

TEST(EngineTest, PreemptedSequencesGoOnWithTheSameText) {
    FakeStepRunner runner({.blocks_total = 16, .block_tokens = 4, .max_model_len = 60});
    Engine engine(runner, {.sequences_max = 4, .step_token_budget = 16});
    std::vector<EngineRequest> requests;
    std::vector<Submitted> submitted;
    for (std::int32_t i = 0; i < 8; ++i) {
        EngineRequest request{.prompt = prompt_of(6 + i, 10 * i), .max_tokens = 40};
        request.sampling.seed = static_cast<std::uint64_t>(i);
        requests.push_back(request);
        submitted.push_back(submit(engine, request));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(submitted[i].finish().reason, FinishReason::kLength);
        EXPECT_THAT(submitted[i].sink->tokens(), ElementsAreArray(expected_text(requests[i])));
        EXPECT_EQ(submitted[i].sink->starts(), 1);
    }
    EXPECT_GT(engine.status().preemptions_total, 0U) << "the pool is meant to run out";
}

TEST(EngineTest, DrainRefusesTheNewAndFinishesTheOld) {
    FakeStepRunner runner;
    StepGate gate;
    runner.on_run = [&](const auto&) { gate.enter(); };
    Engine engine(runner, {.sequences_max = 1});
    const Submitted running = submit(engine, {.prompt = prompt_of(4), .max_tokens = 3});
    const Submitted waiting = submit(engine, {.prompt = prompt_of(4), .max_tokens = 3});
    engine.drain();
    EXPECT_EQ(submit(engine, {.prompt = prompt_of(4)}).result.status, SubmitStatus::kStopping);
    gate.open();
    EXPECT_EQ(running.finish().reason, FinishReason::kLength);
    EXPECT_EQ(waiting.finish().reason, FinishReason::kLength);
}

TEST(EngineTest, TheDestructorCancelsEverything) {
    FakeStepRunner runner;
    std::vector<Submitted> submitted;
    {
        Engine engine(runner, {.sequences_max = 2});
        for (int i = 0; i < 6; ++i)
            submitted.push_back(submit(engine, {.prompt = prompt_of(4), .max_tokens = 60}));
    }
    for (const Submitted& each : submitted)
        EXPECT_EQ(each.sink->finishes(), 1);
    { const Engine idle(runner, {}); }
}

TEST(EngineTest, StatusAndCallbacksTellWhatHappened) {
    FakeStepRunner runner;
    std::int32_t prefill_rows = 0;
    std::int32_t decode_rows = 0;
    Engine engine(runner, {.on_step = [&](const StepStats& step) {
                      prefill_rows += step.prefill_rows;
                      decode_rows += step.decode_rows;
                      EXPECT_EQ(step.sequences, 1);
                  }});
    std::atomic<int> changes = 0;
    engine.on_status_change([&] { ++changes; });
    EXPECT_EQ(engine.status().sequences_max, 8);
    const Submitted submitted = submit(engine, {.prompt = prompt_of(6), .max_tokens = 5});
    const FinishInfo info = submitted.finish();
    const EngineStatus status = engine.status();
    EXPECT_EQ(status.steps, 5U);
    EXPECT_EQ(prefill_rows, 6);
    EXPECT_EQ(decode_rows, 4);
    EXPECT_EQ(status.prompt_tokens_total, 6U);
    EXPECT_EQ(status.generated_tokens_total, 5U);
    EXPECT_EQ(status.queued_tokens, 0);
    EXPECT_GT(status.decode_tokens_per_s, 0.0);
    EXPECT_GT(info.prefill_time.count(), 0.0);
    EXPECT_GT(info.decode_time.count(), 0.0);
    EXPECT_GE(info.queue_time.count(), 0.0);
    EXPECT_GE(changes, 4);
}

TEST(EngineTest, APureAttentionModelNeedsNoStateSlots) {
    FakeStepRunner runner({.has_recurrent_state = false});
    Engine engine(runner, {});
    const EngineRequest request{.prompt = prompt_of(5), .max_tokens = 4};
    const Submitted submitted = submit(engine, request);
    submitted.finish();
    EXPECT_THAT(submitted.sink->tokens(), ElementsAreArray(expected_text(request)));
}

}  // namespace
}  // namespace replica

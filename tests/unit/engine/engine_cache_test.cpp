// The prefix cache in the engine, around the pseudo-model, whose pages and states must agree: what
// is found again is never computed again, and nothing that is found changes a text.
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/engine/engine.h"
#include "tests/unit/engine/expected_text.h"
#include "tests/unit/engine/fake_step_runner.h"
#include "tests/unit/engine/recording_sink.h"

namespace replica {
namespace {

using testing::ElementsAreArray;

std::vector<TokenId> prompt_of(std::int32_t tokens, TokenId first = 1) {
    std::vector<TokenId> prompt(static_cast<std::size_t>(tokens));
    std::iota(prompt.begin(), prompt.end(), first);
    return prompt;
}

struct Answer {
    std::vector<TokenId> tokens;
    FinishInfo info;
};

/// Submits one request and waits for its end; its text must be what the model says alone.
Answer ask(Engine& engine, EngineRequest request) {
    auto sink = std::make_shared<RecordingSink>();
    const std::vector<TokenId> expected = expected_text(request);
    request.sinks = {sink};
    EXPECT_EQ(engine.submit(std::move(request)).status, SubmitStatus::kAccepted);
    const FinishInfo info = sink->wait_finished();
    EXPECT_THAT(sink->tokens(), ElementsAreArray(expected));
    EXPECT_EQ(sink->cached_tokens(), info.cached_tokens);
    return {.tokens = sink->tokens(), .info = info};
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST(EngineCacheTest, TheSamePromptAgainIsComputedFromItsLastTokenOn) {
    for (const bool has_state : {true, false}) {
        FakeStepRunner runner({.has_recurrent_state = has_state, .snapshots = 8});
        Engine engine(runner, {});
        const EngineRequest request{.prompt = prompt_of(30), .max_tokens = 5};
        EXPECT_EQ(ask(engine, request).info.cached_tokens, 0);
        const std::int64_t before = runner.rows_run;
        EXPECT_EQ(ask(engine, request).info.cached_tokens, has_state ? 29 : 28);
        EXPECT_LE(runner.rows_run - before, 6);
    }
}

TEST(EngineCacheTest, TheNextTurnOfAChatComputesItsNewTextOnly) {
    for (const bool has_state : {true, false}) {
        FakeStepRunner runner({.has_recurrent_state = has_state, .snapshots = 8});
        Engine engine(runner, {});
        EngineRequest first{.prompt = prompt_of(30), .max_tokens = 6};
        const Answer answer = ask(engine, first);
        // The reply is history now; its last token was drawn, but not computed.
        const EngineRequest second{
            .prompt = joined(joined(first.prompt, answer.tokens), prompt_of(5, 300)),
            .max_tokens = 4};
        EXPECT_EQ(ask(engine, second).info.cached_tokens, 35);
    }
}

TEST(EngineCacheTest, ARequestThatPartsAtABoundaryResumesThere) {
    FakeStepRunner runner({.snapshots = 8});
    Engine engine(runner, {});
    EngineRequest first{.prompt = prompt_of(40), .max_tokens = 2};
    first.boundaries = {18, 37};
    ask(engine, first);
    const EngineRequest second{.prompt = joined(prompt_of(20), prompt_of(15, 200)),
                               .max_tokens = 2};
    EXPECT_EQ(ask(engine, second).info.cached_tokens, 18);
}

TEST(EngineCacheTest, SaltsShareNothing) {
    FakeStepRunner runner({.snapshots = 8});
    Engine engine(runner, {});
    EngineRequest request{.prompt = prompt_of(30), .max_tokens = 2, .cache_salt = "a"};
    ask(engine, request);
    request.cache_salt = "b";
    EXPECT_EQ(ask(engine, request).info.cached_tokens, 0);
    request.cache_salt = "a";
    EXPECT_EQ(ask(engine, request).info.cached_tokens, 29);
}

TEST(EngineCacheTest, SwitchedOffNothingIsKeptAndNothingFound) {
    FakeStepRunner runner({.snapshots = 8});
    Engine engine(runner, {.has_prefix_cache = false});
    const EngineRequest request{.prompt = prompt_of(30), .max_tokens = 2};
    ask(engine, request);
    EXPECT_EQ(ask(engine, request).info.cached_tokens, 0);
    EXPECT_EQ(engine.status().cache.checkpoints, 0);
    EXPECT_EQ(engine.status().cache.blocks_cached, 0);
}

TEST(EngineCacheTest, CachedBlocksCountAsFreeAndHitsAreCountedInTokens) {
    FakeStepRunner runner({.snapshots = 8});
    Engine engine(runner, {});
    const EngineRequest request{.prompt = prompt_of(30), .max_tokens = 3};
    ask(engine, request);
    ask(engine, request);
    const EngineStatus status = engine.status();
    EXPECT_EQ(status.blocks_free, status.blocks_total);
    EXPECT_GT(status.cache.blocks_cached, 0);
    EXPECT_EQ(status.cache.query_tokens_total, 60U);
    EXPECT_EQ(status.cache.hit_tokens_total, 29U);
    EXPECT_EQ(status.cache.restored_total, 1U);
    EXPECT_EQ(status.cache.checkpoint_bytes,
              static_cast<std::uint64_t>(status.cache.checkpoints) * 100);
}

/// A and B in turn, in a pool too small for both, with few places for states.
TEST(EngineCacheTest, TextsStayTheSameUnderEviction) {
    for (const bool has_state : {true, false}) {
        FakeStepRunner runner(
            {.blocks_total = 17, .has_recurrent_state = has_state, .snapshots = 2});
        Engine engine(runner, {});
        for (int round = 0; round < 6; ++round) {
            ask(engine, {.prompt = prompt_of(40), .max_tokens = 12});
            ask(engine, {.prompt = joined(prompt_of(20), prompt_of(25, 100)), .max_tokens = 9});
            ask(engine, {.prompt = prompt_of(44, 300), .max_tokens = 9});
        }
        EXPECT_EQ(engine.status().blocks_free, 17);
    }
}

TEST(EngineCacheTest, RequestsThatCollideInASmallPoolKeepTheirTexts) {
    for (std::uint32_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        std::mt19937 random(seed);
        const bool has_state = seed % 2 == 0;
        const auto drafts = static_cast<std::int32_t>(seed % 4);
        FakeStepRunner runner({.blocks_total = 24,
                               .has_recurrent_state = has_state,
                               .draft_tokens_max = drafts,
                               .snapshots = 4,
                               .draft_error_one_in = 3});
        Engine engine(runner, {.sequences_max = 4,
                               .waiting_max = 100,
                               .step_token_budget = 12,
                               .draft_tokens_max = drafts,
                               .drafts_always = seed % 3 == 0});
        std::vector<std::pair<EngineRequest, std::vector<std::shared_ptr<RecordingSink>>>> asked;
        for (int i = 0; i < 40; ++i) {
            const auto cut = static_cast<std::int32_t>(1 + random() % 30);
            EngineRequest request{
                .prompt =
                    joined(prompt_of(cut), prompt_of(static_cast<std::int32_t>(1 + random() % 8),
                                                     static_cast<TokenId>(random() % 9))),
                .max_tokens = static_cast<std::int32_t>(1 + random() % 20)};
            request.boundaries = {8, cut};
            if (cut < 8) request.boundaries.clear();
            if (request.boundaries.size() == 2 && cut == 8) request.boundaries.pop_back();
            const std::size_t choices = 1 + random() % 3;
            std::vector<std::shared_ptr<RecordingSink>> sinks;
            for (std::size_t c = 0; c < choices; ++c) {
                sinks.push_back(std::make_shared<RecordingSink>());
                request.sinks.push_back(sinks.back());
            }
            asked.emplace_back(request, sinks);
            ASSERT_EQ(engine.submit(std::move(request)).status, SubmitStatus::kAccepted);
        }
        for (auto& [request, sinks] : asked) {
            for (std::size_t c = 0; c < sinks.size(); ++c) {
                sinks[c]->wait_finished();
                EngineRequest alone = request;
                alone.choice_index = static_cast<std::int32_t>(c);
                EXPECT_THAT(sinks[c]->tokens(), ElementsAreArray(expected_text(alone)));
            }
        }
        const EngineStatus status = engine.status();
        EXPECT_EQ(status.blocks_free, 24);
        EXPECT_EQ(status.running + status.waiting, 0);
        EXPECT_EQ(status.queued_tokens, 0);
    }
}

TEST(EngineCacheTest, ChoicesComputeTheirPromptOnce) {
    for (const bool has_cache : {true, false}) {
        for (const bool has_state : {true, false}) {
            FakeStepRunner runner({.has_recurrent_state = has_state, .snapshots = 4});
            Engine engine(runner, {.has_prefix_cache = has_cache});
            EngineRequest request{.prompt = prompt_of(30), .max_tokens = 6};
            std::vector<std::shared_ptr<RecordingSink>> sinks;
            for (int i = 0; i < 5; ++i) {
                sinks.push_back(std::make_shared<RecordingSink>());
                request.sinks.push_back(sinks.back());
            }
            engine.submit(request);
            for (std::size_t i = 0; i < sinks.size(); ++i) {
                const FinishInfo info = sinks[i]->wait_finished();
                EXPECT_EQ(info.cached_tokens, 0) << "not what the choices share among themselves";
                EngineRequest alone = request;
                alone.choice_index = static_cast<std::int32_t>(i);
                EXPECT_THAT(sinks[i]->tokens(), ElementsAreArray(expected_text(alone)));
            }
            // The prompt, and for each choice behind the first its last token again.
            EXPECT_EQ(runner.rows_run, 30 + 4 + 5 * 5);
            EXPECT_EQ(engine.status().prompt_tokens_total, 30U);
        }
    }
}

TEST(EngineCacheTest, ChoicesAreOneEntryOfTheQueueAndEndTogetherWhenCancelled) {
    FakeStepRunner runner({.snapshots = 4});
    StepGate gate;
    runner.on_run = [&gate](const kernels::StepDescriptor&) { gate.enter(); };
    Engine engine(runner, {.sequences_max = 1, .waiting_max = 1});
    EngineRequest request{.prompt = prompt_of(10), .max_tokens = 40};
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (int i = 0; i < 4; ++i) {
        sinks.push_back(std::make_shared<RecordingSink>());
        request.sinks.push_back(sinks.back());
    }
    const RequestId id = engine.submit(request).id;
    gate.wait_for_step();
    EXPECT_EQ(engine.status().running, 1);
    EXPECT_EQ(engine.status().waiting, 0);
    auto other = std::make_shared<RecordingSink>();
    const EngineRequest second{.prompt = prompt_of(5), .max_tokens = 1, .sinks = {other}};
    EXPECT_EQ(engine.submit(second).status, SubmitStatus::kAccepted);
    EXPECT_EQ(engine.submit(second).status, SubmitStatus::kQueueFull);
    engine.cancel(id);
    gate.open();
    for (const auto& sink : sinks)
        EXPECT_EQ(sink->wait_finished().reason, FinishReason::kCancelled);
    EXPECT_EQ(other->wait_finished().reason, FinishReason::kLength);
    EXPECT_EQ(engine.status().blocks_free, engine.status().blocks_total);
}

TEST(EngineCacheTest, TheQueueIsBoundedByTokensOnceTheyAreKnown) {
    FakeStepRunner runner;
    StepGate gate;
    runner.on_run = [&gate](const kernels::StepDescriptor&) { gate.enter(); };
    Engine engine(runner, {.sequences_max = 1, .queued_tokens_max = 50, .step_token_budget = 8});
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    const auto try_submit = [&](std::int32_t tokens) {
        sinks.push_back(std::make_shared<RecordingSink>());
        return engine
            .submit({.prompt = prompt_of(tokens), .max_tokens = 1, .sinks = {sinks.back()}})
            .status;
    };
    EXPECT_EQ(try_submit(60), SubmitStatus::kAccepted) << "an empty queue takes any prompt";
    EXPECT_EQ(try_submit(1), SubmitStatus::kQueueFull);
    gate.wait_for_step();
    gate.let_pass(4);  // 32 of the 60 tokens
    gate.wait_for_step();
    EXPECT_EQ(engine.status().queued_tokens_max, 50);
    EXPECT_EQ(try_submit(20), SubmitStatus::kAccepted);
    EXPECT_EQ(try_submit(20), SubmitStatus::kQueueFull);
    gate.open();
    sinks[0]->wait_finished();
    sinks[2]->wait_finished();
}

/// A prompt that needs every block there is can resume at whole pages only: a tail's page would
/// have to be copied to one block more.
TEST(EngineCacheTest, APromptOfTheWholePoolIsServedAgain) {
    for (const bool has_state : {true, false}) {
        for (const std::int32_t tokens : {60, 61, 62, 63}) {
            FakeStepRunner runner(
                {.blocks_total = 16, .has_recurrent_state = has_state, .snapshots = 4});
            Engine engine(runner, {.sequences_max = 2});
            for (int i = 0; i < 3; ++i)
                ask(engine, {.prompt = prompt_of(tokens), .max_tokens = 64 - tokens});
            EngineRequest request{.prompt = prompt_of(tokens), .max_tokens = 64 - tokens};
            std::vector<std::shared_ptr<RecordingSink>> sinks{std::make_shared<RecordingSink>(),
                                                              std::make_shared<RecordingSink>()};
            request.sinks = {sinks[0], sinks[1]};
            engine.submit(request);
            for (const auto& sink : sinks)
                EXPECT_EQ(sink->wait_finished().reason, FinishReason::kLength);
        }
    }
}

/// Sequences that share pages are preempted: what one gives up is free only when nobody else reads
/// it.
TEST(EngineCacheTest, PreemptedChoicesGiveUpOnlyWhatNobodyElseHolds) {
    for (const bool has_state : {true, false}) {
        for (const std::int32_t blocks : {16, 17, 20, 24}) {
            FakeStepRunner runner(
                {.blocks_total = blocks, .has_recurrent_state = has_state, .snapshots = 8});
            Engine engine(runner, {.sequences_max = 8, .waiting_max = 20});
            std::vector<std::pair<EngineRequest, std::vector<std::shared_ptr<RecordingSink>>>>
                asked;
            for (int i = 0; i < 3; ++i) {
                EngineRequest request{.prompt = prompt_of(20, i == 2 ? 100 : 1), .max_tokens = 40};
                std::vector<std::shared_ptr<RecordingSink>> sinks;
                for (int c = 0; c < 4; ++c) {
                    sinks.push_back(std::make_shared<RecordingSink>());
                    request.sinks.push_back(sinks.back());
                }
                asked.emplace_back(request, sinks);
                engine.submit(request);
            }
            for (auto& [request, sinks] : asked) {
                for (std::size_t c = 0; c < sinks.size(); ++c) {
                    sinks[c]->wait_finished();
                    EngineRequest alone = request;
                    alone.choice_index = static_cast<std::int32_t>(c);
                    EXPECT_THAT(sinks[c]->tokens(), ElementsAreArray(expected_text(alone)));
                }
            }
            EXPECT_GT(engine.status().preemptions_total, 0U);
            EXPECT_EQ(engine.status().blocks_free, blocks);
        }
    }
}

TEST(EngineCacheTest, WhereTwoTextsPartedAThirdResumes) {
    FakeStepRunner runner({.snapshots = 8});
    Engine engine(runner, {});
    const auto text = [](TokenId tail) { return joined(prompt_of(33), prompt_of(10, tail)); };
    ask(engine, {.prompt = text(100), .max_tokens = 2});
    EXPECT_EQ(ask(engine, {.prompt = text(200), .max_tokens = 2}).info.cached_tokens, 0);
    EXPECT_EQ(ask(engine, {.prompt = text(300), .max_tokens = 2}).info.cached_tokens, 32);
}

}  // namespace
}  // namespace replica

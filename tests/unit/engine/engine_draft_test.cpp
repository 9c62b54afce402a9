// Speculation in the engine around the pseudo-model: the text is that of plain decoding whatever
// the drafts are, the draft block's cache fits the text, and steps are saved when drafts are right.
#include <memory>
#include <numeric>
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

struct Batch {
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<RecordingSink>> sinks;

    void add(EngineRequest request) {
        sinks.push_back(std::make_shared<RecordingSink>());
        request.sinks = {sinks.back()};
        requests.push_back(std::move(request));
    }
    /// All at once; every text must be the model's.
    std::vector<FinishInfo> run(Engine& engine) {
        for (const EngineRequest& request : requests)
            EXPECT_EQ(engine.submit(request).status, SubmitStatus::kAccepted);
        std::vector<FinishInfo> infos;
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            infos.push_back(sinks[i]->wait_finished());
            EXPECT_THAT(sinks[i]->tokens(), ElementsAreArray(expected_text(requests[i])));
        }
        return infos;
    }
};

EngineOptions drafting(std::int32_t drafts, std::int32_t batch_max = 8) {
    EngineOptions options;
    options.draft_tokens_max = drafts;
    options.draft_batch_max = batch_max;
    options.drafts_always = true;
    return options;
}

TEST(EngineDraftTest, RightDraftsSaveStepsAndGiveTheSameText) {
    for (std::int32_t drafts = 1; drafts <= 4; ++drafts) {
        FakeStepRunner runner({.draft_tokens_max = drafts});
        Engine engine(runner, drafting(drafts));
        Batch batch;
        batch.add({.prompt = prompt_of(9), .max_tokens = 41});
        const FinishInfo info = batch.run(engine)[0];
        EXPECT_EQ(runner.draft_entries_wrong, 0);
        EXPECT_EQ(info.accepted_tokens, info.drafted_tokens);
        // The prompt's step gives one token, each of the others 1 + drafts.
        EXPECT_EQ(engine.status().steps,
                  1U + (40U + static_cast<unsigned>(drafts)) / static_cast<unsigned>(1 + drafts));
    }
}

TEST(EngineDraftTest, WrongDraftsAreRolledBack) {
    for (const bool has_state : {true, false}) {
        FakeStepRunner runner(
            {.has_recurrent_state = has_state, .draft_tokens_max = 3, .draft_error_one_in = 2});
        Engine engine(runner, drafting(3));
        Batch batch;
        for (TokenId first = 1; first < 6; ++first)
            batch.add({.prompt = prompt_of(7, first * 20), .max_tokens = 40});
        for (const FinishInfo& info : batch.run(engine)) {
            EXPECT_GT(info.accepted_tokens, 0);
            EXPECT_LT(info.accepted_tokens, info.drafted_tokens);
        }
        EXPECT_EQ(runner.draft_entries_wrong, 0);
        const DraftStatus status = engine.status().draft;
        EXPECT_GT(status.drafted_total[0], status.accepted_total[0]);
        EXPECT_GT(status.accepted_total[0], status.accepted_total[2]);
    }
}

TEST(EngineDraftTest, DraftsOfOtherSeedsAreNeverAcceptedAndChangeNothing) {
    FakeStepRunner runner({.draft_tokens_max = 2});
    Engine engine(runner, drafting(2));
    Batch batch;
    EngineRequest request{.prompt = prompt_of(9), .max_tokens = 30};
    request.sampling.seed = 99;
    batch.add(request);
    batch.run(engine);
    EXPECT_EQ(runner.draft_entries_wrong, 0);
}

TEST(EngineDraftTest, LongPromptsKeepTheDraftBlockInStep) {
    FakeStepRunner runner({.rows = 16, .draft_tokens_max = 3, .draft_error_one_in = 4});
    EngineOptions options = drafting(3);
    options.step_token_budget = 11;
    Engine engine(runner, options);
    Batch batch;
    for (TokenId first = 1; first < 5; ++first)
        batch.add({.prompt = prompt_of(30, first * 40), .max_tokens = 30});
    batch.run(engine);
    EXPECT_EQ(runner.draft_entries_wrong, 0);
}

TEST(EngineDraftTest, TheRequestMaySwitchItOff) {
    FakeStepRunner runner({.draft_tokens_max = 3});
    Engine engine(runner, drafting(3));
    Batch batch;
    batch.add({.prompt = prompt_of(9), .max_tokens = 20, .draft_tokens = 0});
    EXPECT_EQ(batch.run(engine)[0].drafted_tokens, 0);
    EXPECT_EQ(runner.draft_passes, 0);
    Batch one;
    one.add({.prompt = prompt_of(9, 50), .max_tokens = 20, .draft_tokens = 1});
    one.run(engine);
    EXPECT_EQ(engine.status().draft.drafted_total[1], 0U);
    EXPECT_GT(engine.status().draft.drafted_total[0], 0U);
}

TEST(EngineDraftTest, NobodyDraftsInALargerBatchThanAllowed) {
    FakeStepRunner runner({.draft_tokens_max = 3});
    Engine engine(runner, drafting(3, 2));
    StepGate gate;
    runner.on_run = [&gate](const kernels::StepDescriptor&) { gate.enter(); };
    Batch batch;
    for (TokenId first = 1; first < 6; ++first)
        batch.add({.prompt = prompt_of(5, first * 20), .max_tokens = 30});
    gate.open();
    batch.run(engine);
}

TEST(EngineDraftTest, WhatEndsASequenceEndsItInTheMiddleOfAccepted) {
    for (std::int32_t stop_after = 1; stop_after < 9; ++stop_after) {
        FakeStepRunner runner({.draft_tokens_max = 4});
        Engine engine(runner, drafting(4));
        EngineRequest request{.prompt = prompt_of(9), .max_tokens = 40};
        const std::vector<TokenId> text = expected_text(request);
        request.stop_token_ids = {text[static_cast<std::size_t>(stop_after)]};
        auto sink = std::make_shared<RecordingSink>();
        request.sinks = {sink};
        engine.submit(request);
        const FinishInfo info = sink->wait_finished();
        EXPECT_EQ(info.generated_tokens, stop_after + 1);
        EXPECT_THAT(sink->tokens(), ElementsAreArray(text.begin(), text.begin() + stop_after));
        EXPECT_EQ(engine.status().blocks_free, engine.status().blocks_total);
    }
}

TEST(EngineDraftTest, NeverDraftsPastTheTokenLimit) {
    for (std::int32_t limit = 1; limit < 8; ++limit) {
        FakeStepRunner runner({.draft_tokens_max = 4});
        Engine engine(runner, drafting(4));
        Batch batch;
        batch.add({.prompt = prompt_of(64 - limit), .max_tokens = limit});
        EXPECT_EQ(batch.run(engine)[0].generated_tokens, limit);
    }
}

/// Rows set aside while nothing is drafted are caught up with in bulk: the probes that come later
/// find the draft block in step.
TEST(EngineDraftTest, TheDraftBlockIsInStepWhenDraftingComesBack) {
    FakeStepRunner runner({.blocks_total = 300,
                           .max_model_len = 1000,
                           .draft_tokens_max = 2,
                           .draft_error_one_in = 1});
    EngineOptions options;
    options.draft_tokens_max = 2;
    Engine engine(runner, options);
    Batch batch;
    batch.add({.prompt = prompt_of(9), .max_tokens = 600});
    batch.run(engine);
    EXPECT_EQ(runner.draft_entries_wrong, 0);
    EXPECT_GT(runner.draft_rows_run, 600);
}

TEST(EngineDraftTest, APreemptedSequenceDraftsAgain) {
    FakeStepRunner runner({.blocks_total = 18, .draft_tokens_max = 3, .snapshots = 0});
    Engine engine(runner, drafting(3));
    Batch batch;
    for (TokenId first = 1; first < 5; ++first)
        batch.add({.prompt = prompt_of(20, first * 40), .max_tokens = 30});
    batch.run(engine);
    EXPECT_GT(engine.status().preemptions_total, 0U);
    EXPECT_EQ(runner.draft_entries_wrong, 0);
}

}  // namespace
}  // namespace replica

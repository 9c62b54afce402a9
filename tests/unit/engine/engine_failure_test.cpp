// Failures: one bad row fails one request; a lost device fails them all, once, and is reported.
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/engine/expected_text.h"
#include "tests/unit/engine/fake_step_runner.h"
#include "tests/unit/engine/recording_sink.h"

namespace replica {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr TokenId kPoison = 66;

TEST(EngineFailureTest, ARowWithoutAFiniteLogitFailsItsRequestAlone) {
    FakeStepRunner runner;
    runner.poison = kPoison;
    StepGate gate;
    runner.on_run = [&](const auto&) { gate.enter(); };
    Engine engine(runner, {});
    const EngineRequest healthy{.prompt = {1, 2, 3}, .max_tokens = 9};
    auto bad = std::make_shared<RecordingSink>();
    auto good = std::make_shared<RecordingSink>();
    EngineRequest request = healthy;
    request.sinks = {good};
    engine.submit(request);
    engine.submit({.prompt = {kPoison, 4}, .sinks = {bad}});
    gate.open();
    const FinishInfo info = bad->wait_finished();
    EXPECT_EQ(info.reason, FinishReason::kError);
    EXPECT_THAT(info.error, HasSubstr("finite"));
    EXPECT_EQ(info.generated_tokens, 0);
    EXPECT_EQ(good->wait_finished().reason, FinishReason::kLength);
    EXPECT_THAT(good->tokens(), ElementsAreArray(expected_text(healthy)));
    EXPECT_EQ(engine.status().blocks_free, engine.status().blocks_total);
}

TEST(EngineFailureTest, ALostDeviceFailsEveryRequestAndStopsTheEngine) {
    FakeStepRunner runner;
    StepGate gate;
    int steps = 0;
    runner.on_run = [&](const auto&) {
        gate.enter();
        if (++steps == 4) throw std::runtime_error("cuStreamSynchronize: device is lost");
    };
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    std::promise<std::string> fatal;
    int unfinished_at_fatal = -1;
    EngineOptions options{.sequences_max = 2};
    options.on_fatal = [&](const std::string& reason) {
        unfinished_at_fatal = 0;
        for (const auto& sink : sinks)
            unfinished_at_fatal += sink->finishes() == 1 ? 0 : 1;
        fatal.set_value(reason);
    };
    Engine engine(runner, options);
    for (int i = 0; i < 6; ++i) {
        sinks.push_back(std::make_shared<RecordingSink>());
        engine.submit({.prompt = {1, 2, 3}, .max_tokens = 20, .sinks = {sinks.back()}});
    }
    gate.open();
    EXPECT_THAT(fatal.get_future().get(), HasSubstr("device is lost"));
    EXPECT_EQ(unfinished_at_fatal, 0);
    for (const auto& sink : sinks) {
        EXPECT_EQ(sink->wait_finished().reason, FinishReason::kError);
        EXPECT_THAT(sink->wait_finished().error, HasSubstr("device is lost"));
    }
    const EngineStatus status = engine.status();
    EXPECT_EQ(status.running + status.waiting, 0);
    EXPECT_EQ(status.blocks_free, status.blocks_total);
    auto late = std::make_shared<RecordingSink>();
    EXPECT_EQ(engine.submit({.prompt = {1}, .sinks = {late}}).status, SubmitStatus::kStopping);
    engine.cancel(1);
    EXPECT_EQ(late->finishes(), 0);
}

TEST(EngineFailureTest, ALostDeviceNeedsNoCallback) {
    FakeStepRunner runner;
    runner.on_run = [](const auto&) { throw std::runtime_error("gone"); };
    Engine engine(runner, {});
    auto sink = std::make_shared<RecordingSink>();
    engine.submit({.prompt = {1, 2}, .sinks = {sink}});
    EXPECT_EQ(sink->wait_finished().reason, FinishReason::kError);
}

}  // namespace
}  // namespace replica

// In its steady state the engine thread allocates nothing: operator new is counted on it in the
// middle of several answers.
#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/engine/allocation_counter.h"
#include "tests/unit/engine/fake_step_runner.h"

namespace replica {
namespace {

/// Answers without keeping anything.
class CountingSink : public TokenSink {
public:
    SinkVerdict on_token(TokenId) override { return SinkVerdict::kContinue; }
    void on_finish(const FinishInfo&) override {
        is_finished = true;
        is_finished.notify_all();
    }
    std::atomic<bool> is_finished = false;
};

/// Neither checks nor keeps anything, so that only the engine could allocate.
class PlainRunner : public StepRunner {
public:
    PlainRunner() : limits_(FakeStepRunner().limits()) {}
    const RunnerLimits& limits() const override { return limits_; }
    const kernels::StepOutputs& run(const kernels::StepDescriptor& step) override {
        may_run.wait(false);
        ++steps_;
        count_allocations_of_this_thread(steps_ > 10 &&
                                         steps_ < 50);  // four answers of 60 tokens in full flow
        const auto rows = static_cast<std::size_t>(step.logit_rows);
        outputs_ = {.sampled = std::span(sampled_).first(rows),
                    .error = std::span(error_).first(rows)};
        return outputs_;
    }
    int steps() const { return steps_; }
    std::atomic<bool> may_run = false;  // not before all requests are there

private:
    RunnerLimits limits_;
    int steps_ = 0;
    std::array<std::int32_t, 8> sampled_{3, 3, 3, 3, 3, 3, 3, 3};
    std::array<std::uint8_t, 8> error_{};
    kernels::StepOutputs outputs_;
};

TEST(EngineAllocationTest, DecodingAllocatesNothing) {
    PlainRunner runner;
    Engine engine(runner, {});
    std::vector<std::shared_ptr<CountingSink>> sinks;
    for (int i = 0; i < 4; ++i) {
        sinks.push_back(std::make_shared<CountingSink>());
        EngineRequest request{.prompt = {1, 2, 3}, .max_tokens = 60, .sink = sinks.back()};
        if (i == 3) request.sampling.repetition_penalty = 1.1F;  // counts grow in known tokens
        engine.submit(request);
    }
    runner.may_run = true;
    runner.may_run.notify_all();
    for (const auto& sink : sinks)
        sink->is_finished.wait(false);
    EXPECT_GE(runner.steps(), 60);
    EXPECT_EQ(counted_allocations(), 0);
}

}  // namespace
}  // namespace replica

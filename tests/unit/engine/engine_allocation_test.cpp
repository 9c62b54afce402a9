// In its steady state the engine thread allocates nothing: operator new is counted on it in the
// middle of several answers.
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/engine/allocation_counter.h"
#include "tests/unit/engine/counting_sink.h"
#include "tests/unit/engine/fake_step_runner.h"

namespace replica {
namespace {

/// Neither checks nor keeps anything, so that only the engine could allocate.
class PlainRunner : public StepRunner {
public:
    explicit PlainRunner(FakeModel model) : limits_(FakeStepRunner(model).limits()) {
        sampled_.assign(static_cast<std::size_t>(limits_.step.logit_rows), 3);
        error_.assign(sampled_.size(), 0);
    }
    const RunnerLimits& limits() const override { return limits_; }
    const kernels::StepOutputs& run(const kernels::StepDescriptor& step) override {
        may_run.wait(false);
        ++steps_;
        // Four answers in full flow: past the prompts, before the first end.
        const int last = limits_.draft_tokens_max > 0 ? 14 : 50;
        count_allocations_of_this_thread(steps_ > 5 && steps_ < last);
        return answer(step);
    }
    const kernels::StepOutputs& answer(const kernels::StepDescriptor& step) {
        const auto rows = static_cast<std::size_t>(step.logit_rows);
        outputs_ = {.sampled = std::span(sampled_).first(rows),
                    .error = std::span(error_).first(rows)};
        return outputs_;
    }
    const kernels::StepOutputs& run_draft(const kernels::StepDescriptor& step,
                                          HiddenSource) override {
        return answer(step);
    }
    void keep_hidden(std::int32_t, std::int32_t, std::int32_t) override {}
    void replay(std::int32_t, std::int32_t, std::int32_t) override {}
    void copy_block(std::int32_t, std::int32_t) override {}
    void save_state(std::int32_t, std::int32_t) override {}
    void load_state(std::int32_t, std::int32_t) override {}
    int steps() const { return steps_; }
    std::atomic<bool> may_run = false;  // not before all requests are there

private:
    RunnerLimits limits_;
    int steps_ = 0;
    std::vector<std::int32_t> sampled_;
    std::vector<std::uint8_t> error_;
    kernels::StepOutputs outputs_;
};

/// Allocations of the engine thread in the steps in between, for four answers of 60 tokens.
int allocations_while_decoding(FakeModel model, EngineOptions options) {
    PlainRunner runner(model);
    Engine engine(runner, std::move(options));
    std::vector<std::shared_ptr<CountingSink>> sinks;
    for (int i = 0; i < 4; ++i) {
        sinks.push_back(std::make_shared<CountingSink>());
        EngineRequest request{.prompt = {1, 2, 3}, .max_tokens = 60, .sinks = {sinks.back()}};
        if (i == 3) request.sampling.repetition_penalty = 1.1F;  // counts grow in known tokens
        engine.submit(request);
    }
    runner.may_run = true;
    runner.may_run.notify_all();
    for (const auto& sink : sinks)
        sink->is_finished.wait(false);
    EXPECT_GE(runner.steps(), runner.limits().draft_tokens_max > 0 ? 15 : 60);
    return counted_allocations();
}

TEST(EngineAllocationTest, DecodingAllocatesNothing) {
    EXPECT_EQ(allocations_while_decoding({}, {}), 0);
}

TEST(EngineAllocationTest, DraftingAndVerifyingAllocatesNothing) {
    EXPECT_EQ(allocations_while_decoding(
                  {.draft_tokens_max = 3},
                  {.draft_tokens_max = 3, .draft_batch_max = 8, .drafts_always = true}),
              0);
}

TEST(EngineAllocationTest, SettingRowsAsideAndCatchingUpAllocatesNothing) {
    EXPECT_EQ(allocations_while_decoding({.draft_tokens_max = 3},
                                         {.draft_tokens_max = 3, .draft_batch_max = 8}),
              0);
}

}  // namespace
}  // namespace replica

// A pseudo-model behind StepRunner: the next token is a hash of all tokens of the sequence and of
// the draw. It keeps its own KV pages and state slots and reads the text back through them, so a
// wrong block table, slot or position changes the tokens; and it checks each descriptor.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "replica/engine/engine.h"
#include "replica/engine/step_runner.h"

namespace replica {

struct FakeModel {
    std::int32_t vocabulary = 500;
    std::int32_t rows = 32;
    std::int32_t seqs = 8;
    std::int32_t blocks_total = 64;
    std::int32_t block_tokens = 4;
    std::int32_t max_model_len = 64;
    bool has_recurrent_state = true;
};

/// The token the pseudo-model gives after `tokens`, undisturbed by anything else.
TokenId pseudo_next(std::span<const TokenId> tokens, const kernels::SamplingRow& sampling,
                    std::int32_t vocabulary);

class FakeStepRunner : public StepRunner {
public:
    explicit FakeStepRunner(FakeModel model = {});

    const RunnerLimits& limits() const override { return limits_; }
    const kernels::StepOutputs& run(const kernels::StepDescriptor& step) override;

    /// Called at the start of each step, on the engine thread; may block or throw.
    std::function<void(const kernels::StepDescriptor&)> on_run;
    /// A sequence that begins with this token gives rows without a finite logit.
    std::optional<TokenId> poison;

private:
    void check(const kernels::StepDescriptor& step) const;
    void store(const kernels::StepDescriptor& step, std::int32_t sequence);
    std::span<const TokenId> read_back(const kernels::StepDescriptor& step, std::int32_t sequence);

    RunnerLimits limits_;
    std::vector<TokenId> pages_;         // [blocks, block_tokens]
    std::vector<std::uint64_t> states_;  // [slots + 1] hash of the tokens so far
    std::vector<TokenId> text_;          // work memory
    std::vector<std::int32_t> sampled_;
    std::vector<std::uint8_t> error_;
    kernels::StepOutputs outputs_;
};

/// Lets steps through one by one, so that a test can act in the middle of one.
class StepGate {
public:
    /// For FakeStepRunner::on_run.
    void enter();
    /// Returns when a step stands at the gate.
    void wait_for_step();
    void let_pass(int steps);
    void open();

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int allowed_ = 0;
    bool is_open_ = false;
    bool is_step_waiting_ = false;
};

}  // namespace replica

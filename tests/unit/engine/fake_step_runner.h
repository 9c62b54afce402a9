// A pseudo-model behind StepRunner: the next token is a hash of all tokens of the sequence and of
// the draw. It keeps its own KV pages, recurrent states and draft block, and reads the text back
// through them, so a wrong block table, slot, replay or position changes the tokens; and it checks
// each descriptor.
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
    std::int32_t draft_tokens_max = 0;
    std::int32_t logit_rows = 0;  // 0 = enough for every sequence to draft
    std::int32_t kept_rows = 4;
    std::int32_t snapshots = 0;
    /// Of so many drafts one is wrong; 0 = all are right (for seed 0 and choice 0).
    std::int32_t draft_error_one_in = 0;
};

/// The token the pseudo-model gives after `tokens`, undisturbed by anything else.
TokenId pseudo_next(std::span<const TokenId> tokens, const kernels::SamplingRow& sampling,
                    std::int32_t vocabulary);

class FakeStepRunner : public StepRunner {
public:
    explicit FakeStepRunner(FakeModel model = {});

    const RunnerLimits& limits() const override { return limits_; }
    const kernels::StepOutputs& run(const kernels::StepDescriptor& step) override;
    const kernels::StepOutputs& run_draft(const kernels::StepDescriptor& step,
                                          HiddenSource source) override;
    void keep_hidden(std::int32_t row, std::int32_t slot, std::int32_t index) override;
    void replay(std::int32_t slot, std::int32_t rows, std::int32_t kv_len) override;
    void copy_block(std::int32_t from, std::int32_t to) override;
    void save_state(std::int32_t slot, std::int32_t snapshot) override;
    void load_state(std::int32_t snapshot, std::int32_t slot) override;

    /// Called at the start of each step, on the engine thread; may block or throw.
    std::function<void(const kernels::StepDescriptor&)> on_run;
    /// A sequence that begins with this token gives rows without a finite logit.
    std::optional<TokenId> poison;

    // What happened; read when the engine is idle.
    std::int64_t rows_run = 0;
    std::int64_t draft_passes = 0;
    std::int64_t draft_rows_run = 0;
    std::int64_t draft_entries_wrong = 0;  // entries in front of a row that do not fit its text

private:
    using Text = std::vector<TokenId>;
    struct Slot {
        std::uint64_t state = 0;  // hash of the tokens so far
        Text replay;              // rows of the last verify step
    };
    void check(const kernels::StepDescriptor& step) const;
    void store(const kernels::StepDescriptor& step, std::int32_t sequence);
    std::span<const TokenId> read_back(const kernels::StepDescriptor& step, std::int32_t row);
    std::size_t place(const kernels::StepDescriptor& step, std::int32_t sequence,
                      std::int32_t position) const;

    FakeModel model_;
    RunnerLimits limits_;
    Text pages_;                                // [blocks, block_tokens]
    std::vector<std::uint64_t> draft_entries_;  // [blocks, block_tokens] hash of the text they know
    std::vector<Slot> slots_;                   // [slots + 1]
    std::vector<Slot> snapshots_;
    std::vector<Text> hidden_, draft_hidden_;  // [rows + kept], [rows] the text a row has seen
    Text text_;                                // work memory
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

// What the engine asks of a model: run one step, and move what the caches keep. The real one is
// replica/model/runner; tests use a fake.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace replica {

/// More drafts than this in a row never pay: acceptance falls with every one.
inline constexpr std::int32_t kDraftTokensMax = 8;

struct RunnerLimits {
    kernels::StepLimits step;       // the largest step the runner was prepared for
    std::int32_t blocks_total = 0;  // KV pages, numbered 0 .. blocks_total - 1
    std::int32_t block_tokens = 0;
    std::int32_t state_slots = 0;  // recurrent slots, numbered 1 .. state_slots; slot 0 is scratch.
                                   // Pure-attention models have none and ignore state_slot
    bool has_recurrent_state = false;
    std::int32_t max_model_len = 0;
    std::int32_t draft_tokens_max = 0;  // drafts of one verify step; 0 = cannot speculate
    std::int32_t kept_rows = 0;         // hidden rows that keep_hidden can hold per state slot
    std::int32_t snapshots = 0;         // places for saved states, numbered 0 .. snapshots - 1
    std::uint64_t snapshot_bytes = 0;   // of one place
};

/// Whose hidden rows a draft pass joins: the trunk's, or those of the draft pass before it.
enum class HiddenSource { kTrunk, kDraft };

/// Engine thread only.
class StepRunner {
public:
    virtual ~StepRunner() = default;
    virtual const RunnerLimits& limits() const = 0;
    /// One forward pass over the batch. The result is valid until the next call.
    virtual const kernels::StepOutputs& run(const kernels::StepDescriptor& step) = 0;

    // Speculation; only when draft_tokens_max > 0.

    /// One pass of the MTP block over `step`: row m, at KV position p, joins its token (of text
    /// position p + 1) with hidden row step.hidden_row[m]. From kTrunk, rows 0 .. step.rows - 1 are
    /// those of the last `run`, and kept_row(slot, i) the kept ones. Draws as the step asks.
    virtual const kernels::StepOutputs& run_draft(const kernels::StepDescriptor& step,
                                                  HiddenSource source) = 0;
    /// Keeps hidden row `row` of the last `run` for a later draft pass.
    virtual void keep_hidden(std::int32_t row, std::int32_t slot, std::int32_t index) = 0;
    std::int32_t kept_row(std::int32_t slot, std::int32_t index) const {
        return limits().step.rows + slot * limits().kept_rows + index;
    }
    /// Brings the state in `slot` up to date: the first `rows` rows of its last verify step, which
    /// ended with `kv_len` accepted tokens, become part of it.
    virtual void replay(std::int32_t slot, std::int32_t rows, std::int32_t kv_len) = 0;

    // Caches. States must be up to date (see `replay`).

    virtual void copy_block(std::int32_t from, std::int32_t to) = 0;
    virtual void save_state(std::int32_t slot, std::int32_t snapshot) = 0;
    virtual void load_state(std::int32_t snapshot, std::int32_t slot) = 0;
};

}  // namespace replica

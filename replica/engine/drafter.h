// Guesses the next tokens with the model's MTP block, and keeps that block's cache in step.
//
//   trunk step ─▶ tokens accepted ─▶ catch up: entries for all rows the trunk has just computed
//                                    ─▶ draft 1 from the last of them ─▶ draft 2 from draft 1 ─▶ …
//   next trunk step verifies: [last token, draft 1, draft 2, …]
//
// An entry needs the trunk's hidden row, which the next step overwrites. A sequence that does not
// draft now sets its rows aside and catches up many at once; one that decodes in too large a batch
// gives up for good, since its cache then has a hole. Drafts are guesses: whatever happens here,
// the text stays the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "replica/cache/block_pool.h"
#include "replica/engine/draft_pass.h"
#include "replica/engine/draft_policy.h"
#include "replica/engine/engine_limits.h"
#include "replica/engine/step_builder.h"
#include "replica/engine/step_runner.h"

namespace replica {

/// Engine thread only.
class Drafter {
public:
    /// `runner` and `pool` outlive the drafter.
    Drafter(StepRunner& runner, BlockPool& pool, const EngineLimits& limits);

    bool is_enabled() const { return limits_.draft_tokens_max > 0; }
    /// A step without prompt rows took so long.
    void record_trunk(std::int32_t rows, std::chrono::duration<double> time);
    /// Of `drafted` drafts that a sequence had, `accepted` came true.
    void record_verified(Sequence& sequence, std::int32_t drafted, std::int32_t accepted);
    /// After a trunk step whose tokens are accepted: fills `drafts` of the sequences that go on.
    void draft(std::span<const StepBuilder::Entry> entries);

    const DraftPolicy& policy() const { return policy_; }
    void fill(DraftStatus& status) const;

private:
    /// A sequence of the last step and what the block has yet to see of it.
    struct Work {
        Sequence* sequence;
        std::int32_t first_row;       // of the trunk step
        std::int32_t first_position;  // of that row
        std::int32_t drafts = 0;      // wanted
    };
    void sort_out(std::span<const StepBuilder::Entry> entries);
    void set_aside(const Work& work);
    std::int32_t drafts_that_fit(Sequence& sequence, std::int32_t drafts);
    void catch_up();
    std::int32_t missing(const Work& work) const;
    void add_missing(const Work& work, std::int32_t end);
    void run_pass();
    void chain(std::int32_t drafts);
    void take_drafts(const kernels::StepOutputs& outputs);

    StepRunner& runner_;
    BlockPool& pool_;
    EngineLimits limits_;
    DraftPolicy policy_;
    DraftPass pass_;
    std::vector<Work> work_;  // not drafting: entries only
    std::vector<Work> drafting_;
    std::vector<const Acceptance*> batch_;
    std::vector<std::int32_t> hidden_rows_;  // [drafting] of the last pass
    std::int32_t drafts_ = 0;                // chosen last
    std::array<std::uint64_t, kDraftTokensMax> drafted_total_{}, accepted_total_{};
};

}  // namespace replica

#include "replica/model/rehearsal.h"

#include <algorithm>

namespace replica {

using kernels::StepProgram;

std::vector<Rehearsal> plan_rehearsals(const RehearsalQuery& query) {
    std::vector<Rehearsal> plan;
    const auto add = [&](StepProgram program, std::int32_t sequences, std::int32_t rows) {
        const std::int32_t all = sequences * rows;
        const std::int32_t logit_rows = program == StepProgram::kTrunk ? all : sequences;
        if (all > query.rows_max || logit_rows > query.logit_rows) return;
        if (static_cast<std::int32_t>(plan.size()) == query.steps_max) return;
        plan.push_back({.program = program, .sequences = sequences, .rows = rows});
    };
    for (std::int32_t n = 1; n <= query.sequences; ++n)
        add(StepProgram::kTrunk, n, 1);
    if (query.draft_tokens_max == 0) return plan;
    const std::int32_t batch = std::min(query.draft_batch_max, query.sequences);
    for (std::int32_t n = 1; n <= batch; ++n) {
        for (std::int32_t drafts = 1; drafts <= query.draft_tokens_max; ++drafts)
            add(StepProgram::kTrunk, n, 1 + drafts);
        for (std::int32_t rows = 1; rows <= 1 + query.draft_tokens_max; ++rows)
            add(StepProgram::kDraftFromTrunk, n, rows);
        if (query.draft_tokens_max > 1) add(StepProgram::kDraftFromDraft, n, 1);
    }
    return plan;
}

RehearsedStep::RehearsedStep(const Rehearsal& rehearsal) {
    const std::int32_t rows = rehearsal.sequences * rehearsal.rows;
    logit_rows_ = rehearsal.program == StepProgram::kTrunk ? rows : rehearsal.sequences;
    rows_.assign(static_cast<std::size_t>(rows), 0);
    seqs_.assign(static_cast<std::size_t>(rehearsal.sequences), 0);
    commit_.assign(static_cast<std::size_t>(rehearsal.sequences), rehearsal.rows == 1 ? 1 : 0);
    for (std::int32_t s = 0; s <= rehearsal.sequences; ++s)
        row_begin_.push_back(s * rehearsal.rows);
    sampling_.assign(static_cast<std::size_t>(logit_rows_), {.temperature = 0.0F});
}

kernels::StepDescriptor RehearsedStep::descriptor() const {
    kernels::StepDescriptor step;
    step.rows = row_begin_.back();
    step.seqs = static_cast<std::int32_t>(seqs_.size());
    step.logit_rows = logit_rows_;
    step.token = step.position = step.seq_of_row = step.hidden_row = rows_;
    step.row_begin = row_begin_;
    step.kv_len_before = step.kv_len = step.state_slot = step.replay_rows = seqs_;
    step.commit = commit_;
    step.logit_row = rows_;
    step.sampling = sampling_;
    return step;
}

}  // namespace replica

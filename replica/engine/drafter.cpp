#include "replica/engine/drafter.h"

#include <algorithm>
#include <cassert>

namespace replica {

Drafter::Drafter(StepRunner& runner, BlockPool& pool, const EngineLimits& limits)
    : runner_(runner),
      pool_(pool),
      limits_(limits),
      policy_({.draft_tokens_max = limits.draft_tokens_max,
               .batch_max = limits.draft_batch_max,
               .rows_max = runner.limits().step.rows,
               .is_always_on = limits.drafts_always}),
      pass_(runner.limits().step) {
    const auto sequences = static_cast<std::size_t>(limits.sequences_max);
    work_.reserve(sequences);
    drafting_.reserve(sequences);
    batch_.reserve(sequences);
    hidden_rows_.reserve(sequences);
}

void Drafter::record_trunk(std::int32_t rows, std::chrono::duration<double> time) {
    policy_.record_trunk(rows, time);
}

void Drafter::record_verified(Sequence& sequence, std::int32_t drafted, std::int32_t accepted) {
    sequence.acceptance.record(drafted, accepted);
    policy_.record_acceptance(drafted, accepted);
    for (std::size_t i = 0; i < static_cast<std::size_t>(drafted); ++i) {
        ++drafted_total_[i];
        if (i < static_cast<std::size_t>(accepted)) ++accepted_total_[i];
    }
}

void Drafter::draft(std::span<const StepBuilder::Entry> entries) {
    if (!is_enabled()) return;
    sort_out(entries);
    const auto begin = Clock::now();
    const bool is_undisturbed = work_.empty();
    catch_up();
    if (drafting_.empty()) return;
    const std::int32_t most = std::ranges::max_element(drafting_, {}, &Work::drafts)->drafts;
    chain(most);
    if (!is_undisturbed) return;
    policy_.record_drafting(static_cast<std::int32_t>(drafting_.size()), most,
                            Clock::now() - begin);
}

/// Who drafts, who only catches up, who sets rows aside, and who gives up.
void Drafter::sort_out(std::span<const StepBuilder::Entry> entries) {
    work_.clear();
    drafting_.clear();
    batch_.clear();
    for (const StepBuilder::Entry& entry : entries) {
        Sequence& sequence = *entry.sequence;
        if (sequence.state() != SequenceState::kRunning || sequence.draft_entries < 0) continue;
        sequence.drafts.clear();
        if (sequence.draft_tokens_max() == 0) {
            sequence.draft_entries = Sequence::kNoDrafts;
            continue;
        }
        const Work work{.sequence = &sequence,
                        .first_row = entry.first_row,
                        .first_position = sequence.draft_entries + sequence.kept_rows};
        (sequence.is_decoding() ? drafting_ : work_).push_back(work);
        if (sequence.is_decoding()) batch_.push_back(&sequence.acceptance);
    }
    drafts_ = policy_.choose(batch_);
    const bool is_too_many = static_cast<std::int32_t>(batch_.size()) > limits_.draft_batch_max;
    for (Work& work : drafting_) {
        work.drafts =
            drafts_that_fit(*work.sequence, std::min(drafts_, work.sequence->drafts_allowed()));
        if (work.drafts > 0) continue;
        const std::int32_t rows = work.sequence->computed() - work.first_position;
        if (work.sequence->kept_rows + rows <= runner_.limits().kept_rows) {
            set_aside(work);
        } else if (is_too_many) {
            work.sequence->draft_entries = Sequence::kNoDrafts;
        } else {
            work_.push_back(work);
        }
    }
    std::erase_if(drafting_, [](const Work& work) { return work.drafts == 0; });
}

void Drafter::set_aside(const Work& work) {
    Sequence& sequence = *work.sequence;
    for (std::int32_t at = work.first_position; at < sequence.computed(); ++at) {
        runner_.keep_hidden(work.first_row + at - work.first_position, sequence.state_slot,
                            sequence.kept_rows++);
    }
}

/// Drafts whose entries fit into blocks: those the sequence has, or free ones. Nobody makes room
/// for a guess.
std::int32_t Drafter::drafts_that_fit(Sequence& sequence, std::int32_t drafts) {
    // Draft n comes from entry computed + n - 2, which lies within computed + n - 1 tokens.
    while (drafts > 0 && !sequence.blocks.grow_to(sequence.computed() + drafts - 1, pool_))
        --drafts;
    return drafts;
}

/// Entries that the block has not seen and the trunk has computed.
std::int32_t Drafter::missing(const Work& work) const {
    return work.sequence->computed() - work.sequence->draft_entries;
}

/// Runs the block over all that is missing, in as few passes as fit. The last pass holds the last
/// row of each drafting sequence, so that their hidden rows are there for the chain.
void Drafter::catch_up() {
    pass_.clear();
    const std::int32_t rows_max = runner_.limits().step.rows;
    for (const Work& work : work_)
        add_missing(work, work.sequence->computed());
    std::int32_t rows = 0;
    for (const Work& work : drafting_)
        rows += missing(work);
    if (pass_.rows() > 0 && pass_.rows() + rows > rows_max) run_pass();
    if (rows > rows_max) {
        for (const Work& work : drafting_)
            add_missing(work, work.sequence->computed() - 1);
        if (pass_.rows() > 0) run_pass();  // pages are read in a later pass than they are written
    }
    hidden_rows_.clear();
    for (const Work& work : drafting_) {
        add_missing(work, work.sequence->computed());
        pass_.predict();
        hidden_rows_.push_back(pass_.rows() - 1);
    }
    if (pass_.rows() == 0) return;
    const kernels::StepOutputs& outputs = runner_.run_draft(pass_.finish(), HiddenSource::kTrunk);
    take_drafts(outputs);
}

/// Appends the entries up to `end`; full passes run on the way.
void Drafter::add_missing(const Work& work, std::int32_t end) {
    Sequence& sequence = *work.sequence;
    const std::int32_t kept_until = sequence.draft_entries + sequence.kept_rows;
    std::int32_t& entry = sequence.draft_entries;
    if (entry >= end) return;
    bool is_begun = false;
    for (; entry < end; ++entry) {
        const bool is_full = pass_.rows() == runner_.limits().step.rows ||
                             (!is_begun && pass_.sequences() == runner_.limits().step.seqs);
        if (is_full) run_pass();
        if (is_full || !is_begun) pass_.begin_sequence(sequence, entry);
        is_begun = true;
        const bool is_kept = entry < kept_until;
        const std::int32_t kept_index = sequence.kept_rows - (kept_until - entry);
        const std::int32_t hidden = is_kept ? runner_.kept_row(sequence.state_slot, kept_index)
                                            : work.first_row + entry - work.first_position;
        pass_.add_row(sequence.tokens()[static_cast<std::size_t>(entry) + 1], hidden);
    }
    if (entry >= kept_until) sequence.kept_rows = 0;
}

void Drafter::run_pass() {
    runner_.run_draft(pass_.finish(), HiddenSource::kTrunk);
    pass_.clear();
}

/// Drafts 2 .. `drafts`, each from the hidden row of the one before.
void Drafter::chain(std::int32_t drafts) {
    for (std::int32_t n = 1; n < drafts; ++n) {
        pass_.clear();
        std::size_t going_on = 0;
        for (std::size_t i = 0; i < drafting_.size(); ++i) {
            const Work& work = drafting_[i];
            if (work.drafts <= n) continue;
            Sequence& sequence = *work.sequence;
            pass_.begin_sequence(sequence, sequence.computed() + n - 1);
            pass_.add_row(sequence.drafts.back(), hidden_rows_[i]);
            pass_.predict();
            hidden_rows_[i] = static_cast<std::int32_t>(going_on++);
        }
        const kernels::StepOutputs& outputs =
            runner_.run_draft(pass_.finish(), HiddenSource::kDraft);
        take_drafts(outputs);
    }
}

/// One more draft for each sequence that still wants one. A sequence without finite logits drafts
/// no further: the trunk will tell what is wrong.
void Drafter::take_drafts(const kernels::StepOutputs& outputs) {
    std::size_t row = 0;
    for (Work& work : drafting_) {
        if (work.drafts <= static_cast<std::int32_t>(work.sequence->drafts.size())) continue;
        const bool has_error = outputs.error[row] != 0;
        const TokenId token = outputs.sampled[row++];
        if (has_error) {
            work.drafts = static_cast<std::int32_t>(work.sequence->drafts.size());
        } else {
            work.sequence->drafts.push_back(token);
        }
    }
}

void Drafter::fill(DraftStatus& status) const {
    status.draft_tokens_max = limits_.draft_tokens_max;
    status.draft_tokens = drafts_;
    status.drafted_total = drafted_total_;
    status.accepted_total = accepted_total_;
    status.acceptance = policy_.acceptance();
    status.cost_ratio = policy_.cost_ratio();
    status.gain_ratio = policy_.gain_ratio();
}

}  // namespace replica

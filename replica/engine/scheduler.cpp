#include "replica/engine/scheduler.h"

#include <algorithm>
#include <cassert>

#include "replica/cache/block_pool.h"

namespace replica {

double effective_priority(const SequenceView& view) {
    return static_cast<double>(view.priority) - view.waited / kAgeingPeriod;
}

bool comes_before(const SequenceView& a, const SequenceView& b) {
    const double priority_a = effective_priority(a);
    const double priority_b = effective_priority(b);
    return priority_a != priority_b ? priority_a < priority_b : a.arrival < b.arrival;
}

Scheduler::Scheduler(ScheduleLimits limits) : limits_(limits) {
    assert(limits.block_tokens > 0 && limits.sequence_limit > 0);
    assert(limits.token_budget >= limits.sequence_limit && "every running sequence can decode");
}

const StepPlan& Scheduler::plan(const ScheduleState& state) {
    state_ = state;
    plan_.preempted.clear();
    plan_.admitted.clear();
    plan_.decode.clear();
    plan_.prefill.clear();
    references_.clear();
    blocks_free_ = state.blocks_free;
    rows_left_ = state.token_budget > 0 ? state.token_budget : limits_.token_budget;
    assert(rows_left_ >= limits_.sequence_limit && rows_left_ <= limits_.token_budget);
    order_sequences();
    plan_decode();
    plan_prefill();
    // What a preemption freed is for the sequence that needed it, not for newcomers.
    if (plan_.preempted.empty()) plan_admissions();
    state_ = {};
    return plan_;
}

void Scheduler::order_sequences() {
    running_.clear();
    waiting_.clear();
    for (std::size_t i = 0; i < state_.sequences.size(); ++i) {
        if (state_.sequences[i].is_blocked) continue;
        (state_.sequences[i].is_running ? running_ : waiting_)
            .push_back(static_cast<std::int32_t>(i));
    }
    assert(running_.size() <= static_cast<std::size_t>(limits_.sequence_limit));
    const auto better = [this](std::int32_t a, std::int32_t b) {
        return comes_before(view(a), view(b));
    };
    std::sort(running_.begin(), running_.end(), better);
    std::sort(waiting_.begin(), waiting_.end(), better);
}

void Scheduler::plan_decode() {
    const auto decoders = static_cast<std::int32_t>(std::ranges::count_if(
        running_, [this](std::int32_t index) { return view(index).is_decoding; }));
    // Every running sequence may yield one token in this step, prompts that end included.
    draft_rows_left_ =
        std::min(std::max(0, limits_.logit_rows - limits_.sequence_limit), rows_left_ - decoders);
    for (std::size_t i = 0; i < running_.size(); ++i) {
        const std::int32_t index = running_[i];
        const SequenceView& sequence = view(index);
        if (!sequence.is_decoding) continue;
        std::int32_t rows = 1 + std::min(sequence.drafts, draft_rows_left_);
        if (missing_blocks(sequence, sequence.computed + rows) > blocks_free_) rows = 1;
        const std::int32_t missing = missing_blocks(sequence, sequence.computed + rows);
        while (missing > blocks_free_ && running_.size() > i)
            preempt_worst();
        if (running_.size() == i) return;  // it was the worst one itself
        blocks_free_ -= missing;
        rows_left_ -= rows;
        draft_rows_left_ -= rows - 1;
        plan_.decode.push_back({.sequence = index, .rows = rows});
    }
}

void Scheduler::plan_prefill() {
    for (std::size_t i = 0; i < running_.size() && rows_left_ > 0; ++i) {
        const std::int32_t index = running_[i];
        const SequenceView& sequence = view(index);
        if (sequence.is_decoding) continue;
        const auto rows_that_fit = [&] {
            return (sequence.blocks + blocks_free_) * limits_.block_tokens - sequence.computed;
        };
        while (rows_that_fit() <= 0 && running_.size() > i + 1)
            preempt_worst();
        const std::int32_t rows = std::min({chunk_rows(sequence), rows_left_, rows_that_fit()});
        if (rows <= 0) continue;  // the worst one, and no block left: it waits, keeping its work
        blocks_free_ -= missing_blocks(sequence, sequence.computed + rows);
        rows_left_ -= rows;
        plan_.prefill.push_back({.sequence = index, .rows = rows});
    }
}

void Scheduler::plan_admissions() {
    std::int32_t committed = committed_blocks();
    std::int32_t slots_free = state_.slots_free;
    for (const std::int32_t index : waiting_) {
        if (rows_left_ == 0 || slots_free == 0) return;
        if (running_.size() == static_cast<std::size_t>(limits_.sequence_limit)) return;
        const SequenceView& sequence = view(index);
        const std::int32_t needed = missing_blocks(sequence, sequence.tokens + 1);
        if (needed + sequence.copies + committed > blocks_free_) return;
        const std::int32_t rows = std::min(chunk_rows(sequence), rows_left_);
        const std::int32_t taken = missing_blocks(sequence, sequence.computed + rows);
        blocks_free_ -= taken;
        committed += needed - taken;
        rows_left_ -= rows;
        --slots_free;
        running_.push_back(index);
        plan_.admitted.push_back(index);
        plan_.prefill.push_back({.sequence = index, .rows = rows});
    }
}

/// Takes the worst running sequence out, and out of the plan if it had rows.
void Scheduler::preempt_worst() {
    const std::int32_t index = running_.back();
    running_.pop_back();
    plan_.preempted.push_back(index);
    blocks_free_ += blocks_given_up(view(index));
    if (!plan_.decode.empty() && plan_.decode.back().sequence == index) {
        const std::int32_t rows = plan_.decode.back().rows;
        blocks_free_ += missing_blocks(view(index), view(index).computed + rows);
        rows_left_ += rows;
        draft_rows_left_ += rows - 1;
        plan_.decode.pop_back();
    }
    // Prefill rows are planned in order, and only sequences behind the current one are taken.
    assert(plan_.prefill.empty() || plan_.prefill.back().sequence != index);
}

/// How many blocks are free once the sequence lets go of its own, those before it having done so.
std::int32_t Scheduler::blocks_given_up(const SequenceView& sequence) {
    if (sequence.block_ids.empty()) return sequence.blocks;
    if (references_.empty()) {
        references_.assign(state_.block_references.begin(), state_.block_references.end());
    }
    std::int32_t count = 0;
    for (const std::int32_t block : sequence.block_ids)
        if (--references_[static_cast<std::size_t>(block)] == 0) ++count;
    return count;
}

/// Rows up to where the sequence's next chunk ends.
std::int32_t Scheduler::chunk_rows(const SequenceView& sequence) const {
    const bool stops =
        sequence.chunk_end > sequence.computed && sequence.chunk_end < sequence.tokens;
    return (stops ? sequence.chunk_end : sequence.tokens) - sequence.computed;
}

/// Blocks the sequence must still take to hold `tokens` tokens.
std::int32_t Scheduler::missing_blocks(const SequenceView& sequence, std::int32_t tokens) const {
    return std::max(0, blocks_for(tokens, limits_.block_tokens) - sequence.blocks);
}

/// Blocks that are free now and spoken for: the rest of running prompts, and the next block of
/// each decoding sequence.
std::int32_t Scheduler::committed_blocks() const {
    std::int32_t committed = 0;
    for (const std::int32_t index : running_) {
        const SequenceView& sequence = view(index);
        committed += sequence.is_decoding ? 1 : missing_blocks(sequence, sequence.tokens + 1);
    }
    for (const PlannedRows& planned : plan_.prefill) {  // taken by this plan already
        const SequenceView& sequence = view(planned.sequence);
        committed -= missing_blocks(sequence, sequence.computed + planned.rows);
    }
    return committed;
}

}  // namespace replica

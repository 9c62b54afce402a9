// What the next step computes: a pure function from the state of all sequences to a plan.
//
//   rows of a step   ┌ decode: one row per running sequence ┬ prefill: chunks of prompts ┐
//                    └──────────────────────────────────────┴── up to the token budget ──┘
//
// One order rules everything: effective priority (priority - waited / 10 s, lower is better), then
// arrival. Decode rows come first, so a prompt delays the others by one chunk at most. What budget
// is left goes to running prompts, then to admissions.
//
// Blocks. A decode row that finds no free block takes those of the worst running sequence, which
// starts over later (preemption by recompute); the worst one itself gives way. A prompt chunk is
// cut to the blocks there are, and takes from worse sequences only when not one row fits. So the
// best running sequence always moves, and since any sequence fits into the pool alone, all finish.
//
// Admission is in strict order: nobody overtakes a prompt that waits for room. It asks for more
// than the first chunk: all blocks of the prompt, beside what running prompts still need and one
// block per decoding sequence. Otherwise two half-read prompts would evict each other in turn.
//
// Drafts ride along: a decode row may have some behind it, as far as budget, logit rows and blocks
// go. Nobody is preempted for them. A chunk ends early where a checkpoint is to be taken.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace replica {

/// One point of priority per this much waiting: nothing starves.
inline constexpr std::chrono::duration<double> kAgeingPeriod{10.0};

/// A sequence as the scheduler sees it.
struct SequenceView {
    bool is_running = false;    // holds a slot; else it waits, fresh or preempted
    bool is_decoding = false;   // running, and one token short of its known tokens
    bool is_blocked = false;    // waits for something else than room: left out
    std::int32_t tokens = 0;    // known: prompt and generated
    std::int32_t computed = 0;  // of them in KV and state; while waiting, what the cache would give
    std::int32_t blocks = 0;    // held; while waiting, blocks that are in use and would be shared
    /// Which blocks it holds. Given up, only those that nobody else holds are free again. May be
    /// empty: then nothing is shared.
    std::span<const std::int32_t> block_ids;
    std::int32_t copies = 0;                 // while waiting: blocks read only while it is admitted
    std::int32_t drafts = 0;                 // tokens to verify behind the known ones
    std::int32_t chunk_end = 0;              // a chunk stops here on its way; 0 = nowhere
    std::int32_t priority = 0;               // the request's
    std::chrono::duration<double> waited{};  // in the queue so far, all stays together
    std::uint64_t arrival = 0;               // counts up
};

struct ScheduleState {
    std::span<const SequenceView> sequences;
    std::int32_t blocks_free = 0;
    std::span<const std::int32_t> block_references;  // [blocks]; how many sequences hold each
    std::int32_t slots_free = 0;
    std::int32_t token_budget = 0;  // rows of this step; 0 = the limit
};

struct ScheduleLimits {
    std::int32_t token_budget = 0;    // rows of a step; at least sequence_limit
    std::int32_t sequence_limit = 0;  // running at once
    std::int32_t block_tokens = 0;
    std::int32_t logit_rows = 0;  // rows of a step that yield tokens; at least sequence_limit,
                                  // which 0 stands for: then nobody drafts
};

/// Rows of one sequence, from its `computed` on. `sequence` is an index into the state.
struct PlannedRows {
    std::int32_t sequence = 0;
    std::int32_t rows = 0;
    bool operator==(const PlannedRows&) const = default;
};

/// To be carried out in this order: preempted give up all blocks and their slot, admitted take a
/// slot, then every row's sequence grows its block table.
struct StepPlan {
    std::vector<std::int32_t> preempted;  // indices into the state
    std::vector<std::int32_t> admitted;
    std::vector<PlannedRows> decode;   // one row each, and drafts
    std::vector<PlannedRows> prefill;  // admitted ones included; rows >= 1
};

double effective_priority(const SequenceView& view);
/// The one order: effective priority, then arrival.
bool comes_before(const SequenceView& a, const SequenceView& b);

/// Keeps work memory between plans, nothing else: equal states give equal plans.
class Scheduler {
public:
    explicit Scheduler(ScheduleLimits limits);
    /// Valid until the next call. O(n log n) in the number of sequences.
    const StepPlan& plan(const ScheduleState& state);

private:
    void order_sequences();
    void plan_decode();
    void plan_prefill();
    void plan_admissions();
    void preempt_worst();
    std::int32_t blocks_given_up(const SequenceView& view);
    std::int32_t chunk_rows(const SequenceView& view) const;
    std::int32_t missing_blocks(const SequenceView& view, std::int32_t tokens) const;
    std::int32_t committed_blocks() const;
    const SequenceView& view(std::int32_t index) const {
        return state_.sequences[static_cast<std::size_t>(index)];
    }

    ScheduleLimits limits_;
    ScheduleState state_;
    StepPlan plan_;
    std::vector<std::int32_t> running_;     // best first; the preempted leave at the back
    std::vector<std::int32_t> waiting_;     // best first
    std::vector<std::int32_t> references_;  // of blocks, after preemptions; empty before the first
    std::int32_t blocks_free_ = 0;
    std::int32_t rows_left_ = 0;
    std::int32_t draft_rows_left_ = 0;
};

}  // namespace replica

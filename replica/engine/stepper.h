// The engine without its thread: all sequences, the cache numbering, and one step at a time.
//
//   add, cancel ─▶ sequences
//   begin_step      look into the cache ─▶ Scheduler::plan ─▶ apply (blocks, slots) ─▶ StepBuilder
//   finish_step     StepRunner::run ─▶ accept tokens ─▶ checkpoints ─▶ drafts for the next step
//
// Sinks hear on_start and on_token within a step. on_finish is the owner's to call, for each of
// `take_finished`, once the status that shows their blocks as free is out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "replica/cache/block_pool.h"
#include "replica/cache/prefix_cache.h"
#include "replica/cache/state_slots.h"
#include "replica/engine/drafter.h"
#include "replica/engine/engine.h"
#include "replica/engine/engine_limits.h"
#include "replica/engine/scheduler.h"
#include "replica/engine/sequence.h"
#include "replica/engine/step_builder.h"
#include "replica/engine/step_runner.h"
#include "replica/engine/token_budget.h"

namespace replica {

/// Engine thread only.
class Stepper {
public:
    /// `runner` outlives the stepper.
    Stepper(StepRunner& runner, const EngineLimits& limits);
    ~Stepper();
    Stepper(const Stepper&) = delete;
    Stepper& operator=(const Stepper&) = delete;

    void add(std::unique_ptr<Sequence> sequence);
    /// Frees the caches of all choices at once; unknown ids are ignored.
    void cancel(RequestId id);
    bool is_empty() const { return sequences_.empty(); }
    /// Chooses and lays out the next step: preempts, admits, takes blocks. There must be sequences.
    void begin_step();
    /// Runs it: one forward pass, then its tokens go out. Passes on what the runner throws; then
    /// only `finish_all` makes sense.
    StepStats finish_step();
    void finish_all(FinishReason reason, const std::string& error);
    /// Moves the sequences that finished since the last call to `finished`.
    void take_finished(std::vector<std::unique_ptr<Sequence>>& finished);

    /// The parts of the status that this object knows: counts, queue, blocks, totals.
    void fill(EngineStatus& status) const;

private:
    const StepPlan& make_plan(Clock::time_point now);
    void look_up_waiting();
    void apply(const StepPlan& plan, Clock::time_point now);
    void admit(std::int32_t index, Clock::time_point now);
    void resume(Sequence& sequence, const PrefixCache::Match& match);
    void plan_keeping(Sequence& sequence, const PrefixCache::Match& match);
    void add_rows(const PlannedRows& planned);
    void measure(std::chrono::duration<double> time);
    void accept_tokens(const kernels::StepOutputs& outputs, Clock::time_point now);
    void accept(const StepBuilder::Entry& entry, const kernels::StepOutputs& outputs,
                std::size_t logit_row, Clock::time_point now);
    void keep_checkpoints();
    void let_choices_go(Sequence& sequence);
    void keep(Sequence& sequence);
    void finish(Sequence& sequence, FinishReason reason, const std::string& error,
                Clock::time_point now);
    void release_cache(Sequence& sequence);
    void collect_finished();
    Sequence& at(std::int32_t index) { return *sequences_[static_cast<std::size_t>(index)]; }

    StepRunner& runner_;
    EngineLimits limits_;
    BlockPool pool_;
    PrefixCache cache_;
    StateSlots slots_;
    Scheduler scheduler_;
    StepBuilder builder_;
    Drafter drafter_;
    TokenBudget budget_;
    std::vector<std::unique_ptr<Sequence>> sequences_;  // waiting and running, by arrival
    std::vector<std::unique_ptr<Sequence>> finished_;
    struct Ended {
        Sequence* sequence;
        FinishReason reason;
        const char* error;
    };
    std::vector<Ended> ended_;                 // in this step, not yet finished
    std::vector<SequenceView> views_;          // of sequences_, for the scheduler
    std::vector<PrefixCache::Match> matches_;  // of sequences_, where looked up
    std::vector<std::int32_t> candidates_;     // work memory of look_up_waiting
    std::vector<BlockId> shared_;              // work memory of resume
    StepStats step_stats_;                     // of the step that was begun
    Clock::time_point step_start_;
    std::int32_t blocks_per_sequence_ = 0;
    std::uint64_t prompt_tokens_total_ = 0;
    std::uint64_t generated_tokens_total_ = 0;
    std::uint64_t preemptions_total_ = 0;
    std::uint64_t query_tokens_total_ = 0;
    std::uint64_t hit_tokens_total_ = 0;
    std::uint64_t restored_total_ = 0;
    std::int32_t token_budget_ = 0;  // of the last step
};

}  // namespace replica

// The engine without its thread: all sequences, the cache numbering, and one step at a time.
//
//   add, cancel ─▶ sequences
//   begin_step      Scheduler::plan ─▶ apply (blocks, slots) ─▶ StepBuilder
//   finish_step     StepRunner::run ─▶ accept each sampled token ─▶ finished sequences
//
// Sinks hear on_start and on_token within a step. on_finish is the owner's to call, for each of
// `take_finished`, once the status that shows their blocks as free is out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "replica/cache/block_pool.h"
#include "replica/cache/state_slots.h"
#include "replica/engine/engine.h"
#include "replica/engine/engine_limits.h"
#include "replica/engine/scheduler.h"
#include "replica/engine/sequence.h"
#include "replica/engine/step_builder.h"
#include "replica/engine/step_runner.h"

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
    /// Frees the sequence's cache at once; unknown ids are ignored.
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
    void apply(const StepPlan& plan, Clock::time_point now);
    void add_rows(const PlannedRows& planned);
    void accept_tokens(const kernels::StepOutputs& outputs, Clock::time_point now);
    void finish(Sequence& sequence, FinishReason reason, const std::string& error,
                Clock::time_point now);
    void release_cache(Sequence& sequence);
    Sequence& at(std::int32_t index) { return *sequences_[static_cast<std::size_t>(index)]; }

    StepRunner& runner_;
    BlockPool pool_;
    StateSlots slots_;
    Scheduler scheduler_;
    StepBuilder builder_;
    std::vector<std::unique_ptr<Sequence>> sequences_;  // waiting and running, by arrival
    std::vector<std::unique_ptr<Sequence>> finished_;
    std::vector<SequenceView> views_;  // of sequences_, for the scheduler
    StepStats step_stats_;             // of the step that was begun
    Clock::time_point step_start_;
    std::int32_t blocks_per_sequence_ = 0;
    std::uint64_t prompt_tokens_total_ = 0;
    std::uint64_t generated_tokens_total_ = 0;
    std::uint64_t preemptions_total_ = 0;
};

}  // namespace replica

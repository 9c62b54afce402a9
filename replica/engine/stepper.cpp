#include "replica/engine/stepper.h"

#include <cassert>
#include <utility>

namespace replica {

Stepper::Stepper(StepRunner& runner, const EngineLimits& limits)
    : runner_(runner),
      pool_({.block_count = runner.limits().blocks_total,
             .block_tokens = runner.limits().block_tokens}),
      slots_(limits.state_slots),
      scheduler_({.token_budget = limits.token_budget,
                  .sequence_limit = limits.sequences_max,
                  .block_tokens = runner.limits().block_tokens}),
      builder_(runner.limits().step),
      blocks_per_sequence_(blocks_for(limits.max_model_len, runner.limits().block_tokens)) {
    const auto requests = static_cast<std::size_t>(limits.requests_max());
    sequences_.reserve(requests);
    finished_.reserve(requests);
    views_.reserve(requests);
}

Stepper::~Stepper() {
    assert(sequences_.empty() && "finish_all comes before the end");
}

void Stepper::add(std::unique_ptr<Sequence> sequence) {
    sequence->blocks.reserve(blocks_per_sequence_);
    sequences_.push_back(std::move(sequence));
}

void Stepper::cancel(RequestId id) {
    for (std::unique_ptr<Sequence>& sequence : sequences_) {
        if (sequence->id() != id) continue;
        finish(*sequence, FinishReason::kCancelled, {}, Clock::now());
        finished_.push_back(std::move(sequence));
        std::erase(sequences_, nullptr);
        return;
    }
}

void Stepper::begin_step() {
    assert(!sequences_.empty() && "a step needs a sequence");
    step_start_ = Clock::now();
    const StepPlan& plan = make_plan(step_start_);
    assert(!(plan.decode.empty() && plan.prefill.empty()) && "the best sequence always moves");
    apply(plan, step_start_);
    builder_.clear();
    step_stats_ = {};
    for (const PlannedRows& planned : plan.decode) {
        add_rows(planned);
        step_stats_.decode_rows += planned.rows;
    }
    for (const PlannedRows& planned : plan.prefill) {
        add_rows(planned);
        step_stats_.prefill_rows += planned.rows;
    }
    step_stats_.sequences = static_cast<std::int32_t>(builder_.entries().size());
}

StepStats Stepper::finish_step() {
    const kernels::StepOutputs& outputs = runner_.run(builder_.finish());
    const Clock::time_point end = Clock::now();
    step_stats_.duration = end - step_start_;
    accept_tokens(outputs, end);
    return step_stats_;
}

void Stepper::finish_all(FinishReason reason, const std::string& error) {
    const Clock::time_point now = Clock::now();
    for (std::unique_ptr<Sequence>& sequence : sequences_) {
        finish(*sequence, reason, error, now);
        finished_.push_back(std::move(sequence));
    }
    sequences_.clear();
}

void Stepper::take_finished(std::vector<std::unique_ptr<Sequence>>& finished) {
    assert(finished.empty());
    finished.swap(finished_);
}

void Stepper::fill(EngineStatus& status) const {
    status.running = 0;
    status.waiting = 0;
    status.queued_tokens = 0;
    for (const std::unique_ptr<Sequence>& sequence : sequences_) {
        ++(sequence->state() == SequenceState::kRunning ? status.running : status.waiting);
        status.queued_tokens += sequence->prefill_left();
    }
    status.blocks_free = pool_.free_count();
    status.blocks_total = pool_.block_count();
    status.block_tokens = pool_.block_tokens();
    status.prompt_tokens_total = prompt_tokens_total_;
    status.generated_tokens_total = generated_tokens_total_;
    status.preemptions_total = preemptions_total_;
}

const StepPlan& Stepper::make_plan(Clock::time_point now) {
    views_.clear();
    for (const std::unique_ptr<Sequence>& sequence : sequences_)
        views_.push_back(sequence->view(now));
    return scheduler_.plan({.sequences = views_,
                            .blocks_free = pool_.free_count(),
                            .slots_free = slots_.free_count()});
}

void Stepper::apply(const StepPlan& plan, Clock::time_point now) {
    for (const std::int32_t index : plan.preempted) {
        release_cache(at(index));
        at(index).preempt(now);
        ++preemptions_total_;
    }
    for (const std::int32_t index : plan.admitted) {
        Sequence& sequence = at(index);
        if (!sequence.has_started()) {
            prompt_tokens_total_ += static_cast<std::uint64_t>(sequence.prompt_tokens());
        }
        sequence.admit(slots_.take().value(), now);
    }
}

void Stepper::add_rows(const PlannedRows& planned) {
    Sequence& sequence = at(planned.sequence);
    const bool has_room = sequence.blocks.grow_to(sequence.computed() + planned.rows, pool_);
    assert(has_room && "the plan counted the blocks");
    builder_.add(sequence, planned.rows);
}

void Stepper::accept_tokens(const kernels::StepOutputs& outputs, Clock::time_point now) {
    std::size_t logit_row = 0;
    for (const StepBuilder::Entry& entry : builder_.entries()) {
        Sequence& sequence = *entry.sequence;
        sequence.advance(entry.rows);
        if (!entry.yields_token) continue;
        assert(logit_row < outputs.sampled.size() && logit_row < outputs.error.size());
        const bool has_error = outputs.error[logit_row] != 0;
        const TokenId token = outputs.sampled[logit_row++];
        if (has_error) {
            finish(sequence, FinishReason::kError,
                   "the model gave no finite logit for the next token", now);
            continue;
        }
        ++generated_tokens_total_;
        if (const auto reason = sequence.accept(token, now)) finish(sequence, *reason, {}, now);
    }
    for (std::unique_ptr<Sequence>& sequence : sequences_) {
        if (sequence->state() == SequenceState::kFinished) finished_.push_back(std::move(sequence));
    }
    std::erase(sequences_, nullptr);
}

void Stepper::finish(Sequence& sequence, FinishReason reason, const std::string& error,
                     Clock::time_point now) {
    release_cache(sequence);
    sequence.finish(reason, error, now);
}

void Stepper::release_cache(Sequence& sequence) {
    sequence.blocks.release_all(pool_);
    if (sequence.state_slot == kScratchSlot) return;
    slots_.release(sequence.state_slot);
    sequence.state_slot = kScratchSlot;
}

}  // namespace replica

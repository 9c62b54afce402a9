#include "replica/engine/stepper.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "replica/engine/checkpoint_plan.h"

namespace replica {

Stepper::Stepper(StepRunner& runner, const EngineLimits& limits)
    : runner_(runner),
      limits_(limits),
      pool_({.block_count = runner.limits().blocks_total,
             .block_tokens = runner.limits().block_tokens}),
      cache_(pool_, {.has_recurrent_state = runner.limits().has_recurrent_state,
                     .snapshots = runner.limits().snapshots}),
      slots_(limits.state_slots),
      scheduler_({.token_budget = limits.token_budget,
                  .sequence_limit = limits.sequences_max,
                  .block_tokens = runner.limits().block_tokens,
                  .logit_rows = runner.limits().step.logit_rows}),
      builder_(runner.limits().step),
      drafter_(runner, pool_, limits),
      budget_({.rows_min = limits.sequences_max,
               .rows_max = limits.token_budget,
               .step_time_target = limits.step_time_target}),
      blocks_per_sequence_(blocks_for(limits.max_model_len, runner.limits().block_tokens)),
      token_budget_(limits.token_budget) {
    const auto requests = static_cast<std::size_t>(limits.requests_max());
    sequences_.reserve(requests);
    finished_.reserve(requests);
    views_.reserve(requests);
    matches_.reserve(requests);
    candidates_.reserve(requests);
    ended_.reserve(static_cast<std::size_t>(limits.sequences_max));
    shared_.reserve(static_cast<std::size_t>(blocks_per_sequence_));
}

Stepper::~Stepper() {
    assert(sequences_.empty() && "finish_all comes before the end");
}

void Stepper::add(std::unique_ptr<Sequence> sequence) {
    sequence->blocks.reserve(blocks_per_sequence_);
    sequences_.push_back(std::move(sequence));
}

void Stepper::cancel(RequestId id) {
    const Clock::time_point now = Clock::now();
    for (std::unique_ptr<Sequence>& sequence : sequences_)
        if (sequence->id() == id) finish(*sequence, FinishReason::kCancelled, {}, now);
    collect_finished();
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
    const Clock::time_point begin = Clock::now();
    const kernels::StepOutputs& outputs = runner_.run(builder_.finish());
    const Clock::time_point end = Clock::now();
    measure(end - begin);
    accept_tokens(outputs, end);
    keep_checkpoints();
    drafter_.draft(builder_.entries());
    collect_finished();
    step_stats_.duration = Clock::now() - step_start_;
    return step_stats_;
}

void Stepper::finish_all(FinishReason reason, const std::string& error) {
    const Clock::time_point now = Clock::now();
    for (std::unique_ptr<Sequence>& sequence : sequences_)
        if (sequence->state() != SequenceState::kFinished) finish(*sequence, reason, error, now);
    collect_finished();
}

void Stepper::take_finished(std::vector<std::unique_ptr<Sequence>>& finished) {
    assert(finished.empty());
    finished.swap(finished_);
}

void Stepper::fill(EngineStatus& status) const {
    status.running = 0;
    status.waiting = 0;
    status.queued_tokens = 0;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
        const Sequence& sequence = *sequences_[i];
        if (sequence.is_blocked()) continue;  // one request is one entry of the queue
        status.queued_tokens += sequence.prefill_left();
        if (sequence.state() == SequenceState::kRunning) {
            ++status.running;
        } else if (sequence.family().running == 0) {
            ++status.waiting;
        }
    }
    status.blocks_free = pool_.available_count();
    status.blocks_total = pool_.block_count();
    status.block_tokens = pool_.block_tokens();
    status.step_token_budget = token_budget_;
    status.prompt_tokens_total = prompt_tokens_total_;
    status.generated_tokens_total = generated_tokens_total_;
    status.preemptions_total = preemptions_total_;
    status.cache = {.is_enabled = limits_.has_prefix_cache,
                    .query_tokens_total = query_tokens_total_,
                    .hit_tokens_total = hit_tokens_total_,
                    .blocks_cached = pool_.evictable_count(),
                    .checkpoints = cache_.checkpoints(),
                    .checkpoints_max = cache_.snapshots_max(),
                    .checkpoint_bytes = static_cast<std::uint64_t>(cache_.checkpoints()) *
                                        runner_.limits().snapshot_bytes,
                    .created_total = cache_.created_total(),
                    .restored_total = restored_total_,
                    .evicted_total = cache_.evicted_total()};
    drafter_.fill(status.draft);
}

// ---------------------------------------------------------------------------------------------
// Before a step

const StepPlan& Stepper::make_plan(Clock::time_point now) {
    views_.clear();
    std::int32_t decoding = 0;
    for (const std::unique_ptr<Sequence>& sequence : sequences_) {
        views_.push_back(sequence->view(now));
        decoding += views_.back().is_decoding ? 1 : 0;
    }
    look_up_waiting();
    const auto decode_time = drafter_.policy().trunk_times().estimate(decoding);
    token_budget_ = budget_.rows(decoding, decode_time.value_or(TokenBudget::Seconds::zero()));
    return scheduler_.plan({.sequences = views_,
                            .blocks_free = pool_.available_count(),
                            .block_references = pool_.references(),
                            .slots_free = slots_.free_count(),
                            .token_budget = token_budget_});
}

/// Those who may be admitted in this step are told what they would find. No more can be admitted
/// than there are slots, and always the best first.
void Stepper::look_up_waiting() {
    matches_.assign(sequences_.size(), {});
    candidates_.clear();
    for (std::size_t i = 0; i < views_.size(); ++i)
        if (!views_[i].is_running && !views_[i].is_blocked)
            candidates_.push_back(static_cast<std::int32_t>(i));
    const auto count =
        std::min<std::size_t>(candidates_.size(), static_cast<std::size_t>(slots_.free_count()));
    const auto better = [this](std::int32_t a, std::int32_t b) {
        return comes_before(views_[static_cast<std::size_t>(a)],
                            views_[static_cast<std::size_t>(b)]);
    };
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count),
                      candidates_.end(), better);
    for (const std::int32_t index : std::span(candidates_).first(count)) {
        Sequence& sequence = at(index);
        // To copy a page takes one more than the sequence needs in the end. In a pool that holds
        // just the sequence there will never be one.
        const std::int32_t needed = blocks_for(sequence.token_count() + 1, pool_.block_tokens());
        const auto tails = needed < pool_.block_count() ? TailUse::kCopied : TailUse::kNone;
        const PrefixCache::Match match = cache_.find(sequence.family().salt, sequence.tokens(),
                                                     sequence.token_count() - 1, tails);
        matches_[static_cast<std::size_t>(index)] = match;
        SequenceView& view = views_[static_cast<std::size_t>(index)];
        view.computed = match.tokens;
        view.blocks = match.blocks_in_use;
        view.copies = match.tail == kNoBlock ? 0 : 1;
        if (sequence.checkpoints_behind != match.tokens) plan_keeping(sequence, match);
        view.chunk_end = sequence.checkpoints.empty() ? 0 : sequence.checkpoints.back();
    }
}

void Stepper::apply(const StepPlan& plan, Clock::time_point now) {
    for (const std::int32_t index : plan.preempted) {
        keep(at(index));
        release_cache(at(index));
        at(index).preempt(now);
        ++preemptions_total_;
    }
    for (const std::int32_t index : plan.admitted)  // before anything of it can be evicted
        resume(at(index), matches_[static_cast<std::size_t>(index)]);
    for (const std::int32_t index : plan.admitted)
        admit(index, now);
}

/// Takes the pages that are shared, and holds on to the one that will be copied. The state needs no
/// such care: until it is loaded nothing is saved anywhere.
void Stepper::resume(Sequence& sequence, const PrefixCache::Match& match) {
    if (match.tokens == 0) return;
    shared_.clear();
    cache_.use(match, shared_);
    for (const BlockId block : shared_)
        sequence.blocks.share(block, pool_);
    if (match.tail != kNoBlock) pool_.share(match.tail);
}

void Stepper::admit(std::int32_t index, Clock::time_point now) {
    Sequence& sequence = at(index);
    const PrefixCache::Match& match = matches_[static_cast<std::size_t>(index)];
    const StateSlot slot = slots_.take().value();
    if (match.tail != kNoBlock) {
        const bool has_room = cache_.make_room(1) && sequence.blocks.grow_to(match.tokens, pool_);
        assert(has_room && "the plan counted the block and its copy");
        runner_.copy_block(match.tail, sequence.blocks.blocks().back());
        pool_.release(match.tail);
    }
    if (match.snapshot != kNoSnapshot) {
        runner_.load_state(match.snapshot, slot);
        ++restored_total_;
    }
    if (!sequence.has_started() && sequence.leads_family()) {
        prompt_tokens_total_ += static_cast<std::uint64_t>(sequence.prompt_tokens());
        query_tokens_total_ += static_cast<std::uint64_t>(sequence.prompt_tokens());
        hit_tokens_total_ += static_cast<std::uint64_t>(match.tokens);
    }
    sequence.admit(slot, match.tokens, now);
    let_choices_go(sequence);
}

/// Where the sequence is to stop on its way through the prompt. Pure-attention pages can be kept at
/// any time; only who shares a prompt needs it up to the last token.
void Stepper::plan_keeping(Sequence& sequence, const PrefixCache::Match& match) {
    sequence.checkpoints_behind = match.tokens;
    sequence.checkpoints.clear();
    const bool has_state = runner_.limits().has_recurrent_state;
    const bool shares_prompt = sequence.leads_family() && sequence.family().choices > 1;
    const bool wants_boundaries = limits_.has_prefix_cache && has_state;
    if (!shares_prompt && !wants_boundaries) return;
    if (has_state && cache_.snapshots_max() == 0) return;
    sequence.checkpoints = plan_checkpoints(
        {.boundaries = wants_boundaries ? sequence.boundaries() : std::span<const std::int32_t>{},
         .prompt_tokens = sequence.prompt_tokens(),
         .cached_tokens = match.tokens,
         .parting_tokens = match.known_tokens,
         .shares_prompt = shares_prompt});
    std::ranges::reverse(sequence.checkpoints);
}

void Stepper::add_rows(const PlannedRows& planned) {
    Sequence& sequence = at(planned.sequence);
    const std::int32_t tokens = sequence.computed() + planned.rows;
    const std::int32_t missing = blocks_for(tokens, pool_.block_tokens()) - sequence.blocks.size();
    const bool has_room = cache_.make_room(missing) && sequence.blocks.grow_to(tokens, pool_);
    assert(has_room && "the plan counted the blocks");
    builder_.add(sequence, planned.rows);
}

// ---------------------------------------------------------------------------------------------
// After a step

void Stepper::measure(std::chrono::duration<double> time) {
    if (step_stats_.prefill_rows == 0) {
        drafter_.record_trunk(step_stats_.decode_rows, time);
        return;
    }
    const auto decode_time = drafter_.policy().trunk_times().estimate(step_stats_.decode_rows);
    if (step_stats_.decode_rows > 0 && !decode_time) return;  // nothing to tell them apart by
    budget_.record(step_stats_.prefill_rows, time,
                   step_stats_.decode_rows > 0 ? *decode_time : TokenBudget::Seconds::zero());
}

void Stepper::accept_tokens(const kernels::StepOutputs& outputs, Clock::time_point now) {
    std::size_t logit_row = 0;
    for (const StepBuilder::Entry& entry : builder_.entries()) {
        accept(entry, outputs, logit_row, now);
        logit_row += static_cast<std::size_t>(entry.logit_rows);
    }
    // Only now: what the last step gave is valid until the runner is called again.
    for (const Ended& ended : ended_)
        finish(*ended.sequence, ended.reason, ended.error, now);
    ended_.clear();
}

/// Takes over the rows of one sequence: all known tokens, and drafts as long as they are what was
/// drawn in their place.
void Stepper::accept(const StepBuilder::Entry& entry, const kernels::StepOutputs& outputs,
                     std::size_t logit_row, Clock::time_point now) {
    Sequence& sequence = *entry.sequence;
    const auto drafts = static_cast<std::int32_t>(sequence.drafts.size());
    sequence.replay_rows = 0;  // what was to be replayed now is
    sequence.advance(entry.rows - drafts);
    if (entry.logit_rows == 0) return;
    std::int32_t accepted = 0;
    std::optional<FinishReason> reason;
    const char* error = "";
    while (true) {
        const std::size_t row = logit_row + static_cast<std::size_t>(accepted);
        assert(row < outputs.sampled.size() && row < outputs.error.size());
        if (outputs.error[row] != 0) {
            reason = FinishReason::kError;
            error = "the model gave no finite logit for the next token";
            break;
        }
        ++generated_tokens_total_;
        const TokenId token = outputs.sampled[row];
        reason = sequence.accept(token, outputs.logprobs.empty() ? nullptr : &outputs.logprobs[row],
                                 now);
        const bool is_true =
            accepted < drafts && token == sequence.drafts[static_cast<std::size_t>(accepted)];
        if (reason || !is_true) break;
        ++accepted;
        sequence.advance(1);
    }
    if (drafts > 0) {
        sequence.replay_rows = 1 + accepted;
        drafter_.record_verified(sequence, drafts, accepted);
    }
    step_stats_.generated_tokens += accepted + (*error == '\0' ? 1 : 0);
    if (reason) ended_.push_back({.sequence = &sequence, .reason = *reason, .error = error});
}

/// Whoever has come to a checkpoint leaves it.
void Stepper::keep_checkpoints() {
    for (const StepBuilder::Entry& entry : builder_.entries()) {
        Sequence& sequence = *entry.sequence;
        if (sequence.state() != SequenceState::kRunning) continue;
        // A model without states keeps its pages when the prompt is done.
        bool is_there = !runner_.limits().has_recurrent_state && entry.logit_rows > 0 &&
                        sequence.computed() == sequence.prompt_tokens();
        while (!sequence.checkpoints.empty() &&
               sequence.checkpoints.back() <= sequence.computed()) {
            is_there |= sequence.checkpoints.back() == sequence.computed();
            sequence.checkpoints.pop_back();
        }
        if (is_there) keep(sequence);
        let_choices_go(sequence);
    }
}

/// The other choices of a request may start when what they share is in the cache, or never will be.
void Stepper::let_choices_go(Sequence& sequence) {
    Family& family = sequence.family();
    if (!sequence.leads_family() || family.is_prompt_shareable) return;
    family.is_prompt_shareable = sequence.state() == SequenceState::kFinished ||
                                 sequence.computed() >= sequence.prompt_tokens() - 1;
}

/// Leaves what the sequence has computed to the prefix cache.
void Stepper::keep(Sequence& sequence) {
    if (!limits_.has_prefix_cache && sequence.family().choices == 1) return;
    if (sequence.state_slot == kScratchSlot) return;
    const CachedText text{
        .salt = sequence.family().salt,
        .tokens = sequence.tokens().first(static_cast<std::size_t>(sequence.computed())),
        .blocks = sequence.blocks.blocks()};
    if (!runner_.limits().has_recurrent_state) {
        cache_.insert(text);
        return;
    }
    if (!cache_.wants_checkpoint(text)) return;
    if (sequence.replay_rows > 0) {
        runner_.replay(sequence.state_slot, sequence.replay_rows, sequence.computed());
        sequence.replay_rows = 0;
    }
    const std::optional<SnapshotId> snapshot = cache_.insert_checkpoint(text);
    if (snapshot) runner_.save_state(sequence.state_slot, *snapshot);
}

void Stepper::finish(Sequence& sequence, FinishReason reason, const std::string& error,
                     Clock::time_point now) {
    const bool is_whole = reason == FinishReason::kStop || reason == FinishReason::kLength;
    if (is_whole && limits_.has_prefix_cache) keep(sequence);
    release_cache(sequence);
    sequence.finish(reason, error, now);
    let_choices_go(sequence);
}

void Stepper::release_cache(Sequence& sequence) {
    sequence.blocks.release_all(pool_);
    if (sequence.state_slot == kScratchSlot) return;
    slots_.release(sequence.state_slot);
    sequence.state_slot = kScratchSlot;
}

void Stepper::collect_finished() {
    for (std::unique_ptr<Sequence>& sequence : sequences_)
        if (sequence->state() == SequenceState::kFinished) finished_.push_back(std::move(sequence));
    std::erase(sequences_, nullptr);
}

}  // namespace replica

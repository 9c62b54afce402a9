#include "replica/engine/sequence.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace replica {
namespace {

bool has_penalty(const SamplingOptions& sampling) {
    return sampling.repetition_penalty != 1.0F || sampling.presence_penalty != 0.0F ||
           sampling.frequency_penalty != 0.0F;
}

}  // namespace

Sequence::Sequence(EngineRequest request, const SequenceOrigin& origin)
    : family_(origin.family),
      choice_(origin.choice),
      arrival_(origin.arrival),
      sink_(std::move(request.sinks.at(static_cast<std::size_t>(origin.choice)))),
      sampling_(std::move(request.sampling)),
      stop_tokens_(origin.end_tokens.begin(), origin.end_tokens.end()),
      end_token_count_(origin.end_tokens.size()),
      ignores_end_tokens_(request.ignore_eos),
      min_tokens_(request.min_tokens),
      top_logprobs_(request.top_logprobs),
      choice_index_(request.choice_index + origin.choice),
      priority_(request.priority),
      draft_tokens_max_(std::clamp(request.draft_tokens.value_or(origin.draft_tokens_max), 0,
                                   origin.draft_tokens_max)),
      boundaries_(std::move(request.boundaries)),
      tokens_(std::move(request.prompt)),
      prompt_tokens_(static_cast<std::int32_t>(tokens_.size())),
      prefill_until_(prompt_tokens_),
      has_penalty_(has_penalty(sampling_)),
      accepted_at_(origin.accepted_at),
      waiting_since_(origin.accepted_at) {
    assert(sink_ != nullptr && "a choice has a sink");
    assert(top_logprobs_ <= kernels::kTopLogprobsMax);
    assert(prompt_tokens_ > 0 && prompt_tokens_ < origin.max_model_len);
    const std::int32_t room = origin.max_model_len - prompt_tokens_;
    generated_max_ = std::min(request.max_tokens.value_or(room), room);
    assert(generated_max_ > 0 && "max_tokens is at least 1");
    tokens_.reserve(tokens_.size() + static_cast<std::size_t>(generated_max_));
    stop_tokens_.insert(stop_tokens_.end(), request.stop_token_ids.begin(),
                        request.stop_token_ids.end());
    for (const SamplingOptions::Bias& bias : sampling_.logit_bias)
        bias_.push_back({.token = bias.token, .bias = bias.bias});
    if (has_penalty_) {
        counts_.reserve(tokens_.capacity());
        counts_.add_prompt(tokens_);
    }
    drafts.reserve(kDraftTokensMax);
}

bool Sequence::is_blocked() const {
    return !leads_family() && !family_->is_prompt_shareable;
}

std::int32_t Sequence::drafts_allowed() const {
    // A verify step yields one token more than it accepts drafts.
    return std::clamp(generated_max_ - generated_tokens_ - 1, 0, draft_tokens_max_);
}

std::int32_t Sequence::prefill_left() const {
    return std::max(0, prefill_until_ - computed_);
}

SequenceView Sequence::view(Clock::time_point now) const {
    SequenceView view{.is_running = state_ == SequenceState::kRunning,
                      .is_decoding = is_decoding(),
                      .is_blocked = state_ == SequenceState::kWaiting && is_blocked(),
                      .tokens = token_count(),
                      .computed = computed_,
                      .blocks = blocks.size(),
                      .block_ids = blocks.blocks(),
                      .drafts = static_cast<std::int32_t>(drafts.size()),
                      .chunk_end = checkpoints.empty() ? 0 : checkpoints.back(),
                      .priority = priority_,
                      .waited = waited_before_,
                      .arrival = arrival_};
    if (state_ == SequenceState::kWaiting) view.waited += now - waiting_since_;
    return view;
}

kernels::SamplingRow Sequence::sampling_row(std::int32_t draft) const {
    kernels::SamplingRow row{.temperature = sampling_.temperature,
                             .top_k = std::max(sampling_.top_k, 0),
                             .top_p = sampling_.top_p,
                             .min_p = sampling_.min_p,
                             .repetition_penalty = sampling_.repetition_penalty,
                             .presence_penalty = sampling_.presence_penalty,
                             .frequency_penalty = sampling_.frequency_penalty,
                             .seed = sampling_.seed,
                             .top_logprobs = top_logprobs_,
                             .bias = bias_,
                             .counts = counts_.view()};
    row.draw_index = (static_cast<std::uint64_t>(choice_index_) << 32) |
                     static_cast<std::uint64_t>(token_count() + draft);
    if (has_penalty_) row.drafted = std::span(drafts).first(static_cast<std::size_t>(draft));
    // Under min_tokens nothing may end the sequence; ignore_eos masks the model's own ends alone.
    const std::span<const TokenId> stops(stop_tokens_);
    if (generated_tokens_ + draft < min_tokens_) {
        row.banned = stops;
    } else if (ignores_end_tokens_) {
        row.banned = stops.first(end_token_count_);
    }
    return row;
}

void Sequence::admit(StateSlot slot, std::int32_t computed, Clock::time_point now) {
    assert(state_ == SequenceState::kWaiting && state_slot == kScratchSlot && computed_ == 0);
    assert(computed < token_count() && "the last known token is always computed");
    state_ = SequenceState::kRunning;
    ++family_->running;
    state_slot = slot;
    computed_ = computed;
    draft_entries = computed;
    waited_before_ += now - waiting_since_;
    if (started_at_) return;
    started_at_ = now;
    if (leads_family()) family_->cached_tokens = computed;
    info_.cached_tokens = family_->cached_tokens;
    sink_->on_start(info_.cached_tokens);
}

void Sequence::preempt(Clock::time_point now) {
    assert(state_ == SequenceState::kRunning && "only a running sequence is preempted");
    assert(blocks.size() == 0 && state_slot == kScratchSlot && "its cache is released first");
    state_ = SequenceState::kWaiting;
    --family_->running;
    computed_ = 0;
    replay_rows = draft_entries = kept_rows = 0;
    drafts.clear();
    checkpoints.clear();
    checkpoints_behind = -1;
    prefill_until_ = token_count();
    waiting_since_ = now;
}

void Sequence::advance(std::int32_t rows) {
    computed_ += rows;
    assert(computed_ <= token_count() && "only known tokens are computed");
}

std::optional<FinishReason> Sequence::accept(TokenId token, const kernels::RowLogprobs* logprobs,
                                             Clock::time_point now) {
    assert(state_ == SequenceState::kRunning && computed_ == token_count());
    if (!first_token_at_) first_token_at_ = now;
    ++generated_tokens_;
    if (ends_at(token)) {
        info_.stop_token = token;
        return FinishReason::kStop;
    }
    tokens_.push_back(token);
    if (has_penalty_) counts_.add_generated(token);
    if (sink_->on_token(token, top_logprobs_ >= 0 ? logprobs : nullptr) == SinkVerdict::kStop)
        return FinishReason::kStop;
    if (generated_tokens_ >= generated_max_) return FinishReason::kLength;
    return std::nullopt;
}

bool Sequence::ends_at(TokenId token) const {
    std::span<const TokenId> stops(stop_tokens_);
    if (ignores_end_tokens_) stops = stops.subspan(end_token_count_);
    return std::find(stops.begin(), stops.end(), token) != stops.end();
}

void Sequence::finish(FinishReason reason, std::string error, Clock::time_point now) {
    assert(state_ != SequenceState::kFinished && "a sequence finishes once");
    assert(blocks.size() == 0 && state_slot == kScratchSlot && "its cache is released first");
    if (state_ == SequenceState::kRunning) --family_->running;
    state_ = SequenceState::kFinished;
    info_.reason = reason;
    info_.error = std::move(error);
    info_.prompt_tokens = prompt_tokens_;
    info_.generated_tokens = generated_tokens_;
    for (const std::int32_t drafted : acceptance.drafted)
        info_.drafted_tokens += drafted;
    for (const std::int32_t accepted : acceptance.accepted)
        info_.accepted_tokens += accepted;
    info_.queue_time = started_at_.value_or(now) - accepted_at_;
    if (started_at_) info_.prefill_time = first_token_at_.value_or(now) - *started_at_;
    if (first_token_at_) info_.decode_time = now - *first_token_at_;
}

}  // namespace replica

// One choice of a request on its way through the engine: its tokens, its place in the cache, its
// clock. The choices of a request are a family: the first computes the prompt, the others wait
// until the cache has it.
//
//   kWaiting ──admitted──▶ kRunning ──end, limit, cancel, error──▶ kFinished
//       ▲                     │
//       └─────preempted───────┘   computed falls to what the cache still has; the tokens stay, so
//                                 the text goes on as it would have: draws depend on seed and
//                                 position alone
//
//   tokens    p p p p p p g g g | d d    p prompt, g generated, d drafted: guesses behind the text
//             └ computed ┘ └ rows of the next step: all but the last, and the drafts behind it,
//                            only fill the cache
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "replica/cache/block_table.h"
#include "replica/cache/state_slots.h"
#include "replica/engine/draft_policy.h"
#include "replica/engine/engine.h"
#include "replica/engine/scheduler.h"
#include "replica/engine/token_counts.h"

namespace replica {

using Clock = std::chrono::steady_clock;

enum class SequenceState { kWaiting, kRunning, kFinished };

/// What the choices of one request share.
struct Family {
    RequestId id = 0;  // the request's
    std::int32_t choices = 1;
    std::int32_t unfinished = 1;  // on_finish has not been called
    std::int32_t running = 0;
    std::string salt;                  // of the prefix cache
    bool is_prompt_shareable = false;  // the cache has it, or the first choice is gone
    std::int32_t cached_tokens = 0;    // of the prompt, found by the first choice
};

struct SequenceOrigin {
    std::shared_ptr<Family> family;
    std::int32_t choice = 0;    // within the family
    std::uint64_t arrival = 0;  // counts up
    std::int32_t max_model_len = 0;
    std::int32_t draft_tokens_max = 0;
    std::span<const TokenId> end_tokens;
    Clock::time_point accepted_at;
};

/// Made by the submitting thread, then the engine thread's alone.
class Sequence {
public:
    /// The request is valid: 1 .. max_model_len - 1 prompt tokens, and a sink for every choice.
    Sequence(EngineRequest request, const SequenceOrigin& origin);

    RequestId id() const { return family_->id; }
    Family& family() const { return *family_; }
    bool leads_family() const { return choice_ == 0; }
    SequenceState state() const { return state_; }
    TokenSink& sink() const { return *sink_; }
    std::span<const TokenId> tokens() const { return tokens_; }
    std::int32_t token_count() const { return static_cast<std::int32_t>(tokens_.size()); }
    std::int32_t prompt_tokens() const { return prompt_tokens_; }
    std::int32_t computed() const { return computed_; }
    std::span<const std::int32_t> boundaries() const { return boundaries_; }
    /// Tokens that prefill has yet to compute; 0 while decoding.
    std::int32_t prefill_left() const;
    bool has_started() const { return started_at_.has_value(); }
    bool is_decoding() const { return state_ == SequenceState::kRunning && prefill_left() == 0; }
    /// Waits until the first choice has computed the prompt.
    bool is_blocked() const;
    std::int32_t draft_tokens_max() const { return draft_tokens_max_; }
    /// Drafts that may still follow before the sequence ends anyway, at most the request's bound.
    std::int32_t drafts_allowed() const;

    SequenceView view(Clock::time_point now) const;
    /// How the token behind the known ones and the first `drafts` drafts is drawn. Refers to this
    /// sequence.
    kernels::SamplingRow sampling_row(std::int32_t draft = 0) const;

    /// Goes on from `computed` tokens that the cache gave.
    void admit(StateSlot slot, std::int32_t computed, Clock::time_point now);
    void preempt(Clock::time_point now);
    void advance(std::int32_t rows);
    /// Takes one sampled token and passes it to the sink, unless it is an end or stop token.
    /// Returns the reason when the sequence ends with it.
    std::optional<FinishReason> accept(TokenId token, const kernels::RowLogprobs* logprobs,
                                       Clock::time_point now);
    void finish(FinishReason reason, std::string error, Clock::time_point now);
    /// Valid when finished.
    const FinishInfo& finish_info() const { return info_; }

    // The stepper's and the drafter's.

    BlockTable blocks;
    StateSlot state_slot = kScratchSlot;    // scratch = holds none
    std::vector<std::int32_t> checkpoints;  // places still to come, the next one last
    std::int32_t checkpoints_behind = -1;   // the position they were planned for
    std::int32_t replay_rows = 0;           // accepted, and not yet in the recurrent state
    std::vector<TokenId> drafts;            // to verify in the next step
    static constexpr std::int32_t kNoDrafts = -1;
    std::int32_t draft_entries = 0;  // of the draft block's cache; kNoDrafts = given up
    std::int32_t kept_rows = 0;      // hidden rows kept for it, behind those
    Acceptance acceptance;

private:
    bool ends_at(TokenId token) const;

    std::shared_ptr<Family> family_;
    std::int32_t choice_;
    std::uint64_t arrival_;
    std::shared_ptr<TokenSink> sink_;
    SamplingOptions sampling_;
    std::vector<kernels::LogitBias> bias_;
    std::vector<TokenId> stop_tokens_;  // the model's end tokens, then the request's stop tokens
    std::size_t end_token_count_;       // the first so many of them
    bool ignores_end_tokens_;
    std::int32_t min_tokens_;
    std::int32_t generated_max_;
    std::int32_t top_logprobs_;
    std::int32_t choice_index_;
    std::int32_t priority_;
    std::int32_t draft_tokens_max_;
    std::vector<std::int32_t> boundaries_;

    SequenceState state_ = SequenceState::kWaiting;
    std::vector<TokenId> tokens_;  // reserved in full: decoding does not allocate
    std::int32_t prompt_tokens_;
    std::int32_t generated_tokens_ = 0;
    std::int32_t computed_ = 0;
    std::int32_t prefill_until_;  // tokens known when it last began to wait
    bool has_penalty_;
    TokenCounts counts_;  // empty without penalty

    Clock::time_point accepted_at_;
    Clock::time_point waiting_since_;
    std::chrono::duration<double> waited_before_{};  // before waiting_since_
    std::optional<Clock::time_point> started_at_;
    std::optional<Clock::time_point> first_token_at_;
    FinishInfo info_;
};

}  // namespace replica

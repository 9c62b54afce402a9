// One request on its way through the engine: its tokens, its place in the cache, its clock.
//
//   kWaiting ──admitted──▶ kRunning ──end, limit, cancel, error──▶ kFinished
//       ▲                     │
//       └─────preempted───────┘   computed falls to 0; the tokens stay, so the text goes on as it
//                                 would have: draws depend on seed and position alone
//
//   tokens    p p p p p p g g g          p prompt, g generated
//             └ computed ┘ └ rows of the next step: all but the last only fill the cache
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
#include "replica/engine/engine.h"
#include "replica/engine/scheduler.h"
#include "replica/engine/token_counts.h"

namespace replica {

using Clock = std::chrono::steady_clock;

enum class SequenceState { kWaiting, kRunning, kFinished };

struct SequenceOrigin {
    RequestId id = 0;  // counts up: also the order of arrival
    std::int32_t max_model_len = 0;
    std::span<const TokenId> end_tokens;
    Clock::time_point accepted_at;
};

/// Made by the submitting thread, then the engine thread's alone.
class Sequence {
public:
    /// The request is valid: 1 .. max_model_len - 1 prompt tokens and a sink.
    Sequence(EngineRequest request, const SequenceOrigin& origin);

    RequestId id() const { return id_; }
    SequenceState state() const { return state_; }
    TokenSink& sink() const { return *sink_; }
    std::span<const TokenId> tokens() const { return tokens_; }
    std::int32_t token_count() const { return static_cast<std::int32_t>(tokens_.size()); }
    std::int32_t prompt_tokens() const { return prompt_tokens_; }
    std::int32_t computed() const { return computed_; }
    /// Tokens that prefill has yet to compute; 0 while decoding.
    std::int32_t prefill_left() const;
    bool has_started() const { return started_at_.has_value(); }

    SequenceView view(Clock::time_point now) const;
    /// How the token after the known ones is drawn. Refers to this sequence.
    kernels::SamplingRow sampling_row() const;

    void admit(StateSlot slot, Clock::time_point now);
    void preempt(Clock::time_point now);
    void advance(std::int32_t rows);
    /// Takes one sampled token and passes it to the sink, unless it is an end or stop token.
    /// Returns the reason when the sequence ends with it.
    std::optional<FinishReason> accept(TokenId token, Clock::time_point now);
    void finish(FinishReason reason, std::string error, Clock::time_point now);
    /// Valid when finished.
    const FinishInfo& finish_info() const { return info_; }

    BlockTable blocks;                    // filled by the stepper
    StateSlot state_slot = kScratchSlot;  // scratch = holds none

private:
    bool ends_at(TokenId token) const;

    RequestId id_;
    std::shared_ptr<TokenSink> sink_;
    SamplingOptions sampling_;
    std::vector<kernels::LogitBias> bias_;
    std::vector<TokenId> stop_tokens_;  // the model's end tokens, then the request's stop tokens
    std::size_t end_token_count_;       // the first so many of them
    bool ignores_end_tokens_;
    std::int32_t min_tokens_;
    std::int32_t generated_max_;
    std::int32_t choice_index_;
    std::int32_t priority_;

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

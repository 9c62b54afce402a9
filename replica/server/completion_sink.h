// The engine's end of one choice: turns sampled tokens into updates for the I/O thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "replica/engine/engine.h"
#include "replica/server/mailbox.h"
#include "replica/server/metrics.h"
#include "replica/server/prepared_request.h"

namespace replica::server {

/// on_… run on the engine thread; phase() and cached_tokens() on any.
class CompletionSink final : public TokenSink {
public:
    struct Setup {
        int choice = 0;
        bool wants_token_ids = false;
        std::chrono::steady_clock::time_point arrival;
    };
    /// `model` and `metrics` outlive the engine.
    CompletionSink(const ServedModel& model, ChoiceTextOptions text, Metrics& metrics,
                   std::shared_ptr<Mailbox> mailbox, Setup setup);

    void on_start(std::int32_t cached_tokens) override;
    SinkVerdict on_token(TokenId token, const kernels::RowLogprobs* logprobs) override;
    void on_finish(const FinishInfo& info) override;

    RequestPhase phase() const { return phase_.load(std::memory_order_relaxed); }
    /// Of the prompt; none before its computation has begun.
    std::optional<std::int32_t> cached_tokens() const;

private:
    using Clock = std::chrono::steady_clock;

    ChoiceText text_;
    Metrics& metrics_;
    std::shared_ptr<Mailbox> mailbox_;
    Setup setup_;
    Clock::time_point last_token_{};
    bool has_token_ = false;
    bool has_overflowed_ = false;
    std::atomic<RequestPhase> phase_{RequestPhase::kQueue};
    std::atomic<std::int32_t> cached_tokens_{-1};  // -1: not known yet
};

}  // namespace replica::server

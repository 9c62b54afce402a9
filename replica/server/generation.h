// A request while it runs, seen from the I/O thread: n choices in the engine, one mailbox.
//
//   start ─▶ next ─▶ next ─▶ … ─▶ is_finished        cancel / abort at any time; next goes on until
//                                                    the engine has let go of every choice
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "replica/engine/engine.h"
#include "replica/server/completion_sink.h"

namespace replica::server {

/// Sums over the choices of a request.
struct GenerationTotals {
    proto::Usage usage;
    proto::Timings timings;     // of the slowest choice; drafts are summed
    std::string finish_reason;  // of the worst choice: error, cancelled, length, tool_calls, stop
};

/// I/O thread only.
class Generation {
public:
    using Clock = std::chrono::steady_clock;

    struct Places {
        boost::asio::any_io_executor executor;
        Engine& engine;
        const ServedModel& model;
        Metrics& metrics;
    };
    Generation(Places places, PreparedRequest request, Clock::time_point arrival);
    Generation(const Generation&) = delete;
    Generation& operator=(const Generation&) = delete;
    /// Cancels what still runs.
    ~Generation();

    /// Hands all prompts, each with its choices, to the engine, or none.
    [[nodiscard]] proto::Result<void> start();
    /// What is new; empty when `timeout` has passed without news, or when a fault has just become
    /// known. Precondition: not finished.
    boost::asio::awaitable<std::vector<ChoiceUpdate>> next(
        std::optional<std::chrono::milliseconds> timeout);
    bool is_finished() const { return ended_count_ == sinks_.size(); }

    /// The client has left. Takes effect within a step; the first call counts.
    void cancel();
    /// The server ends it: like cancel, but the client is told why.
    void abort(proto::ApiError why);
    /// Why the answer cannot be completed, once that is known.
    const std::optional<proto::ApiError>& fault() const { return fault_; }

    const PreparedRequest& request() const { return request_; }
    /// Prompt tokens found in the prefix cache, of the prompts that have begun; none before one
    /// has.
    std::optional<std::int64_t> cached_tokens() const;
    RequestPhase phase() const;
    /// Valid when finished.
    const GenerationTotals& totals() const { return totals_; }

private:
    [[nodiscard]] proto::Result<void> submit(PreparedPrompt& prompt);
    void account(const ChoiceUpdate& update);
    void cancel_all();

    Places places_;
    PreparedRequest request_;
    Clock::time_point arrival_;
    /// Cancelled by the mailbox's wake; shared, so that a late wake finds it gone.
    std::shared_ptr<boost::asio::steady_timer> news_;
    std::shared_ptr<Mailbox> mailbox_;
    std::vector<std::shared_ptr<CompletionSink>> sinks_;
    std::vector<RequestId> ids_;  // one per prompt
    std::size_t ended_count_ = 0;
    std::optional<Clock::time_point> cancelled_at_;
    std::optional<proto::ApiError> fault_;
    GenerationTotals totals_;
};

}  // namespace replica::server

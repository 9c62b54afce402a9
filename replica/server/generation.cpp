#include "replica/server/generation.h"

#include <algorithm>
#include <array>
#include <cassert>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "replica/server/expected_wait.h"

namespace replica::server {
namespace {

namespace asio = boost::asio;

std::shared_ptr<Mailbox> make_mailbox(const asio::any_io_executor& executor,
                                      const std::shared_ptr<asio::steady_timer>& news) {
    return std::make_shared<Mailbox>([executor, weak = std::weak_ptr(news)] {
        asio::post(executor, [weak] {
            if (const auto timer = weak.lock()) timer->cancel();
        });
    });
}

/// The later in this list, the more a client or a router must know about it.
int severity(std::string_view finish_reason) {
    constexpr std::array<std::string_view, 5> kOrder = {"stop", "tool_calls", "length", "cancelled",
                                                        "error"};
    const auto* found = std::find(kOrder.begin(), kOrder.end(), finish_reason);
    return static_cast<int>(found - kOrder.begin());
}

/// Says which bound was met and how full it is.
proto::ApiError queue_full(const EngineStatus& engine, std::size_t prompt_tokens) {
    proto::ApiError error;
    error.code = proto::ErrorCode::kQueueFull;
    const std::int64_t wanted = engine.queued_tokens + static_cast<std::int64_t>(prompt_tokens);
    const bool is_by_tokens = engine.queued_tokens_max > 0 && wanted > engine.queued_tokens_max;
    const double wait_s = expected_wait_s(engine, engine.waiting);
    error.retry_after_s = proto::retry_after_seconds(wait_s, random_spread());
    error.message = is_by_tokens
                        ? "The queue is full: it holds " + std::to_string(engine.queued_tokens) +
                              " of at most " + std::to_string(engine.queued_tokens_max) +
                              " prompt tokens, and this prompt has " +
                              std::to_string(prompt_tokens) + "."
                        : "The queue is full: " + std::to_string(engine.waiting) + " of " +
                              std::to_string(engine.waiting_max) + " places are taken.";
    error.message += " Try again in " + std::to_string(*error.retry_after_s) +
                     (*error.retry_after_s == 1 ? " second." : " seconds.");
    return error;
}

proto::ApiError submit_error(SubmitStatus status, const EngineStatus& engine,
                             std::size_t prompt_tokens) {
    proto::ApiError error;
    switch (status) {
        case SubmitStatus::kQueueFull:
            return queue_full(engine, prompt_tokens);
        case SubmitStatus::kStopping:
            error.code = proto::ErrorCode::kDraining;
            error.message = "This server is stopping and takes no new requests.";
            error.retry_after_s = 5;
            break;
        case SubmitStatus::kContextExceeded:
            error.code = proto::ErrorCode::kContextLengthExceeded;
            error.message = "The prompt exceeds the available context size.";
            break;
        case SubmitStatus::kPromptEmpty:
        case SubmitStatus::kAccepted:
            error.code = proto::ErrorCode::kInternalError;
            error.message = "The engine did not take the request.";
            break;
    }
    return error;
}

}  // namespace

Generation::Generation(Places places, PreparedRequest request, Clock::time_point arrival)
    : places_(std::move(places)),
      request_(std::move(request)),
      arrival_(arrival),
      news_(std::make_shared<asio::steady_timer>(places_.executor)),
      mailbox_(make_mailbox(places_.executor, news_)) {}

Generation::~Generation() {
    if (!is_finished()) cancel_all();
}

proto::Result<void> Generation::start() {
    const EngineStatus engine = places_.engine.status();
    if (request_.prompts.size() > static_cast<std::size_t>(engine.waiting_max)) {
        proto::ApiError error;
        error.code = proto::ErrorCode::kInvalidValue;
        error.message = "The request has " + std::to_string(request_.prompts.size()) +
                        " prompts; this server's queue holds at most " +
                        std::to_string(engine.waiting_max) + ".";
        error.param = "prompt";
        return tl::make_unexpected(std::move(error));
    }
    totals_.usage.prompt_tokens = request_.prompt_tokens;
    totals_.finish_reason = "stop";
    for (PreparedPrompt& prompt : request_.prompts) {
        auto submitted = submit(prompt);
        if (submitted) continue;
        cancel_all();
        return submitted;
    }
    return {};
}

proto::Result<void> Generation::submit(PreparedPrompt& prompt) {
    std::vector<std::shared_ptr<CompletionSink>> sinks;
    for (int i = 0; i < request_.n; ++i) {
        sinks.push_back(std::make_shared<CompletionSink>(
            places_.model, prompt.text, places_.metrics, mailbox_,
            CompletionSink::Setup{.choice = static_cast<int>(sinks_.size()) + i,
                                  .wants_token_ids = request_.return_token_ids,
                                  .arrival = arrival_}));
    }
    const std::size_t prompt_tokens = prompt.engine.prompt.size();
    prompt.engine.continues_request = !ids_.empty();
    prompt.engine.sinks.assign(sinks.begin(), sinks.end());
    const SubmitResult result = places_.engine.submit(std::move(prompt.engine));
    if (result.status != SubmitStatus::kAccepted) {
        return tl::make_unexpected(
            submit_error(result.status, places_.engine.status(), prompt_tokens));
    }
    sinks_.insert(sinks_.end(), sinks.begin(), sinks.end());
    ids_.push_back(result.id);
    return {};
}

asio::awaitable<std::vector<ChoiceUpdate>> Generation::next(
    std::optional<std::chrono::milliseconds> timeout) {
    assert(!is_finished() && "there is nothing to wait for");
    const auto deadline = timeout ? Clock::now() + *timeout : Clock::time_point::max();
    const bool had_fault = fault_.has_value();
    const auto news = news_;  // outlives this object should it die while we wait
    std::vector<ChoiceUpdate> updates = mailbox_->take();
    // A wake may come late, for news that an earlier look has taken already.
    while (updates.empty() && fault_.has_value() == had_fault && Clock::now() < deadline) {
        news->expires_at(deadline);
        co_await news->async_wait(asio::as_tuple(asio::use_awaitable));
        updates = mailbox_->take();
    }
    for (const ChoiceUpdate& update : updates)
        account(update);
    co_return updates;
}

void Generation::account(const ChoiceUpdate& update) {
    if (!update.end) return;
    const ChoiceEnd& end = *update.end;
    ++ended_count_;
    places_.metrics.observe_finished(end, Clock::now() - arrival_);
    if (cancelled_at_) places_.metrics.observe_cancel_to_free(Clock::now() - *cancelled_at_);
    totals_.usage.completion_tokens += end.completion_tokens;
    totals_.usage.reasoning_tokens += end.reasoning_tokens;
    // The choices of a prompt share it: it is counted once.
    if (update.choice % request_.n == 0) totals_.usage.cached_tokens += end.cached_tokens;
    const std::int64_t drafted = totals_.timings.drafted + end.timings.drafted;
    const std::int64_t accepted = totals_.timings.accepted + end.timings.accepted;
    if (severity(end.finish_reason) > severity(totals_.finish_reason)) {
        totals_.finish_reason = end.finish_reason;
    }
    if (end.timings.decode_ms + end.timings.prefill_ms >=
        totals_.timings.decode_ms + totals_.timings.prefill_ms) {
        totals_.timings = end.timings;
    }
    totals_.timings.drafted = drafted;
    totals_.timings.accepted = accepted;
    const bool is_stopped_from_below = end.finish_reason == "cancelled" && !cancelled_at_;
    if (end.finish_reason == "error" || is_stopped_from_below) {
        proto::ApiError why;
        why.code = proto::ErrorCode::kEngineError;
        why.message = end.error.empty() ? "The engine has stopped." : end.error;
        abort(std::move(why));  // the other choices are of no use without this one
    }
}

void Generation::cancel() {
    if (!cancelled_at_) cancelled_at_ = Clock::now();
    cancel_all();
}

void Generation::abort(proto::ApiError why) {
    if (!fault_) fault_ = std::move(why);
    news_->cancel();
    cancel();
}

void Generation::cancel_all() {
    for (const RequestId id : ids_)
        places_.engine.cancel(id);
}

std::optional<std::int64_t> Generation::cached_tokens() const {
    std::optional<std::int64_t> sum;
    const auto n = static_cast<std::size_t>(request_.n);
    for (std::size_t first = 0; first < sinks_.size(); first += n) {
        if (const auto cached = sinks_[first]->cached_tokens()) sum = sum.value_or(0) + *cached;
    }
    return sum;
}

RequestPhase Generation::phase() const {
    RequestPhase furthest = RequestPhase::kQueue;
    for (const auto& sink : sinks_)
        furthest = std::max(furthest, sink->phase());
    return furthest;
}

}  // namespace replica::server

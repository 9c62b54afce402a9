#include "router/generation.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "proto/sse.h"
#include "proto/status.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kRefusalBytesMax = std::size_t{64} << 10;  // of a 429 or 503 body
constexpr std::chrono::milliseconds kRefusalRead{1'000};
/// 429 and 503 answers one request puts up with before it hands one on.
constexpr int kBusyAnswersMax = 3;
constexpr int kRetryAfterDefault = 1;  // a busy replica that names no time

/// A request on this many instances as they died is not sent again.
constexpr int kDeathsMax = 2;

double seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

Generation::Generation(Services& services, proto::HttpExchange& exchange, GenerationJob job)
    : services_(services),
      exchange_(exchange),
      job_(std::move(job)),
      ticket_{.arrival = job_.arrival,
              .stopped_before = services.dispatcher.pauses().stopped(Clock::now()),
              .priority = job_.priority,
              .sequences = job_.sequences,
              .body_bytes = exchange.request().body.size(),
              .prompt_tokens = job_.prompt_tokens,
              .output_tokens = job_.output_tokens,
              .output_tokens_kept = job_.output_tokens_kept,
              .model = job_.model,
              .served_model = job_.served_model,
              .key = job_.key,
              .boundaries = job_.boundaries},
      body_(std::make_shared<const std::string>(std::move(exchange.request().body))),
      gauge_(services.metrics, Phase::kQueued),
      pinger_(exchange, job_.arrival, services.config.ping),
      trace_(trace_of(exchange.request().headers)),
      stopped_before_(ticket_.stopped_before),
      fate_(exchange.executor()) {
    record_.trace_id = trace_.trace_id;
    record_.is_stream = job_.is_stream;
    record_.priority_class = class_of(job_.priority);
    services_.generations.push_back(this);
    place_ = std::prev(services_.generations.end());
}

Generation::~Generation() {
    services_.generations.erase(place_);
}

asio::awaitable<void> Generation::run() {
    services_.retry_budget.on_request(Clock::now());
    exchange_.on_disconnect([this] { on_client_gone(); });
    if (job_.is_stream) pinger_.start();
    std::exception_ptr failure;
    try {
        co_await run_attempts();
    } catch (...) {
        failure = std::current_exception();
    }
    co_await pinger_.stop();
    exchange_.on_disconnect({});
    if (failure) std::rethrow_exception(failure);
    if (client_gone_at_) {
        record_.outcome = Outcome::kClientAbort;
        const auto phase = static_cast<std::size_t>(gauge_.phase());
        services_.metrics.client_aborts.at(phase)->Increment();
        services_.metrics.cancel_seconds->Observe(seconds(Clock::now() - *client_gone_at_));
    }
    services_.metrics.request_seconds->Observe(seconds(Clock::now() - job_.arrival));
    // Only now: just after a replica's start its name is not known yet.
    record_.model = services_.set.served_name(job_.model);
    services_.access_log.note(exchange_.request().request_id, std::move(record_));
}

asio::awaitable<void> Generation::run_attempts() {
    while (!client_gone_at_) {
        auto granted = co_await services_.dispatcher.acquire(ticket_);
        if (client_gone_at_) co_return;
        if (cut_ != Cut::kNone || !granted) {
            co_await pinger_.stop();
            CutAnswer refusal = cut_answer();
            if (cut_ == Cut::kNone) {
                refusal.error = std::move(granted.error());
                refusal.outcome = outcome_of(refusal.error.code);
                if (refusal.error.code == proto::ErrorCode::kReplicaLost) {
                    refusal = lost_answer();
                }
            } else if (cut_ == Cut::kShutdown) {
                refusal.error = services_.dispatcher.refuse(RejectReason::kDraining);
            }
            co_await answer_error(refusal.error, refusal.outcome);
            co_return;
        }
        const std::unique_ptr<Grant> grant = std::move(*granted);
        if (!record_.queued) {
            record_.queued = Clock::now() - job_.arrival;
            services_.metrics.queue_wait_seconds
                .at(static_cast<std::size_t>(record_.priority_class))
                ->Observe(seconds(*record_.queued));
        }
        record_.replica = grant->replica.index;
        ++record_.attempts;
        record_.reason = name_of(grant->decision.reason);
        record_.matched_tokens = grant->decision.matched_tokens;
        record_.expected_ttft_s = grant->decision.expected_ttft_s;
        record_.dispatch = grant->dispatch_id;
        record_.decision = std::make_shared<const Decision>(grant->decision);
        gauge_.enter(Phase::kPrefill);
        ticket_.in_front = true;
        running_on_ = grant->replica.index;
        dispatched_at_ = grant->selected_at;
        const Next next = co_await attempt(*grant);
        running_on_.reset();
        dispatched_at_.reset();
        if (cut_ == Cut::kEvicted) cut_ = Cut::kNone;  // it concerned that replica
        record_.generated_tokens = grant->generated_tokens;
        if (next == Next::kEnd || client_gone_at_) co_return;
        gauge_.enter(Phase::kQueued);
    }
}

asio::awaitable<Generation::Next> Generation::attempt(Grant& grant) {
    cancel_ = std::make_shared<proto::CancelHandle>();
    has_hung_ = false;
    grant.on_lost = [this, cancel = cancel_, instance = grant.replica] {
        has_hung_ = services_.set.has_hung(instance);
        cancel->cancel();
    };
    grant.charge.mark_sent(Clock::now());
    proto::HttpClientRequest request = upstream_request(grant);
    request.on_sent = [this, since = Clock::now()] {
        services_.metrics.overhead_seconds.at(static_cast<std::size_t>(Stage::kDispatch))
            ->Observe(seconds(Clock::now() - since));
    };
    auto response = co_await services_.client.request(grant.endpoint, std::move(request));
    if (client_gone_at_) {
        count_attempt(grant, AttemptOutcome::kAborted);
        co_return Next::kEnd;
    }
    if (!response) {
        const AttemptResult result = judge(response.error());
        // Nobody listens any more. A connection that ends without an answer proves nothing about
        // the others: the status stream tells, by its end or its silence.
        if (response.error().kind == proto::ClientErrorKind::kRefused) {
            services_.set.on_gone(grant.replica.index, Clock::now());
        }
        if (response.error().kind == proto::ClientErrorKind::kTimeout) has_hung_ = true;
        grant.judge(verdict_of(response.error(), cut_ != Cut::kNone));
        services_.on_suspicion(grant.replica.index);
        spdlog::warn("event=attempt_failed request_id={} replica={} dispatch={} kind={}",
                     exchange_.request().request_id, grant.replica.index, grant.dispatch_id,
                     proto::client_error_name(response.error().kind));
        co_return co_await after_failure(grant, result);
    }
    if (judge_status(response->status) != AttemptResult::kAnswer) {
        const bool goes_elsewhere = co_await try_elsewhere(grant, *response);
        if (goes_elsewhere) co_return Next::kAgain;
    }
    if (client_gone_at_) co_return Next::kEnd;
    const bool is_event_stream =
        response->status == 200 &&
        response->headers.get("content-type").substr(0, proto::kSseContentType.size()) ==
            proto::kSseContentType;
    if (is_event_stream) {
        on_first_byte(grant, *response);
        co_return co_await relay_stream(grant, *response);
    }
    co_return co_await relay_whole(grant, *response);
}

/// An answer that is a failure: true when the request goes to another replica instead.
asio::awaitable<bool> Generation::try_elsewhere(Grant& grant, proto::UpstreamResponse& response) {
    const auto now = Clock::now();
    switch (judge_status(response.status)) {
        case AttemptResult::kAnswer:
            co_return false;
        case AttemptResult::kRefused:
            services_.on_suspicion(grant.replica.index);
            services_.metrics.retries.at(static_cast<std::size_t>(RetryReason::kRefused))
                ->Increment();
            grant.judge(AttemptVerdict::kNeutral);  // 421: another instance is there
            count_attempt(grant, AttemptOutcome::kRefused);
            ++failure_count_;
            ticket_.excluded.push_back(grant.replica);
            break;
        case AttemptResult::kBusy: {
            const std::int64_t wait_s =
                header_number(response.headers, "retry-after",
                              {.fallback = kRetryAfterDefault, .most = kRetryAfterMax});
            services_.set.on_saturated(grant.replica.index, now + std::chrono::seconds(wait_s),
                                       now);
            grant.judge(verdict_of(response.status));
            if (++busy_count_ > kBusyAnswersMax) co_return false;
            if (!services_.retry_budget.take(now)) {
                services_.metrics.retry_budget_exhausted->Increment();
                co_return false;
            }
            services_.metrics.retries.at(static_cast<std::size_t>(RetryReason::kBusy))->Increment();
            count_attempt(grant, AttemptOutcome::kBusy);
            break;
        }
        case AttemptResult::kLost:
            grant.judge(verdict_of(response.status));
            if (lost_.size() >= static_cast<std::size_t>(services_.config.retries_max)) {
                co_return false;
            }
            if (!services_.retry_budget.take(now)) {
                services_.metrics.retry_budget_exhausted->Increment();
                co_return false;
            }
            lost_.push_back(grant.replica);
            services_.metrics.retries.at(static_cast<std::size_t>(RetryReason::kLost))->Increment();
            count_attempt(grant, AttemptOutcome::kLost);
            ++failure_count_;
            ticket_.excluded.push_back(grant.replica);
            break;
    }
    // Read to its end, the connection is kept; the text itself is of no interest.
    const auto rest = co_await response.read_all(kRefusalBytesMax);
    if (!rest) response.close();
    co_return true;
}

/// No answer at all.
asio::awaitable<Generation::Next> Generation::after_failure(Grant& grant, AttemptResult result) {
    if (cut_ == Cut::kEvicted) {  // not its fault: it begins anew elsewhere
        count_attempt(grant, AttemptOutcome::kAborted);
        ticket_.excluded.push_back(grant.replica);
        co_return Next::kAgain;
    }
    if (cut_ != Cut::kNone) {
        count_attempt(grant, AttemptOutcome::kAborted);
        co_await pinger_.stop();
        CutAnswer answer = cut_answer();
        if (cut_ == Cut::kShutdown) {
            answer.error = services_.dispatcher.refuse(RejectReason::kDraining);
        }
        co_await answer_error(answer.error, answer.outcome);
        co_return Next::kEnd;
    }
    ticket_.excluded.push_back(grant.replica);
    ++failure_count_;
    stall_count_ += has_hung_ ? 1 : 0;
    if (result == AttemptResult::kRefused) {
        services_.metrics.retries.at(static_cast<std::size_t>(RetryReason::kRefused))->Increment();
        count_attempt(grant, AttemptOutcome::kRefused);
        co_return Next::kAgain;  // bounded: every instance is excluded at most once
    }
    count_attempt(grant, AttemptOutcome::kLost);
    lost_.push_back(grant.replica);
    const bool goes_on = co_await may_try_again(grant);
    if (client_gone_at_) co_return Next::kEnd;
    if (goes_on) {
        services_.metrics.retries.at(static_cast<std::size_t>(RetryReason::kLost))->Increment();
        co_return Next::kAgain;
    }
    co_await pinger_.stop();
    const CutAnswer answer = lost_answer();
    co_await answer_error(answer.error, answer.outcome);
    co_return Next::kEnd;
}

/// Attempts are used up: what failed, and whether all of it was replicas that hung.
Generation::CutAnswer Generation::lost_answer() const {
    const bool is_one = failure_count_ == 1;
    if (failure_count_ > 0 && stall_count_ == failure_count_) {
        return {{proto::ErrorCode::kReplicaTimeout,
                 is_one ? "The replica stopped working before its first token."
                        : "Every replica that took this request stopped working before its first "
                          "token."},
                Outcome::kUpstreamStall};
    }
    return {{proto::ErrorCode::kReplicaLost,
             is_one ? "The replica was lost before its first token."
                    : "Every replica that took this request failed before its first token."},
            Outcome::kUpstreamError};
}

/// The attempt may have been executed, so it is repeated within limits only. What a replica took
/// with it when it died goes to the front of the queue whatever the budget says; a request that
/// was on two instances as they died may be why, and is not handed to a third.
asio::awaitable<bool> Generation::may_try_again(Grant& grant) {
    const bool has_tries = lost_.size() <= static_cast<std::size_t>(services_.config.retries_max);
    if (lost_.size() < 2) {
        if (!has_tries) co_return false;
        if (is_replica_lost(grant)) co_return true;
        if (services_.retry_budget.take(Clock::now())) co_return true;
        const bool is_dead = co_await learn_fate(grant);
        if (!is_dead) services_.metrics.retry_budget_exhausted->Increment();
        co_return is_dead;
    }
    const bool is_dead = co_await learn_fate(grant);
    const auto died = [this](InstanceRef instance) { return has_died(instance); };
    if (std::count_if(lost_.begin(), lost_.end(), died) >= kDeathsMax) {
        services_.metrics.poison_requests->Increment();
        spdlog::warn("event=poison_request request_id={}", exchange_.request().request_id);
        co_return false;
    }
    if (!has_tries) co_return false;
    if (is_dead || services_.retry_budget.take(Clock::now())) co_return true;
    services_.metrics.retry_budget_exhausted->Increment();
    co_return false;
}

/// A broken connection does not say whether the process died; the look that follows it does, within
/// a round trip. Waits for its word no longer than a probe may take.
asio::awaitable<bool> Generation::learn_fate(Grant& grant) {
    const auto deadline = Clock::now() + services_.config.probe;
    grant.on_lost = [this] { fate_.cancel(); };
    while (!is_replica_lost(grant) && !client_gone_at_ && cut_ == Cut::kNone &&
           Clock::now() < deadline) {
        fate_.expires_at(deadline);
        (void)co_await fate_.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    grant.on_lost = {};
    co_return is_replica_lost(grant);
}

void Generation::cut(Cut why) {
    if (cut_ < why) cut_ = why;
    fate_.cancel();
    if (why != Cut::kEvicted) services_.dispatcher.cancel(ticket_);
    if (cancel_) cancel_->cancel();
}

bool Generation::evict() {
    if (cut_ != Cut::kNone) return false;
    cut(Cut::kEvicted);
    return true;
}

void Generation::check_time(Clock::time_point now) {
    const Config& config = services_.config;
    const auto stopped = services_.dispatcher.pauses().stopped(now) - stopped_before_;
    const auto is_over = [now, stopped](Clock::time_point since, std::chrono::milliseconds limit) {
        return limit.count() > 0 && now - since >= limit + stopped;
    };
    if (cut_ >= Cut::kTtftMax) return;
    if (is_over(job_.arrival, config.total_max)) {
        cut(Cut::kTotalMax);
    } else if (dispatched_at_ && is_over(*dispatched_at_, config.ttft_max)) {
        cut(Cut::kTtftMax);
    }
}

Generation::CutAnswer Generation::cut_answer() const {
    using proto::ErrorCode;
    switch (cut_) {
        case Cut::kTtftMax:
            return {{ErrorCode::kReplicaTimeout, "The first token took longer than ttft_max_s."},
                    Outcome::kUpstreamStall};
        case Cut::kTotalMax:
            return {{ErrorCode::kRequestTimeout,
                     "The request took longer than this server lets one take (total_max_s = " +
                         fmt::format("{}", seconds(services_.config.total_max)) +
                         "). Ask for a shorter answer."},
                    Outcome::kClientError};
        case Cut::kEvicted:
            return {{ErrorCode::kDraining, "The replica was taken out of service."},
                    Outcome::kDrained};
        case Cut::kShutdown:
        case Cut::kNone:
            break;
    }
    return {
        {ErrorCode::kDraining, "The server is shutting down. Send the request again in a moment."},
        Outcome::kDrained};
}

void Generation::on_client_gone() {
    if (!client_gone_at_) client_gone_at_ = Clock::now();
    fate_.cancel();
    services_.dispatcher.cancel(ticket_);
    if (cancel_) cancel_->cancel();
}

proto::HttpClientRequest Generation::upstream_request(const Grant& grant) {
    proto::HttpClientRequest request;
    request.method = "POST";
    request.target = job_.target;
    request.headers = forward_headers(
        services_.config, exchange_.request(),
        {.instance = grant.instance, .dispatch = grant.dispatch_id, .priority = job_.priority});
    add_trace(request.headers, trace_, exchange_.request().headers);
    request.shared_body = body_;
    request.timeouts.connect = services_.config.connect;
    request.timeouts.write_stall = services_.config.write_stall;
    request.cancel = cancel_;
    return request;
}

void Generation::on_first_byte(Grant& grant, const proto::UpstreamResponse& response) {
    const auto now = Clock::now();
    gauge_.enter(Phase::kDecode);
    dispatched_at_.reset();
    record_.first_byte = now - job_.arrival;
    if (job_.is_stream) {  // the head of another answer comes with all of it
        record_.ttft = now - grant.selected_at;
        services_.metrics.time_to_first_token_seconds->Observe(seconds(*record_.first_byte));
    }
    record_.prompt_tokens = header_number(response.headers, proto::kHeaderPromptTokens);
    record_.cached_tokens = std::min(header_number(response.headers, proto::kHeaderCachedTokens),
                                     record_.prompt_tokens);
    services_.estimator.on_prompt(job_.served_model, job_.prompt_bytes, record_.prompt_tokens);
    Placement::FirstToken first{.is_timely = job_.is_stream};
    if (!response.headers.get(proto::kHeaderCachedTokens).empty()) {
        const Replica* replica = services_.set.find(grant.replica.index);
        const bool has_status = replica != nullptr && replica->status;
        first.report =
            AffinityTable::Report{.prompt_tokens = record_.prompt_tokens,
                                  .cached_tokens = record_.cached_tokens,
                                  .block_tokens = has_status ? replica->status->block_tokens : 0};
    }
    grant.on_first_token(first, now);
}

proto::Headers Generation::head_for_client(const proto::UpstreamResponse& response) const {
    proto::Headers headers = answer_headers(response.headers);
    if (lacks_retry_after(response.status, headers)) {
        headers.add("retry-after", std::to_string(services_.dispatcher.computed_retry_after_s()));
    }
    add_decision(headers);
    return headers;
}

/// The last decision, once there was one; errors of our own after an attempt have it too.
void Generation::add_decision(proto::Headers& headers) const {
    if (!services_.config.decision_header || !record_.replica) return;
    const auto queue_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
        record_.queued.value_or(Clock::duration::zero()));
    headers.add(std::string(proto::kHeaderDecision),
                fmt::format("replica={}; reason={}; attempt={}; queue_ms={}; matched={}; "
                            "expected_ttft_ms={:.0f}",
                            *record_.replica, record_.reason, record_.attempts, queue_ms.count(),
                            record_.matched_tokens, 1e3 * record_.expected_ttft_s));
}

/// The instance is down or gone, as far as its reports tell.
bool Generation::has_died(InstanceRef instance) const {
    const Replica* replica = services_.set.find(instance.index);
    return replica == nullptr || replica->life != instance.life ||
           replica->state == ReplicaState::kDown;
}

Outcome Generation::outcome_of(proto::ErrorCode refusal) const {
    switch (refusal) {
        case proto::ErrorCode::kReplicaLost:
            return Outcome::kUpstreamError;
        case proto::ErrorCode::kModelNotFound:
            return Outcome::kClientError;
        default:
            return Outcome::kRejected;
    }
}

Outcome Generation::outcome_of(int status) const {
    if (status == 429 || status == 503) return Outcome::kRejected;
    if (status >= 500) return Outcome::kUpstreamError;
    return status >= 400 ? Outcome::kClientError : Outcome::kOk;
}

void Generation::count_attempt(Grant& grant, AttemptOutcome outcome) {
    grant.judge(verdict_of(outcome));
    grant.series.upstream_requests.at(static_cast<std::size_t>(outcome))->Increment();
    // What follows is between the client and us: however slowly it reads, others get the place.
    grant.give_back();
    running_on_.reset();
    dispatched_at_.reset();
}

void Generation::free_body() {
    body_.reset();
    job_.body_share.release();
}

/// Sends an error in whichever form is still possible.
asio::awaitable<void> Generation::answer_error(const proto::ApiError& error, Outcome outcome) {
    record_.outcome = outcome;
    record_.error = proto::error_info(error.code).name;
    free_body();
    if (!exchange_.is_started()) {
        proto::HttpResponse response = proto::error_response(error);
        add_decision(response.headers);
        (void)co_await exchange_.send(std::move(response));
        co_return;
    }
    exchange_.close_after();
    const std::string event = proto::sse_error(error);
    const bool is_there = co_await exchange_.write(event);
    if (is_there) (void)co_await exchange_.finish();
}

}  // namespace router

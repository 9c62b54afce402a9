#include "router/pass_through.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "proto/free_string.h"
#include "proto/json_reader.h"
#include "router/admission.h"
#include "router/trace_context.h"
#include "router/upstream.h"

namespace router {
namespace {

namespace asio = boost::asio;

/// Requests that cost no slot may go to a replica whose slots are taken.
constexpr int kNoLimit = 1 << 20;

/// One attempt at one replica: its word for the breaker and the counters, given once.
class Attempt {
public:
    Attempt(Services& services, InstanceRef replica)
        : services_(services),
          replica_(replica),
          is_trial_(services.set.mark_dispatch(replica.index)) {}
    ~Attempt() { tell(); }
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    void tell() {
        if (std::exchange(was_told_, true)) return;
        if (services_.set.find(replica_.index) == nullptr) return;  // removed, with its series
        services_.set.on_attempt_end(replica_, verdict_, is_trial_, Clock::now());
        services_.metrics.replica(replica_.index)
            .upstream_requests.at(static_cast<std::size_t>(outcome_))
            ->Increment();
    }

    void end(AttemptOutcome outcome, AttemptVerdict verdict) {
        outcome_ = outcome;
        verdict_ = verdict;
    }
    void end(AttemptOutcome outcome) { end(outcome, verdict_of(outcome)); }

private:
    Services& services_;
    InstanceRef replica_;
    bool is_trial_;
    bool was_told_ = false;
    AttemptOutcome outcome_ = AttemptOutcome::kAborted;
    AttemptVerdict verdict_ = AttemptVerdict::kNeutral;
};

proto::HttpClientRequest request_for(const Services& services, const proto::HttpRequest& client,
                                     const Replica& replica) {
    proto::HttpClientRequest request;
    request.method = client.method;
    request.target = client.path;
    request.headers = forward_headers(services.config, client, {.instance = replica.instance()});
    request.timeouts.connect = services.config.connect;
    request.timeouts.head = services.config.stream_idle;
    request.timeouts.body_idle = services.config.stream_idle;
    return request;
}

/// Nothing is forwarded that this process has not read; a large body is read on another thread. The
/// fields themselves are the replica's to judge.
asio::awaitable<proto::Result<void>> check_body(Services& services, proto::HttpExchange& exchange) {
    const std::string& body = exchange.request().body;
    proto::Result<void> result;
    const auto read = [&] {
        const auto tree = proto::read_json_object(body);
        if (!tree) result = tl::unexpected(tree.error());
    };
    if (body.size() <= kParseInlineBytesMax) {
        read();
        co_return result;
    }
    const auto has_left = std::make_shared<std::atomic<bool>>(false);
    exchange.on_disconnect([has_left] { *has_left = true; });
    std::function<void()> job = read;
    ParsePool::Unwanted is_unwanted = has_left;
    co_await services.parse_pool.run(std::move(job), std::move(is_unwanted));
    exchange.on_disconnect({});
    co_return result;
}

/// One request on its way.
struct Pass {
    Services& services;
    proto::HttpExchange& exchange;
    std::shared_ptr<const std::string> body;
    int lost = 0;    // attempts that may have been executed
    int stalls = 0;  // of them, those whose replica kept silent

    /// The answer is here, and the client may take its time over it.
    void free_body() {
        body.reset();
        admission_of(exchange.request().ticket)->body.release();
    }
};

/// What a whole answer says about its replica.
void judge_answer(Attempt& attempt, int status) {
    const AttemptOutcome outcome = status < 400    ? AttemptOutcome::kOk
                                   : status == 429 ? AttemptOutcome::kBusy
                                   : status < 500  ? AttemptOutcome::kClientError
                                                   : AttemptOutcome::kLost;
    attempt.end(outcome, verdict_of(status));
}

/// How the relay of an answer ended.
enum class Relayed : std::uint8_t { kWhole, kClientLeft, kCut, kBroken, kStalled };

/// The rest of an answer of which `held` is the beginning.
asio::awaitable<Relayed> relay_long(Pass& pass, proto::UpstreamResponse& response,
                                    proto::Headers headers, std::string held) {
    proto::HttpExchange& exchange = pass.exchange;
    pass.free_body();
    bool is_there = co_await exchange.start_stream(response.status, std::move(headers), held);
    proto::free_string(held);
    while (is_there) {
        const proto::ReadResult read =
            co_await response.read_some(pass.services.config.stream_idle);
        if (exchange.is_client_gone()) break;
        if (read.status == proto::ReadStatus::kEnd) {
            (void)co_await exchange.finish();
            co_return Relayed::kWhole;
        }
        if (read.status != proto::ReadStatus::kData) {
            admission_of(exchange.request().ticket)->is_cut = true;
            exchange.abort();  // a cut body says so
            co_return Relayed::kCut;
        }
        is_there = co_await exchange.write(read.data);
    }
    co_return Relayed::kClientLeft;
}

/// kBroken and kStalled: the client has not heard of it.
asio::awaitable<Relayed> relay_answer(Pass& pass, proto::UpstreamResponse& response,
                                      Attempt& attempt) {
    Services& services = pass.services;
    std::string held;
    for (;;) {
        const proto::ReadResult read = co_await response.read_some(services.config.stream_idle);
        if (pass.exchange.is_client_gone()) co_return Relayed::kClientLeft;
        if (read.status == proto::ReadStatus::kEnd) break;
        if (read.status == proto::ReadStatus::kTimeout) co_return Relayed::kStalled;
        if (read.status != proto::ReadStatus::kData) co_return Relayed::kBroken;
        held.append(read.data);
        if (held.size() <= services.config.answer_hold_bytes) continue;
        proto::Headers headers = answer_headers(response.headers);
        const Relayed end =
            co_await relay_long(pass, response, std::move(headers), std::move(held));
        co_return end;
    }
    proto::HttpResponse answer(response.status, answer_headers(response.headers), std::move(held));
    if (lacks_retry_after(answer.status, answer.headers)) {
        const int wait_s = services.dispatcher.computed_retry_after_s();
        answer.headers.add("retry-after", std::to_string(wait_s));
    }
    pass.free_body();
    judge_answer(attempt, answer.status);
    attempt.tell();  // now, however slowly the client reads
    (void)co_await pass.exchange.send(std::move(answer));
    co_return Relayed::kWhole;
}

/// True when the request is over: answered, or nobody listens any more.
asio::awaitable<bool> try_once(Pass& pass, proto::HttpClientRequest request,
                               proto::Endpoint endpoint, Attempt& attempt) {
    auto response = co_await pass.services.client.request(std::move(endpoint), std::move(request));
    if (pass.exchange.is_client_gone()) co_return true;
    if (!response) {
        const bool is_refused = judge(response.error()) == AttemptResult::kRefused;
        attempt.end(is_refused ? AttemptOutcome::kRefused : AttemptOutcome::kLost,
                    verdict_of(response.error(), false));
        if (is_refused) co_return false;
        ++pass.lost;
        if (response.error().kind == proto::ClientErrorKind::kTimeout) ++pass.stalls;
        co_return false;
    }
    if (response->status == 421 || response->status == 503) {
        const bool is_other = response->status == 421;  // another instance than the one meant
        attempt.end(is_other ? AttemptOutcome::kRefused : AttemptOutcome::kBusy,
                    AttemptVerdict::kNeutral);
        co_return false;
    }
    const Relayed end = co_await relay_answer(pass, *response, attempt);
    if (end == Relayed::kWhole) {
        judge_answer(attempt, response->status);
        co_return true;
    }
    if (end == Relayed::kClientLeft) {
        attempt.end(AttemptOutcome::kAborted);
        co_return true;
    }
    attempt.end(AttemptOutcome::kLost);
    ++pass.lost;
    if (end == Relayed::kStalled) ++pass.stalls;
    co_return end == Relayed::kCut;
}

proto::ApiError final_error(const Pass& pass, std::size_t tried) {
    if (tried == 0) return pass.services.dispatcher.refuse(RejectReason::kNoReplicaReady);
    if (static_cast<std::size_t>(pass.stalls) == tried) {
        return {proto::ErrorCode::kReplicaTimeout, "No replica answered in time."};
    }
    return {proto::ErrorCode::kReplicaLost, "No replica answered."};
}

}  // namespace

bool is_pass_through(std::string_view path) {
    return path == "/tokenize" || path == "/detokenize" || path == "/apply-template" ||
           path == "/props";
}

asio::awaitable<void> pass_through(Services& services, proto::HttpExchange& exchange) {
    if (exchange.request().method == "POST") {
        const proto::Result<void> checked = co_await check_body(services, exchange);
        if (!checked) {
            proto::HttpResponse refusal = proto::error_response(checked.error());
            (void)co_await exchange.send(std::move(refusal));
            co_return;
        }
    }
    const auto cancel = std::make_shared<proto::CancelHandle>();
    exchange.on_disconnect([cancel] { cancel->cancel(); });
    const proto::HttpRequest& client = exchange.request();
    Pass pass{services, exchange,
              std::make_shared<const std::string>(std::move(exchange.request().body))};
    const TraceContext trace = trace_of(client.headers);
    std::vector<InstanceRef> excluded;
    // It may be repeated, but one that kills its replica must not be handed from one to the next.
    while (!exchange.is_client_gone() && pass.lost <= services.config.retries_max) {
        Snapshot snapshot = services.set.snapshot(kNoLimit, Clock::now());
        for (ReplicaView& view : snapshot.replicas)
            view.is_saturated = false;
        const Decision decision = choose(snapshot, {.excluded = excluded});
        if (!decision.replica) break;
        const Replica& replica = *services.set.find(decision.replica->index);
        proto::Endpoint endpoint = replica.endpoint;
        proto::HttpClientRequest request = request_for(services, client, replica);
        add_trace(request.headers, trace, client.headers);
        request.shared_body = pass.body;
        request.cancel = cancel;
        Attempt attempt(services, *decision.replica);
        const bool is_over =
            co_await try_once(pass, std::move(request), std::move(endpoint), attempt);
        if (is_over) co_return;
        services.on_suspicion(decision.replica->index);
        excluded.push_back(*decision.replica);
    }
    if (exchange.is_client_gone()) co_return;
    proto::HttpResponse refusal = proto::error_response(final_error(pass, excluded.size()));
    (void)co_await exchange.send(std::move(refusal));
}

}  // namespace router

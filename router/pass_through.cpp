#include "router/pass_through.h"

#include <memory>
#include <utility>
#include <vector>

#include "proto/free_string.h"
#include "router/trace_context.h"
#include "router/upstream.h"

namespace router {
namespace {

namespace asio = boost::asio;

/// Requests that cost no slot may go to a replica whose slots are taken.
constexpr int kNoLimit = 1 << 20;

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

/// The rest of an answer of which `held` is the beginning.
asio::awaitable<void> relay_long(Services& services, proto::HttpExchange& exchange,
                                 proto::UpstreamResponse& response, proto::Headers headers,
                                 std::string held) {
    bool is_there = co_await exchange.start_stream(response.status, std::move(headers), held);
    proto::free_string(held);
    while (is_there) {
        const proto::ReadResult read = co_await response.read_some(services.config.stream_idle);
        if (read.status == proto::ReadStatus::kEnd) {
            (void)co_await exchange.finish();
            co_return;
        }
        if (read.status != proto::ReadStatus::kData) {
            exchange.abort();  // a cut body says so
            co_return;
        }
        is_there = co_await exchange.write(read.data);
    }
}

/// False when the replica broke off and the client has not heard of it.
asio::awaitable<bool> relay_answer(Services& services, proto::HttpExchange& exchange,
                                   proto::UpstreamResponse& response) {
    std::string held;
    for (;;) {
        const proto::ReadResult read = co_await response.read_some(services.config.stream_idle);
        if (read.status == proto::ReadStatus::kEnd) break;
        if (read.status != proto::ReadStatus::kData) co_return false;
        held.append(read.data);
        if (held.size() <= services.config.answer_hold_bytes) continue;
        proto::Headers headers = answer_headers(response.headers);
        co_await relay_long(services, exchange, response, std::move(headers), std::move(held));
        co_return true;
    }
    proto::HttpResponse answer(response.status, answer_headers(response.headers), std::move(held));
    if (lacks_retry_after(answer.status, answer.headers)) {
        const int wait_s = services.dispatcher.computed_retry_after_s();
        answer.headers.add("retry-after", std::to_string(wait_s));
    }
    (void)co_await exchange.send(std::move(answer));
    co_return true;
}

}  // namespace

bool is_pass_through(std::string_view path) {
    return path == "/tokenize" || path == "/detokenize" || path == "/apply-template" ||
           path == "/props";
}

asio::awaitable<void> pass_through(Services& services, proto::HttpExchange& exchange) {
    const auto cancel = std::make_shared<proto::CancelHandle>();
    exchange.on_disconnect([cancel] { cancel->cancel(); });
    proto::HttpRequest& client = exchange.request();
    const auto body = std::make_shared<const std::string>(std::move(client.body));
    const TraceContext trace = trace_of(client.headers);
    std::vector<InstanceRef> excluded;
    // It may be repeated, but one that kills its replica must not be handed from one to the next.
    int lost_count = 0;
    while (!exchange.is_client_gone() && lost_count <= services.config.retries_max) {
        Snapshot snapshot = services.set.snapshot(kNoLimit, Clock::now());
        for (ReplicaView& view : snapshot.replicas)
            view.is_saturated = false;
        const Decision decision = choose(snapshot, {.excluded = excluded});
        if (!decision.replica) break;
        const Replica& replica = *services.set.find(decision.replica->index);
        const proto::Endpoint endpoint = replica.endpoint;
        proto::HttpClientRequest request = request_for(services, client, replica);
        add_trace(request.headers, trace, client.headers);
        request.shared_body = body;
        request.cancel = cancel;
        auto response = co_await services.client.request(endpoint, std::move(request));
        AttemptResult result = AttemptResult::kLost;
        if (!response) {
            result = judge(response.error());
        } else if (response->status == 421 || response->status == 503) {
            result = AttemptResult::kRefused;
        } else {
            const bool is_answered = co_await relay_answer(services, exchange, *response);
            if (is_answered) co_return;
        }
        if (result == AttemptResult::kLost) ++lost_count;
        services.on_suspicion(decision.replica->index);
        excluded.push_back(*decision.replica);
    }
    if (exchange.is_client_gone()) co_return;
    proto::ApiError error(proto::ErrorCode::kReplicaLost, "No replica answered.");
    if (excluded.empty()) error = services.dispatcher.refuse(RejectReason::kNoReplicaReady);
    proto::HttpResponse refusal = proto::error_response(error);
    (void)co_await exchange.send(std::move(refusal));
}

}  // namespace router

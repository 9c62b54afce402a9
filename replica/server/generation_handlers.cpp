#include <charconv>

#include "proto/status.h"
#include "replica/server/handlers.h"
#include "replica/server/respond.h"

namespace replica::server {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

using Prepare = proto::Result<PreparedRequest> (*)(const ServedModel&, std::string_view,
                                                   const RequestContext&);

/// The router's words, heeded because the admit hook has checked the internal key.
RequestContext context_of(const proto::HttpRequest& request) {
    RequestContext context;
    const std::string_view text = request.headers.get(proto::kHeaderPriority);
    constexpr int kPriorityMin = -100, kPriorityMax = 100;
    int priority = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), priority);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && priority >= kPriorityMin && priority <= kPriorityMax) {
        context.header_priority = priority;
    }
    return context;
}

void count_refused(AppState& state, const proto::ApiError& error) {
    const bool is_context = error.code == proto::ErrorCode::kContextLengthExceeded;
    const int status = error.http_status();
    const std::string_view reason = is_context      ? "context"
                                    : status == 429 ? "queue_full"
                                    : status == 503 ? "draining"
                                                    : "invalid";
    state.metrics.count_rejected(reason);
}

/// Puts a running generation where a drain can find it.
class Listed {
public:
    Listed(AppState& state, Generation& generation) : state_(state), generation_(&generation) {
        state_.generations.insert(generation_);
    }
    ~Listed() { state_.generations.erase(generation_); }
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;

private:
    AppState& state_;
    Generation* generation_;
};

asio::awaitable<void> refuse(AppState& state, proto::HttpExchange& exchange,
                             const proto::ApiError& error) {
    count_refused(state, error);
    co_await exchange.send(proto::error_response(error));
}

void tell_router(AppState& state, const std::string& dispatch, const Generation& generation) {
    if (dispatch.empty()) return;
    const GenerationTotals& totals = generation.totals();
    state.status_publisher.done({.dispatch = dispatch,
                                 .prompt = totals.usage.prompt_tokens,
                                 .cached = totals.usage.cached_tokens,
                                 .generated = totals.usage.completion_tokens,
                                 .reason = totals.finish_reason});
}

asio::awaitable<void> run(AppState& state, proto::HttpExchange& exchange, PreparedRequest prepared,
                          Clock::time_point arrival) {
    const proto::Headers& headers = exchange.request().headers;
    const bool is_behind_router = headers.get(proto::kHeaderHop) == "router";
    const std::string dispatch(headers.get(proto::kHeaderDispatch));
    const Tokenizer& tokenizer = state.serving->model->tokenizer;
    const auto writer = prepared.kind == PreparedRequest::Kind::kChat
                            ? make_chat_writer(prepared, tokenizer)
                            : make_text_writer(prepared, tokenizer);
    Generation generation({.executor = state.executor,
                           .engine = *state.serving->engine,
                           .model = *state.serving->model,
                           .metrics = state.metrics},
                          std::move(prepared), arrival);
    if (const auto started = generation.start(); !started) {
        co_await refuse(state, exchange, started.error());
        co_return;
    }
    const Listed listed(state, generation);
    exchange.on_disconnect([&] {
        state.metrics.count_disconnect(generation.phase());
        generation.cancel();
    });
    co_await respond(exchange, generation, *writer, {.is_behind_router = is_behind_router});
    exchange.on_disconnect({});
    tell_router(state, dispatch, generation);
}

asio::awaitable<void> generate(AppState& state, proto::HttpExchange& exchange, Prepare prepare) {
    const auto arrival = Clock::now();
    if (!state.serving) {  // admission has seen it; the model may not go away, only not be there
        const proto::ApiError error = *state.lifecycle.refusal(state.is_wedged);
        co_await refuse(state, exchange, error);
        co_return;
    }
    auto work = [prepare, model = state.serving->model, body = std::move(exchange.request().body),
                 context = context_of(exchange.request())] {
        return prepare(*model, body, context);
    };
    auto prepared = co_await on_worker(state, std::move(work));
    if (exchange.is_client_gone()) {
        state.metrics.count_disconnect(RequestPhase::kPrepare);
        co_return;
    }
    if (!prepared) {
        co_await refuse(state, exchange, prepared.error());
        co_return;
    }
    if (prepared->unknown_fields > 0) state.metrics.count_unknown_fields(prepared->unknown_fields);
    co_await run(state, exchange, std::move(*prepared), arrival);
}

}  // namespace

void add_generation_routes(AppState& state, proto::RouteTable& routes) {
    routes.add("POST", "/v1/chat/completions",
               [&state](proto::HttpExchange& exchange, std::string) {
                   return generate(state, exchange, prepare_chat);
               });
    routes.add("POST", "/v1/completions", [&state](proto::HttpExchange& exchange, std::string) {
        return generate(state, exchange, prepare_completion);
    });
}

}  // namespace replica::server

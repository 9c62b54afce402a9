#include "replica/server/respond.h"

#include "proto/sse.h"
#include "proto/status.h"

namespace replica::server {
namespace {

namespace asio = boost::asio;

/// Cached tokens are known when the prompt's computation has begun; a stream that pings before
/// that begins without.
proto::Headers answer_headers(const Generation& generation) {
    const PreparedRequest& request = generation.request();
    proto::Headers headers;
    headers.add(std::string(proto::kHeaderPromptTokens), std::to_string(request.prompt_tokens));
    if (const auto cached = generation.cached_tokens()) {
        headers.add(std::string(proto::kHeaderCachedTokens), std::to_string(*cached));
    }
    for (const std::string& warning : request.warnings) {
        headers.add(std::string(proto::kHeaderWarning), warning);
    }
    return headers;
}

/// Waits until every choice has been let go of; nothing is sent any more.
asio::awaitable<void> wait_for_end(Generation& generation) {
    while (!generation.is_finished())
        co_await generation.next(std::nullopt);
}

/// Results of co_await have names here: GCC 12 broke the frames of coroutines that used them in a
/// condition with an early co_return, or in `co_return co_await`.
class Stream {
public:
    Stream(proto::HttpExchange& exchange, const Generation& generation, ResponseWriter& writer)
        : exchange_(exchange), generation_(generation), writer_(writer) {}

    /// Each returns false when the client is gone.
    asio::awaitable<bool> start() {
        bool is_open = true;
        if (!exchange_.is_started()) {
            proto::Headers headers = answer_headers(generation_);
            headers.add("Content-Type", std::string(proto::kSseContentType));
            headers.add("Cache-Control", "no-cache");
            is_open = co_await exchange_.start_stream(200, std::move(headers));
        }
        co_return is_open;
    }

    asio::awaitable<bool> send(std::string events) {
        bool is_open = co_await start();
        if (!has_opening_) events.insert(0, writer_.opening());
        has_opening_ = true;
        if (is_open && !events.empty()) is_open = co_await exchange_.write(events);
        co_return is_open;
    }

    asio::awaitable<bool> ping() {
        bool is_open = co_await start();
        if (is_open) is_open = co_await exchange_.write(proto::kSsePing);
        co_return is_open;
    }

    /// The error event when the stream has begun, else an answer with its own status.
    asio::awaitable<void> fail(const proto::ApiError& error) {
        if (!exchange_.is_started()) {
            proto::HttpResponse response = proto::error_response(error);
            co_await exchange_.send(std::move(response));
            co_return;
        }
        exchange_.close_after();
        const std::string event = proto::sse_error(error);
        const bool is_open = co_await exchange_.write(event);
        if (is_open) co_await exchange_.finish();
    }

private:
    proto::HttpExchange& exchange_;
    const Generation& generation_;
    ResponseWriter& writer_;
    bool has_opening_ = false;
};

asio::awaitable<void> respond_streamed(proto::HttpExchange& exchange, Generation& generation,
                                       ResponseWriter& writer, RespondOptions options) {
    Stream stream(exchange, generation, writer);
    std::optional<std::chrono::milliseconds> patience;
    if (!options.is_behind_router) patience = options.ping_interval;
    while (!generation.is_finished() && !generation.fault() && !exchange.is_client_gone()) {
        const auto updates = co_await generation.next(patience);
        if (generation.fault() || exchange.is_client_gone()) break;
        if (updates.empty()) {
            const bool is_open = co_await stream.ping();
            if (!is_open) break;
            continue;
        }
        std::string events;
        for (const ChoiceUpdate& update : updates)
            events += writer.chunk(update);
        const bool is_open = co_await stream.send(std::move(events));
        if (!is_open) break;
    }
    if (generation.fault()) {
        co_await stream.fail(*generation.fault());
    } else if (generation.is_finished() && !exchange.is_client_gone()) {
        const std::string end = writer.closing(generation.totals()) + std::string(proto::kSseDone);
        const bool is_open = co_await stream.send(end);
        if (is_open) co_await exchange.finish();
    } else {
        generation.cancel();
    }
    co_await wait_for_end(generation);
}

asio::awaitable<void> respond_whole(proto::HttpExchange& exchange, Generation& generation,
                                    ResponseWriter& writer) {
    while (!generation.is_finished()) {
        std::vector<ChoiceUpdate> updates = co_await generation.next(std::nullopt);
        for (ChoiceUpdate& update : updates)
            writer.collect(std::move(update));
        if (generation.fault()) break;
    }
    if (generation.fault()) {
        co_await exchange.send(proto::error_response(*generation.fault()));
    } else if (!exchange.is_client_gone()) {
        proto::HttpResponse response = proto::json_response(writer.body(generation.totals()));
        for (const auto& field : answer_headers(generation)) {
            response.headers.add(field.name, field.value);
        }
        co_await exchange.send(std::move(response));
    }
    co_await wait_for_end(generation);
}

}  // namespace

asio::awaitable<void> respond(proto::HttpExchange& exchange, Generation& generation,
                              ResponseWriter& writer, RespondOptions options) {
    if (generation.request().is_streamed) {
        co_await respond_streamed(exchange, generation, writer, options);
    } else {
        co_await respond_whole(exchange, generation, writer);
    }
}

}  // namespace replica::server

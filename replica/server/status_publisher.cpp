#include "replica/server/status_publisher.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "proto/sse.h"

namespace replica::server {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

void StatusPublisher::notify() {
    for (Reader& reader : readers_) {
        reader.has_news = true;
        reader.wake.cancel();
    }
}

void StatusPublisher::done(const proto::DoneEvent& event) {
    const std::string text = proto::sse_event("done", proto::to_json(event));
    for (Reader& reader : readers_) {
        reader.done_events.push_back(text);
        if (reader.done_events.size() > kDoneEventsMax) reader.done_events.pop_front();
    }
    notify();
}

std::string StatusPublisher::report() {
    proto::ReplicaStatus status = status_();
    status.seq = ++seq_;
    return proto::to_json(status);
}

void StatusPublisher::close() {
    is_closed_ = true;
    notify();
}

asio::awaitable<void> StatusPublisher::stream(proto::HttpExchange& exchange) {
    proto::Headers headers{{"Content-Type", std::string(proto::kSseContentType)},
                           {"Cache-Control", "no-cache"}};
    const bool is_open = co_await exchange.start_stream(200, std::move(headers));
    if (!is_open) co_return;
    const auto reader =
        readers_.emplace(readers_.end(), Reader{asio::steady_timer(exchange.executor()), true, {}});
    exchange.on_disconnect([reader] { reader->wake.cancel(); });
    co_await serve(exchange, *reader);
    exchange.on_disconnect({});
    readers_.erase(reader);
}

asio::awaitable<void> StatusPublisher::serve(proto::HttpExchange& exchange, Reader& reader) {
    const auto is_over = [&] { return is_closed_ || exchange.is_client_gone(); };
    const auto sleep_until = [&](Clock::time_point time) {
        reader.wake.expires_at(time);
        return reader.wake.async_wait(asio::as_tuple(asio::use_awaitable));
    };
    while (!is_over()) {
        const auto sent_at = Clock::now();
        reader.has_news = false;
        std::string events;
        for (const std::string& event : reader.done_events)
            events += event;
        reader.done_events.clear();
        events += proto::sse_event("status", report());
        const bool is_open = co_await exchange.write(events);
        if (!is_open) co_return;
        while (!is_over() && !reader.has_news &&
               Clock::now() < sent_at + proto::kStatusIntervalMax) {
            co_await sleep_until(sent_at + proto::kStatusIntervalMax);
        }
        while (!is_over() && Clock::now() < sent_at + proto::kStatusIntervalMin) {
            co_await sleep_until(sent_at + proto::kStatusIntervalMin);
        }
    }
    if (!exchange.is_client_gone()) co_await exchange.finish();
}

}  // namespace replica::server

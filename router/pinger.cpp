#include "router/pinger.h"

#include <cassert>
#include <string>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "proto/sse.h"

namespace router {
namespace asio = boost::asio;

struct Pinger::State {
    State(proto::HttpExchange& to, std::chrono::steady_clock::time_point first,
          std::chrono::milliseconds every)
        : exchange(to),
          next(first + every),
          interval(every),
          timer(to.executor()),
          ended(to.executor()) {
        ended.expires_at(std::chrono::steady_clock::time_point::max());
    }

    proto::HttpExchange& exchange;
    std::chrono::steady_clock::time_point next;
    std::chrono::milliseconds interval;
    asio::steady_timer timer;
    asio::steady_timer ended;  // cancelled when run() returns
    bool is_running = false;
    bool is_stopping = false;
};

proto::Headers stream_headers() {
    return {{"content-type", std::string(proto::kSseContentType)}, {"cache-control", "no-cache"}};
}

Pinger::Pinger(proto::HttpExchange& exchange, std::chrono::steady_clock::time_point arrival,
               std::chrono::milliseconds interval)
    : state_(std::make_shared<State>(exchange, arrival, interval)) {}

Pinger::~Pinger() {
    assert(!state_->is_running && "stop() comes before the end");
}

void Pinger::start() {
    state_->is_running = true;
    asio::co_spawn(state_->exchange.executor(), run(state_),
                   [state = state_](std::exception_ptr e) {
                       state->is_running = false;
                       state->ended.cancel();
                       if (e) spdlog::error("event=pinger_failed");
                   });
}

asio::awaitable<void> Pinger::stop() {
    state_->is_stopping = true;
    state_->timer.cancel();
    while (state_->is_running) {
        (void)co_await state_->ended.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

asio::awaitable<void> Pinger::run(std::shared_ptr<State> state) {
    bool is_there = true;
    while (is_there) {
        state->timer.expires_at(state->next);
        (void)co_await state->timer.async_wait(asio::as_tuple(asio::use_awaitable));
        if (state->is_stopping) break;
        // No co_await inside a condition here: GCC 12 compiles that into an endless loop.
        if (!state->exchange.is_started()) {
            is_there = co_await state->exchange.start_stream(200, stream_headers());
        }
        if (is_there) is_there = co_await state->exchange.write(proto::kSsePing);
        state->next = std::chrono::steady_clock::now() + state->interval;
    }
}

}  // namespace router

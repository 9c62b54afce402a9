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
          written(to.executor()) {
        written.expires_at(std::chrono::steady_clock::time_point::max());
    }

    proto::HttpExchange& exchange;
    std::chrono::steady_clock::time_point next;
    std::chrono::milliseconds interval;
    asio::steady_timer timer;
    asio::steady_timer written;  // cancelled when a ping has been written
    bool is_writing = false;
    bool is_stopping = false;
};

proto::Headers stream_headers() {
    return {{"content-type", std::string(proto::kSseContentType)}, {"cache-control", "no-cache"}};
}

Pinger::Pinger(proto::HttpExchange& exchange, std::chrono::steady_clock::time_point arrival,
               std::chrono::milliseconds interval)
    : state_(std::make_shared<State>(exchange, arrival, interval)) {}

Pinger::~Pinger() {
    assert(!state_->is_writing && "stop() comes before the end");
}

void Pinger::start() {
    wait(state_);
}

void Pinger::wait(const std::shared_ptr<State>& state) {
    state->timer.expires_at(state->next);
    state->timer.async_wait([state](const boost::system::error_code& error) {
        // An expiry may be queued when it is stopped.
        if (error || state->is_stopping) return;
        state->is_writing = true;
        asio::co_spawn(state->exchange.executor(), ping(state),
                       [state](std::exception_ptr failure, bool is_there) {
                           state->is_writing = false;
                           state->written.cancel();
                           if (failure) spdlog::error("event=pinger_failed");
                           if (failure || !is_there || state->is_stopping) return;
                           wait(state);
                       });
    });
}

asio::awaitable<void> Pinger::stop() {
    state_->is_stopping = true;
    state_->timer.cancel();
    while (state_->is_writing) {
        (void)co_await state_->written.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

/// False: the client is gone.
asio::awaitable<bool> Pinger::ping(std::shared_ptr<State> state) {
    bool is_there = true;
    // No co_await inside a condition here: GCC 12 compiles that into an endless loop.
    if (!state->exchange.is_started()) {
        is_there = co_await state->exchange.start_stream(200, stream_headers());
    }
    if (is_there) is_there = co_await state->exchange.write(proto::kSsePing);
    state->next = std::chrono::steady_clock::now() + state->interval;
    co_return is_there;
}

}  // namespace router

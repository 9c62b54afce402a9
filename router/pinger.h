// Keeps a streaming client company while its request has no first byte: a comment after every
// `interval` of silence, counted from the request's arrival. The first one sends the 200 head.
//
// Runs beside the request's coroutine until stop() has been awaited; the exchange belongs to it as
// long as it writes, so nothing else may be sent before stop(). Almost every stream has its first
// byte before a ping is due: until then it is a timer, and stop() then waits for nothing.
// Decision thread only.
#pragma once

#include <chrono>
#include <memory>

#include <boost/asio/awaitable.hpp>

#include "proto/http_server.h"

namespace router {

class Pinger {
public:
    /// Does nothing until start().
    Pinger(proto::HttpExchange& exchange, std::chrono::steady_clock::time_point arrival,
           std::chrono::milliseconds interval);
    ~Pinger();
    Pinger(const Pinger&) = delete;
    Pinger& operator=(const Pinger&) = delete;

    void start();
    /// Returns when no write is in progress and none will follow. Idempotent.
    boost::asio::awaitable<void> stop();

private:
    struct State;
    static void wait(const std::shared_ptr<State>& state);
    static boost::asio::awaitable<bool> ping(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
};

/// Head of a stream that the router begins itself.
[[nodiscard]] proto::Headers stream_headers();

}  // namespace router

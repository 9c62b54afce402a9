// GET /internal/status/stream: a `status` event on every change, at most every 20 ms and at least
// every second, and a `done` event for each dispatch of the router that has ended.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/http_server.h"
#include "proto/status.h"

namespace replica::server {

/// Done events that wait for one slow reader; the oldest go first, since accounts heal by status.
inline constexpr std::size_t kDoneEventsMax = 1024;

/// I/O thread only.
class StatusPublisher {
public:
    /// `status` makes the current report; its seq is set here.
    explicit StatusPublisher(std::function<proto::ReplicaStatus()> status)
        : status_(std::move(status)) {}

    /// Something a report shows has changed.
    void notify();
    void done(const proto::DoneEvent& event);
    /// One report, as JSON.
    std::string report();
    /// Runs until the reader leaves or close() is called.
    boost::asio::awaitable<void> stream(proto::HttpExchange& exchange);
    /// Ends all streams.
    void close();

private:
    struct Reader {
        boost::asio::steady_timer wake;
        bool has_news = true;
        std::deque<std::string> done_events;
    };
    boost::asio::awaitable<void> serve(proto::HttpExchange& exchange, Reader& reader);

    std::function<proto::ReplicaStatus()> status_;
    std::uint64_t seq_ = 0;
    std::list<Reader> readers_;
    bool is_closed_ = false;
};

}  // namespace replica::server

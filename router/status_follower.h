// Follows the status stream of every replica, and reads /info once per instance.
//
// One coroutine per replica: connect, read events, feed the replica set. When the stream is silent
// for `status_silence` it polls /internal/status once per second beside it; when the stream ends it
// polls once at once: refused, or closed without a byte, means the replica is gone. Between
// attempts it waits 100 ms, doubling to 1 s: a replica without a stream is known by these polls.
// /info that fails is asked for again after later reports, 50 ms and doubling to 30 s apart.
// Decision thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/http_client.h"
#include "router/config.h"
#include "router/metrics.h"
#include "router/replica_set.h"

namespace router {

class StatusFollower {
public:
    StatusFollower(boost::asio::any_io_executor executor, const Config& config, ReplicaSet& set,
                   proto::HttpClient& client, Metrics& metrics);
    ~StatusFollower();
    StatusFollower(const StatusFollower&) = delete;
    StatusFollower& operator=(const StatusFollower&) = delete;

    /// Starts to follow replica `index`, or looks again at once if it is followed already (its
    /// announcement changed, or a connection to it failed).
    void follow(int index);

    /// Ends the watch of a replica that was removed.
    void forget(int index);

    /// Ends all coroutines; they return at their next step.
    void stop();

    /// A dispatch ended, as the replica reports it.
    std::function<void(int index, const proto::DoneEvent&)> on_done;

private:
    struct Watch;
    boost::asio::awaitable<void> run(std::shared_ptr<Watch> watch);
    boost::asio::awaitable<bool> follow_stream(Watch& watch);
    boost::asio::awaitable<bool> poll(Watch& watch);
    boost::asio::awaitable<void> read_info(Watch& watch);
    bool take_report(Watch& watch, const std::string& json);
    [[nodiscard]] bool is_over(const Watch& watch) const;
    [[nodiscard]] bool is_wanted(int index);
    [[nodiscard]] proto::HttpClientRequest get(const Watch& watch, std::string target) const;

    boost::asio::any_io_executor executor_;
    const Config& config_;
    ReplicaSet& set_;
    proto::HttpClient& client_;
    Metrics& metrics_;
    std::map<int, std::shared_ptr<Watch>> watches_;
    bool is_stopping_ = false;
};

/// Reads what the router keeps of a replica out of its /info and /v1/models; empty parts where
/// the texts are not what they should be.
[[nodiscard]] ReplicaInfo parse_info(std::string instance, const std::string& info_json,
                                     const std::string& models_json);

}  // namespace router

// What the router answers: the routes, the checks before the queue, and the answers from memory.
//
//   head ─▶ admit: route, media type, draining, queue full, body memory ─▶ body ─▶ route's handler
//
// Everything here is decided before a request may wait; generation.h has the rest of its way.
// Decision thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "proto/http_server.h"
#include "proto/route_table.h"
#include "router/generation.h"

namespace router {

class Handlers {
public:
    explicit Handlers(Services& services);

    /// Decides on the head alone; takes body memory for the request where its length is known.
    std::optional<proto::HttpResponse> admit(proto::HttpRequestHead& head);

    boost::asio::awaitable<void> serve(proto::HttpExchange& exchange) {
        return routes_.serve(exchange);
    }

    /// Bytes a body may have: max(4 MiB, 8 x context tokens) unless it is set.
    [[nodiscard]] std::size_t body_bytes_max() const;

    /// `/ready` says no from now on, while requests are still taken.
    void say_not_ready() { is_leaving_ = true; }

private:
    boost::asio::awaitable<void> generate(proto::HttpExchange& exchange);
    boost::asio::awaitable<void> list_models(proto::HttpExchange& exchange);
    boost::asio::awaitable<void> show_model(proto::HttpExchange& exchange, std::string id);
    boost::asio::awaitable<void> ready(proto::HttpExchange& exchange);
    boost::asio::awaitable<void> info(proto::HttpExchange& exchange);
    boost::asio::awaitable<void> discover(proto::HttpExchange& exchange);

    Services& services_;
    proto::RouteTable routes_;
    bool is_leaving_ = false;
};

/// Reads and checks the body of a generation; fills what routing depends on.
/// `hash_key` is for the boundaries of the prompt.
[[nodiscard]] proto::Result<GenerationJob> parse_job(const proto::HttpRequest& request,
                                                     const Estimator& estimator,
                                                     SipKey hash_key = {});

/// The priority of the header `x-quadriga-priority`: a number, or interactive, default, bulk.
[[nodiscard]] proto::Result<int> parse_priority_header(const proto::Headers& headers);

}  // namespace router

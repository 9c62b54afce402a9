// What the router answers: the routes, the checks before the queue, and the answers from memory.
//
//   head ─▶ admit: key, route, media type, draining, queue full, body memory ─▶ body ─▶ handler
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
#include "router/cors.h"
#include "router/dashboard/dashboard.h"
#include "router/generation.h"

namespace router {

/// What a job depends on beside the request itself.
struct JobContext {
    SipKey hash_key;                           // for the boundaries of the prompt
    std::shared_ptr<const Caller> caller;      // null: anonymous
    std::shared_ptr<const ServedNames> names;  // null: a model is called as the request names it
    bool isolates_keys = false;                // prompts of different keys never match
};

class Handlers {
public:
    explicit Handlers(Services& services);

    /// Decides on the head alone; takes body memory for the request where its length is known.
    std::optional<proto::HttpResponse> admit(proto::HttpRequestHead& head);
    /// Takes body memory for a chunked body as it comes.
    std::optional<proto::HttpResponse> admit_body(const proto::HttpRequestHead& head,
                                                  std::size_t bytes);

    boost::asio::awaitable<void> serve(proto::HttpExchange& exchange) {
        return routes_.serve(exchange);
    }

    /// Bytes a body may have: max(4 MiB, 8 x context tokens) unless it is set.
    [[nodiscard]] std::size_t body_bytes_max() const;

    /// What time alone moves. To be called a few times per second.
    void tick(Clock::time_point now) { dashboard_.tick(now); }

    /// `/ready` says no from now on, while requests are still taken.
    void say_not_ready() { is_leaving_ = true; }

private:
    boost::asio::awaitable<void> generate(proto::HttpExchange& exchange);
    boost::asio::awaitable<void> read_large_body(proto::HttpExchange& exchange,
                                                 const JobContext& context,
                                                 std::optional<proto::Result<GenerationJob>>& job);
    boost::asio::awaitable<void> list_models(proto::HttpExchange& exchange);
    boost::asio::awaitable<void> show_model(proto::HttpExchange& exchange, std::string id);
    boost::asio::awaitable<void> ready(proto::HttpExchange& exchange);
    boost::asio::awaitable<void> info(proto::HttpExchange& exchange);
    boost::asio::awaitable<void> discover(proto::HttpExchange& exchange);

    Services& services_;
    const Cors cors_;
    proto::RouteTable routes_;
    Dashboard dashboard_;
    bool is_leaving_ = false;
};

/// Reads and checks the body of a generation; fills what routing depends on.
[[nodiscard]] proto::Result<GenerationJob> parse_job(const proto::HttpRequest& request,
                                                     const Estimator& estimator,
                                                     const JobContext& context = {});

/// Whether a request must show a key where keys are in use. `is_local`: it comes from this machine.
[[nodiscard]] bool needs_key(const Config& config, const proto::HttpRequestHead& head);

/// The priority of the header `x-quadriga-priority`: a number, or interactive, default, bulk.
[[nodiscard]] proto::Result<int> parse_priority_header(const proto::Headers& headers);

}  // namespace router

// Sends the answer of a running generation: the one loop behind streamed and whole replies of both
// endpoints.
//
// A stream's status line waits for the first token, so that a fault before it has a true status.
// Without a router in front it waits at most kSsePingInterval, and pings follow in silence; behind
// a router it waits as long as it takes.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "proto/http_server.h"
#include "replica/server/response_writer.h"

namespace replica::server {

struct RespondOptions {
    bool is_behind_router = false;
    std::chrono::milliseconds ping_interval{proto::kSsePingInterval};
};

/// Returns when the engine has let go of the request, whatever became of the client.
boost::asio::awaitable<void> respond(proto::HttpExchange& exchange, Generation& generation,
                                     ResponseWriter& writer, RespondOptions options);

}  // namespace replica::server

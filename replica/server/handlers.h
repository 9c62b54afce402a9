// The handlers of all routes, one file each for generation, tokens and information.
#pragma once

#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "proto/http_server.h"
#include "proto/route_table.h"
#include "replica/server/app_state.h"

namespace replica::server {

/// POST /v1/chat/completions, /v1/completions. `state` outlives the table.
void add_generation_routes(AppState& state, proto::RouteTable& routes);
/// POST /tokenize, /detokenize, /apply-template.
void add_token_routes(AppState& state, proto::RouteTable& routes);
/// GET /v1/models, /info, /props, /health, /ready, /metrics, /internal/status.
void add_info_routes(AppState& state, proto::RouteTable& routes);

/// Runs `work` on a worker thread and comes back with its result.
template <class Work>
auto on_worker(AppState& state, Work work) -> boost::asio::awaitable<decltype(work())> {
    // A coroutine of its own, which keeps `work` in its frame on the other thread.
    auto run = [](Work inner) -> boost::asio::awaitable<decltype(work())> { co_return inner(); };
    co_return co_await boost::asio::co_spawn(state.workers.get_executor(), run(std::move(work)),
                                             boost::asio::use_awaitable);
}

}  // namespace replica::server

// The HTTP face of a replica: routes, admission, access log, and the order of stopping.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "proto/http_server.h"
#include "proto/route_table.h"
#include "replica/server/app_state.h"

namespace replica::server {

/// I/O thread only, except where said.
class App {
public:
    /// Binds the socket, or takes the inherited `listen_fd`; throws std::system_error when the port
    /// is taken. Serves from start() on, whatever the model does.
    App(boost::asio::io_context& io, ServerOptions options, std::optional<std::string> internal_key,
        std::optional<int> listen_fd);

    void start() { server_.start(); }
    std::uint16_t port() const { return server_.port(); }
    AppState& state() { return state_; }

    /// Any thread. The engine's news for the status stream; calls in a burst become one.
    void engine_changed();
    /// The model is there: requests can be prepared; ready() lets them in.
    void model_loaded(Serving serving);
    void ready();
    /// The device is lost: nothing is admitted any more.
    void fail();

    /// No new requests; running ones go on until `deadline`, then end with an error. A second call
    /// brings the deadline to now. Each `on_stopped` runs once, when no connection is left.
    void drain(std::chrono::milliseconds deadline, std::function<void()> on_stopped);

private:
    boost::asio::awaitable<void> stop_when_drained();
    void log_access(const proto::HttpAccess& access);
    proto::HttpServerOptions server_options(std::optional<int> listen_fd);

    AppState state_;
    proto::RouteTable routes_;
    proto::HttpServer server_;
    std::atomic<bool> is_change_posted_{false};
    boost::asio::steady_timer drain_deadline_;
    std::vector<std::function<void()>> on_stopped_;
    bool is_stopped_ = false;
};

}  // namespace replica::server

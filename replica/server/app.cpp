#include "replica/server/app.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "proto/limits.h"
#include "proto/status.h"
#include "replica/server/gatekeeper.h"
#include "replica/server/handlers.h"
#include "replica/server/log.h"

namespace replica::server {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

/// After the deadline: time for error events to reach clients and the engine to let go.
constexpr std::chrono::seconds kAbortGrace{2};
constexpr std::chrono::milliseconds kDrainPoll{10};

}  // namespace

App::App(asio::io_context& io, ServerOptions options, std::optional<std::string> internal_key,
         std::optional<int> listen_fd)
    : state_(io.get_executor(), std::move(options), std::move(internal_key)),
      server_(io.get_executor(), server_options(listen_fd),
              [this](proto::HttpExchange& exchange) { return routes_.serve(exchange); }),
      drain_deadline_(io.get_executor()) {
    add_generation_routes(state_, routes_);
    add_token_routes(state_, routes_);
    add_info_routes(state_, routes_);
}

proto::HttpServerOptions App::server_options(std::optional<int> listen_fd) {
    proto::HttpServerOptions server;
    server.listen_fd = listen_fd;
    server.address = state_.options.host;
    server.port = state_.options.port;
    server.check_host = !state_.internal_key.has_value();
    server.common_headers.add(std::string(proto::kHeaderInstance), state_.instance);
    server.body_limit = [this](const proto::HttpRequestHead&) {
        const int context = state_.serving ? state_.serving->model->max_model_len() : 0;
        return proto::body_bytes_max(static_cast<std::size_t>(context));
    };
    server.admit = [this](proto::HttpRequestHead& head) { return admit(state_, routes_, head); };
    server.on_access = [this](const proto::HttpAccess& access) { log_access(access); };
    return server;
}

void App::log_access(const proto::HttpAccess& access) {
    const std::string_view endpoint = routes_.label(access.path);
    state_.metrics.count_request(endpoint, access.status);
    // What the launcher, the router and a scraper ask every second is no event.
    const bool is_probe =
        access.status < 400 && (endpoint == "/health" || endpoint == "/ready" ||
                                endpoint == "/metrics" || endpoint == "/internal/status");
    if (is_probe) return;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(access.duration).count();
    log_event(LogLevel::kInfo, "access",
              {{"method", access.method},
               {"endpoint", std::string(endpoint)},
               {"status", std::to_string(access.status)},
               {"aborted", access.client_aborted ? "1" : "0"},
               {"in", std::to_string(access.body_bytes_received)},
               {"out", std::to_string(access.body_bytes_sent)},
               {"ms", std::to_string(ms)},
               {"request_id", access.request_id}});
}

void App::engine_changed() {
    if (is_change_posted_.exchange(true)) return;
    asio::post(state_.executor, [this] {
        is_change_posted_ = false;
        state_.status_publisher.notify();
    });
}

void App::model_loaded(Serving serving) {
    state_.serving.emplace(std::move(serving));
    state_.status_publisher.notify();
}

void App::ready() {
    state_.lifecycle.ready();
    state_.status_publisher.notify();
}

void App::fail() {
    state_.lifecycle.fail();
    state_.status_publisher.notify();
}

void App::drain(std::chrono::milliseconds deadline, std::function<void()> on_stopped) {
    if (is_stopped_) {
        on_stopped();
        return;
    }
    on_stopped_.push_back(std::move(on_stopped));
    const bool is_first = !state_.lifecycle.is_draining();
    drain_deadline_.expires_after(is_first ? deadline : std::chrono::milliseconds{0});
    if (!is_first) return;
    state_.lifecycle.drain();
    state_.status_publisher.notify();
    asio::co_spawn(state_.executor, stop_when_drained(), [this](const std::exception_ptr& error) {
        if (error) log_event(LogLevel::kError, "drain_failed", {});
        is_stopped_ = true;
        for (const std::function<void()>& told : on_stopped_)
            told();
    });
}

asio::awaitable<void> App::stop_when_drained() {
    asio::steady_timer poll(state_.executor);
    const auto wait_for_requests = [&](auto is_over) -> asio::awaitable<void> {
        while (state_.admission.inside() > 0 && !is_over()) {
            poll.expires_after(kDrainPoll);
            co_await poll.async_wait(asio::as_tuple(asio::use_awaitable));
        }
    };
    co_await wait_for_requests([&] { return Clock::now() >= drain_deadline_.expiry(); });
    // What is left is told why; requests still in preparation find their client gone below.
    proto::ApiError why;
    why.code = proto::ErrorCode::kDraining;
    why.message = "This server stops now.";
    const std::set<Generation*> unfinished = state_.generations;
    for (Generation* generation : unfinished)
        generation->abort(why);
    const auto grace_end = Clock::now() + kAbortGrace;
    co_await wait_for_requests([&] { return Clock::now() >= grace_end; });
    state_.status_publisher.close();
    co_await server_.stop(std::chrono::milliseconds{500});
}

}  // namespace replica::server

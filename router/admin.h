// What an operator sees and changes while the router runs: HTTP on a Unix socket of its own, mode
// 0660. Whoever may open the socket may do everything here; no key is asked for.
//
//   GET  /admin/replicas                        every replica: state, load, what it last reported
//   POST /admin/replicas {"url": "http://…"}    adds one; the one that has the URL, if there is
//   POST /admin/replicas/{n}/drain | undrain    no new work; the deadline ends what still runs
//   GET  /admin/queue                           what waits, in order
//   GET  /admin/decisions?request_id=&limit=    the last decision records, newest first
//   GET  /admin/keys                            names, limits and service; never a key
//
// Every change is idempotent and logged. Decision thread only.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "proto/http_server.h"
#include "proto/route_table.h"
#include "router/generation.h"

namespace router {

class Admin {
public:
    static constexpr std::size_t kReplicasMax = 256;
    static constexpr std::size_t kQueueEntriesMax = 256;  // listed; all are counted
    static constexpr std::size_t kDecisionsDefault = 50;

    /// Listens on `path`; a socket that nobody listens on any more is replaced. Throws
    /// std::system_error.
    Admin(boost::asio::any_io_executor executor, Services& services, std::string path);
    ~Admin();
    Admin(const Admin&) = delete;
    Admin& operator=(const Admin&) = delete;

    void start() { server_.start(); }
    boost::asio::awaitable<void> stop(std::chrono::milliseconds deadline) {
        return server_.stop(deadline);
    }

    /// Ends what still runs on replicas whose drain has passed its deadline. Called by a timer.
    void end_overdue_drains(Clock::time_point now);

private:
    /// `rest` is what stood for the end of the path, for example "2/drain".
    using Answer = proto::HttpResponse (Admin::*)(const proto::HttpRequest&, const std::string&);
    void add_route(const std::string& method, const std::string& path, Answer answer);

    proto::HttpResponse list_replicas(const proto::HttpRequest&, const std::string&);
    proto::HttpResponse add_replica(const proto::HttpRequest& request, const std::string&);
    proto::HttpResponse order(const proto::HttpRequest&, const std::string& rest);
    proto::HttpResponse show_queue(const proto::HttpRequest&, const std::string&);
    proto::HttpResponse show_decisions(const proto::HttpRequest& request, const std::string&);
    proto::HttpResponse show_keys(const proto::HttpRequest&, const std::string&);
    [[nodiscard]] proto::Result<int> add(const std::string& body);
    [[nodiscard]] proto::Result<int> carry_out(const std::string& rest);
    [[nodiscard]] proto::HttpResponse one_replica(const proto::Result<int>& index);
    [[nodiscard]] proto::HttpServerOptions server_options();

    Services& services_;
    const std::string path_;
    proto::RouteTable routes_;
    proto::HttpServer server_;
};

/// `limit` and `request_id` of a query, or what is wrong with them.
struct DecisionQuery {
    std::string request_id;
    std::size_t limit = Admin::kDecisionsDefault;
};
[[nodiscard]] proto::Result<DecisionQuery> parse_decision_query(std::string_view query);

}  // namespace router

// What an operator sees and changes while the router runs: HTTP of its own, apart from the public
// port.
//
//   Unix socket, mode 0660       whoever may open it may do everything; no key is asked for
//   TCP, if wanted               a key of the admin key file; TLS where the server has it
//
//   GET    /admin/replicas                      every replica: state, load, what it last reported
//   POST   /admin/replicas {"url": "http://…"}  adds one; the one that has the URL, if there is
//   POST   /admin/replicas/{n}/drain | undrain  no new work; the deadline ends what still runs
//   DELETE /admin/replicas/{n}                  drains, then forgets it; ?now=1: without the wait
//   GET    /admin/queue                         what waits, in order
//   GET    /admin/decisions?request_id=&limit=  the last decision records, newest first
//   GET    /admin/keys                          names, limits and service; never a key
//
// Every change is idempotent and logged. Decision thread only.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "proto/http_server.h"
#include "proto/route_table.h"
#include "router/admin_socket.h"
#include "router/fairness.h"
#include "router/generation.h"
#include "router/guess_guard.h"
#include "router/key_ring.h"

namespace router {

/// Where a TCP listener of the interface binds.
struct AdminAddress {
    std::string host;
    std::uint16_t port = 0;
};
/// "127.0.0.1:8098", "[::1]:0"; none for anything else.
[[nodiscard]] std::optional<AdminAddress> parse_admin_address(std::string_view text);

class Admin {
public:
    static constexpr std::size_t kReplicasMax = 256;
    static constexpr std::size_t kQueueEntriesMax = 256;  // listed; all are counted
    static constexpr std::size_t kDecisionsDefault = 50;

    Admin(boost::asio::any_io_executor executor, Services& services);
    ~Admin();
    Admin(const Admin&) = delete;
    Admin& operator=(const Admin&) = delete;

    /// Both throw std::system_error when they cannot listen.
    void listen_unix(const std::string& path);
    /// On a socket that listens already, and whose file is somebody else's.
    void listen_unix(int fd);
    /// `fd`: a socket that listens already. `tls` may be null: plain.
    void listen_tcp(const AdminAddress& address, std::optional<int> fd,
                    std::shared_ptr<const proto::TlsContext> tls);

    void start();
    boost::asio::awaitable<void> stop(std::chrono::milliseconds deadline);
    /// A successor goes on: frees path and port at once, answers what has come in.
    void hand_over();
    [[nodiscard]] std::size_t connections() const;
    [[nodiscard]] std::size_t connections_busy() const;
    /// For connections over TCP that come from now on.
    void set_tls(std::shared_ptr<const proto::TlsContext> tls);
    /// Who may come in over TCP.
    void set_keys(const std::vector<KeyEntry>& entries) { keys_.replace(entries); }

    /// Ends what still runs on replicas whose drain has passed its deadline, and forgets those that
    /// are to go and have nothing running. To be called a few times per second.
    void tick(Clock::time_point now);

private:
    /// `rest` is what stood for the end of the path, for example "2/drain".
    using Answer = proto::HttpResponse (Admin::*)(const proto::HttpRequest&, const std::string&);
    void add_route(const std::string& method, const std::string& path, Answer answer);

    proto::HttpResponse list_replicas(const proto::HttpRequest&, const std::string&);
    proto::HttpResponse add_replica(const proto::HttpRequest& request, const std::string&);
    proto::HttpResponse order(const proto::HttpRequest&, const std::string& rest);
    proto::HttpResponse remove_replica(const proto::HttpRequest& request, const std::string& name);
    proto::HttpResponse show_queue(const proto::HttpRequest&, const std::string&);
    proto::HttpResponse show_decisions(const proto::HttpRequest& request, const std::string&);
    proto::HttpResponse show_keys(const proto::HttpRequest&, const std::string&);
    struct Added {
        int index = 0;
        bool was_known = false;  // the URL was there before
    };
    [[nodiscard]] proto::Result<Added> add(const std::string& body);
    [[nodiscard]] proto::Result<int> carry_out(const std::string& rest);
    [[nodiscard]] proto::Result<int> ask_removal(const std::string& name, bool now);
    [[nodiscard]] proto::HttpResponse one_replica(const proto::Result<int>& index);
    [[nodiscard]] proto::HttpServerOptions server_options();
    /// Of a request over TCP: whoever has no key, or has tried too many.
    [[nodiscard]] std::optional<proto::HttpResponse> refuse_stranger(
        const proto::HttpRequestHead& head);
    void evict_from(int index);
    [[nodiscard]] bool is_running_on(int index) const;

    boost::asio::any_io_executor executor_;
    Services& services_;
    proto::RouteTable routes_;
    FairShare unused_shares_;  // the ring numbers its callers there
    KeyRing keys_;
    GuessGuard guesses_;
    std::unique_ptr<AdminSocket> socket_;
    std::unique_ptr<proto::HttpServer> unix_server_;
    std::unique_ptr<proto::HttpServer> tcp_server_;
};

/// `limit` and `request_id` of a query, or what is wrong with them.
struct DecisionQuery {
    std::string request_id;
    std::size_t limit = Admin::kDecisionsDefault;
};
[[nodiscard]] proto::Result<DecisionQuery> parse_decision_query(std::string_view query);

}  // namespace router

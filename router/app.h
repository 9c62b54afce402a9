// The router's process, put together: parts in order of construction, signals, and the way out.
//
//   TERM, INT ─▶ /ready says no ─(drain_grace)─▶ no new requests ─(drain_deadline)─▶ what still
//   runs
//                                                   └─ all done ──────────────────▶ ends: exit 0
//   QUIT ─▶ as TERM, but the grace ends once no request runs
//   USR1 ─▶ listening sockets closed, for a successor ─▶ what was accepted is finished ─▶ exit 0
//   HUP ─▶ keys are read again; what is wrong keeps the old ones and is said in log and metrics
//   second TERM ─▶ at once to the deadline;  death pipe closed ─▶ exit, nothing is waited for
//
// One io_context, one thread: everything below is that thread's.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/http_client.h"
#include "proto/http_server.h"
#include "router/access_log.h"
#include "router/admin.h"
#include "router/certificate.h"
#include "router/config.h"
#include "router/dispatcher.h"
#include "router/generation.h"
#include "router/handlers.h"
#include "router/key_ring.h"
#include "router/key_source.h"
#include "router/launcher_link.h"
#include "router/metrics.h"
#include "router/metrics_endpoint.h"
#include "router/replica_set.h"
#include "router/status_follower.h"

namespace router {

class App {
public:
    /// Binds or takes the listening socket; throws what `main` reports.
    explicit App(const Config& config);

    /// Serves until a signal or the launcher ends it. Returns the exit code.
    int run();

    [[nodiscard]] boost::asio::any_io_executor executor() { return loop_.get_executor(); }
    void count_dropped_lines(std::uint64_t count) {
        metrics_.log_lines_dropped->Increment(static_cast<double>(count));
    }

private:
    boost::asio::awaitable<void> watch_death_pipe(int fd);
    boost::asio::awaitable<void> begin();
    void say_where_it_listens() const;
    boost::asio::awaitable<void> tick();
    boost::asio::awaitable<void> drain();
    boost::asio::awaitable<void> hand_over();
    boost::asio::awaitable<void> leave();
    void wait_for_signal();
    void on_signal(int number);
    void wait_for_reload();
    void wait_for_hand_over();
    void reload();
    void reload_keys(proto::ReloadReport& report);
    void reload_tls(proto::ReloadReport& report);
    void look_at_certificate(Clock::time_point now);
    void check_exposure() const;
    void open_admin();
    void open_launcher_link();
    [[nodiscard]] bool holds_requests() const;
    void add_fixed_replicas();
    [[nodiscard]] proto::HttpServerOptions server_options() const;

    const Config config_;
    boost::asio::io_context loop_;
    ParsePool parse_pool_;  // gone before the loop with the requests that wait for it
    Metrics metrics_;
    DecisionRing decisions_;
    AccessLog access_log_;
    ReplicaSet set_;
    proto::HttpClient client_;
    Dispatcher dispatcher_;
    StatusFollower follower_;
    Estimator estimator_;
    RetryBudget retry_budget_;
    KeyRing keys_;
    KeySource key_source_;
    KeySource admin_key_source_;
    std::shared_ptr<const proto::TlsContext> tls_;  // null: clients speak without it
    CertificateWatch certificate_watch_;
    KeyBudget scrapes_{kScrapesMax};
    Services services_;
    Handlers handlers_;
    proto::HttpServer server_;
    std::unique_ptr<Admin> admin_;                 // null without a listener for it
    std::unique_ptr<LauncherLink> launcher_link_;  // null without a launcher
    boost::asio::signal_set signals_;
    boost::asio::signal_set reload_signal_;
    boost::asio::signal_set hand_over_signal_;
    boost::asio::steady_timer ticker_;
    boost::asio::steady_timer drain_timer_;  // cancelled by a second signal and by the last request
    int signals_seen_ = 0;
    bool has_let_go_ = false;            // of the listening sockets
    bool is_grace_for_running_ = false;  // nobody else is about to come
    bool is_leaving_ = false;
};

/// The socket of the LISTEN_FDS convention, if one was passed to this process.
[[nodiscard]] std::optional<int> inherited_listen_fd();

}  // namespace router

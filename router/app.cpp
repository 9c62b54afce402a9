#include "router/app.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include "router/log_sink.h"
#include "router/replica_url.h"

namespace router {
namespace {

namespace asio = boost::asio;

constexpr int kListenFdFirst = 3;
constexpr int kExitInternal = 1;
constexpr std::size_t kDescriptorsAssumed = 1024;  // where the system does not say
constexpr std::chrono::milliseconds kTickInterval{250};
/// After the deadline the error events still have to leave.
constexpr std::chrono::milliseconds kFarewell{2'000};
constexpr std::chrono::milliseconds kDrainLook{50};
/// So long it waits, before it accepts, for the reports of replicas that are said to be READY.
constexpr std::chrono::milliseconds kFirstLook{1'000};
constexpr std::chrono::milliseconds kFirstLookEvery{5};
/// After a hand-over a connection without a request has the grace of a drain for one more, and at
/// least this long: its client may be sending at this moment.
constexpr std::chrono::milliseconds kLastRequestMin{1'000};
constexpr std::size_t kReportedErrorBytesMax = 512;

/// Ends the process without destructors. Requests that still live are coroutines waiting in the
/// loop and would, destroyed with it, give back grants and memory to parts that are gone already.
[[noreturn]] void leave_at_once(int code) {
    for (const auto& sink : spdlog::default_logger()->sinks()) {
        sink->flush();
        if (auto* own = dynamic_cast<LogSink*>(sink.get())) own->say_farewell();
    }
    ::_exit(code);
}

SipKey draw_key() {
    std::random_device random;
    const auto word = [&random] { return (std::uint64_t{random()} << 32) | random(); };
    return {.first = word(), .second = word()};
}

std::string copy_path(const Config& config, const char* name) {
    return config.last_good_dir.empty() ? "" : config.last_good_dir + "/" + name;
}

/// Throws with a sentence; null without a certificate.
std::shared_ptr<const proto::TlsContext> load_tls(const Config& config) {
    if (config.tls_cert.empty()) return nullptr;
    auto context = proto::TlsContext::load(config.tls_cert, config.tls_key);
    if (!context) throw std::runtime_error(context.error());
    return *context;
}

/// Descriptors this process may have.
std::size_t descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kDescriptorsAssumed;
    return limit.rlim_cur;
}

/// Coroutines of the process itself: their failure is a bug and ends it.
void must_not_fail(std::exception_ptr failure) {
    if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::optional<int> inherited_listen_fd() {
    const char* count = std::getenv("LISTEN_FDS");
    if (count == nullptr || std::atoi(count) < 1) return std::nullopt;
    const char* pid = std::getenv("LISTEN_PID");
    if (pid != nullptr && std::atol(pid) != static_cast<long>(::getpid())) return std::nullopt;
    ::fcntl(kListenFdFirst, F_SETFD, FD_CLOEXEC);
    return kListenFdFirst;
}

App::App(const Config& config)
    : config_(config),
      loop_(1),
      parse_pool_(loop_.get_executor(), config_.parse_threads),
      metrics_({.version = kVersion, .commit = kCommit, .config_digest = config_.digest()}),
      access_log_(metrics_, decisions_),
      set_({.silence_suspect = config_.silence_suspect,
            .silence_down = config_.silence_down,
            .step_suspect = config_.step_suspect,
            .step_stall = config_.step_stall},
           config_.slow_start),
      client_(loop_.get_executor()),
      dispatcher_(loop_.get_executor(), config_, set_, metrics_),
      follower_(loop_.get_executor(), config_, set_, client_, metrics_),
      keys_(dispatcher_.memory().fair_share()),
      key_source_(config_.keys_file, copy_path(config_, "keys.good")),
      admin_key_source_(config_.admin_keys_file, copy_path(config_, "admin-keys.good")),
      tls_(load_tls(config_)),
      services_{.config = config_,
                .set = set_,
                .dispatcher = dispatcher_,
                .client = client_,
                .metrics = metrics_,
                .access_log = access_log_,
                .decisions = decisions_,
                .estimator = estimator_,
                .retry_budget = retry_budget_,
                .keys = keys_,
                .key_source = key_source_,
                .admin_key_source = admin_key_source_,
                .tls = tls_,
                .hash_key = draw_key(),
                .parse_pool = parse_pool_,
                .server = server_,
                .scrapes = scrapes_,
                .on_suspicion = [this](int index) { follower_.follow(index); },
                .on_removal =
                    [this](int index) {
                        follower_.forget(index);
                        metrics_.forget_replica(index);
                    },
                .on_drain =
                    [this](int index, bool is_drained) {
                        if (launcher_link_) launcher_link_->tell({index, is_drained});
                    },
                .generations = {}},
      handlers_(services_),
      server_(loop_.get_executor(), server_options(),
              [this](proto::HttpExchange& exchange) { return handlers_.serve(exchange); }),
      signals_(loop_, SIGTERM, SIGINT, SIGQUIT),
      reload_signal_(loop_, SIGHUP),
      hand_over_signal_(loop_, SIGUSR1),
      ticker_(loop_),
      drain_timer_(loop_) {
    follower_.on_done = [this](int index, const proto::DoneEvent& done) {
        const auto whose = dispatcher_.on_done(index, done, estimator_);
        if (whose == Dispatcher::DoneOf::kEnded) {
            access_log_.on_generated(done.dispatch, done.generated);
        }
    };
    const auto entries = key_source_.read_first();
    if (!entries) throw std::runtime_error(entries.error());
    keys_.replace(*entries);
    check_exposure();
    open_admin();
    add_fixed_replicas();
    open_launcher_link();
}

void App::open_launcher_link() {
    if (!config_.announce_fd) return;
    const auto on_announcement = [this](const proto::ReplicaAnnouncement& announcement) {
        if (!set_.announce(announcement, Clock::now())) return false;
        follower_.follow(announcement.index);
        return true;
    };
    launcher_link_ =
        std::make_unique<LauncherLink>(loop_.get_executor(), *config_.announce_fd, on_announcement);
}

void App::open_admin() {
    const bool has_socket = config_.admin_socket_fd || !config_.admin_socket.empty();
    if (!has_socket && config_.admin_listen.empty()) return;
    admin_ = std::make_unique<Admin>(loop_.get_executor(), services_);
    if (config_.admin_socket_fd) {
        admin_->listen_unix(*config_.admin_socket_fd);
    } else if (has_socket) {
        admin_->listen_unix(config_.admin_socket);
    }
    if (config_.admin_listen.empty()) return;
    const auto entries = admin_key_source_.read_first();
    if (!entries) throw std::runtime_error(entries.error());
    admin_->set_keys(*entries);
    admin_->listen_tcp(parse_admin_address(config_.admin_listen).value(), config_.admin_listen_fd,
                       tls_);
}

/// Whoever can reach a server without keys can use it.
void App::check_exposure() const {
    if (keys_.is_needed() || config_.insecure_no_auth || is_loopback_address(server_.address())) {
        return;
    }
    throw std::runtime_error("it would serve everybody who can reach " + server_.address() + ":" +
                             std::to_string(server_.port()) +
                             ", since there are no API keys; give --keys-file FILE, or --host "
                             "127.0.0.1, or, if you mean it, --insecure-no-auth");
}

proto::HttpServerOptions App::server_options() const {
    proto::HttpServerOptions options;
    options.listen_fd = inherited_listen_fd();
    options.address = config_.host;
    options.port = static_cast<std::uint16_t>(config_.port);
    options.body_limit = [this](const proto::HttpRequestHead&) {
        return handlers_.body_bytes_max();
    };
    options.write_stall = config_.write_stall;
    options.unsent_bytes_max = config_.unsent_bytes_max;
    options.connections_max = config_.connections_max;
    options.connections_per_address_max = config_.connections_per_address_max;
    options.requests_per_connection_max = config_.requests_per_connection_max;
    options.head_bytes_max = config_.header_bytes_max;
    options.head_fields_max = config_.header_count_max;
    options.header_read = config_.header_read;
    options.keepalive_idle = config_.keepalive_idle;
    options.body_rate_min = config_.body_rate_min;
    options.tls = tls_;
    options.reserve_for = [](const proto::HttpRequestHead& head) {
        return head.path == "/metrics" || head.path == "/health" || head.path == "/ready";
    };
    // A request needs a descriptor on either side; half of them are kept for replicas and others.
    options.connections_pause = descriptor_limit() / 2;
    options.check_host = config_.keys_file.empty();
    options.allowed_hosts = config_.allowed_hosts;
    // The members it calls exist by the time the server accepts.
    auto* self = const_cast<App*>(this);
    options.admit = [self](proto::HttpRequestHead& head) { return self->handlers_.admit(head); };
    options.grow_body = [self](const proto::HttpRequestHead& head, std::size_t bytes) {
        return self->handlers_.admit_body(head, bytes);
    };
    options.on_access = [self](const proto::HttpAccess& access) {
        self->access_log_.on_access(access);
    };
    return options;
}

void App::add_fixed_replicas() {
    for (const std::string& url : config_.replica_urls) {
        const proto::Result<proto::Endpoint> endpoint = parse_replica_url(url);
        if (!endpoint) throw std::runtime_error("--replica: " + endpoint.error().message);
        if (is_own_endpoint(*endpoint, server_.address(), server_.port())) {
            throw std::runtime_error("--replica: '" + url + "' is this router itself");
        }
        set_.add_fixed(url, *endpoint, Clock::now());
    }
}

int App::run() {
    if (launcher_link_) asio::co_spawn(loop_, launcher_link_->run(), must_not_fail);
    if (set_.replicas().empty() && !launcher_link_) {
        spdlog::warn(
            "event=no_replica what=\"every request is answered 503 until there is one\" "
            "fix=\"start with --replica http://HOST:PORT, or add one with "
            "--admin-socket\"");
    }
    for (const auto& [index, replica] : set_.replicas())
        follower_.follow(index);
    asio::co_spawn(loop_, tick(), must_not_fail);
    if (config_.death_fd) {
        asio::co_spawn(loop_, watch_death_pipe(*config_.death_fd), must_not_fail);
    }
    wait_for_signal();
    wait_for_reload();
    wait_for_hand_over();
    asio::co_spawn(loop_, begin(), must_not_fail);
    try {
        loop_.run();
    } catch (const std::exception& error) {
        spdlog::critical("event=internal_error error=\"{}\"", error.what());
        access_log_.write_held();
        leave_at_once(kExitInternal);
    }
    access_log_.write_held();
    if (holds_requests()) leave_at_once(0);
    return 0;
}

/// One that starts while replicas serve, after another router or beside it, must not tell clients
/// that nothing is ready: they wait in the backlog, or at the other one, until it has seen them.
asio::awaitable<void> App::begin() {
    if (launcher_link_) {
        // What the launcher had said before the start has been read after this turn of the loop.
        co_await asio::post(loop_, asio::use_awaitable);
        asio::steady_timer look(loop_);
        const auto limit = Clock::now() + kFirstLook;
        while (!set_.knows_the_ready() && Clock::now() < limit) {
            look.expires_after(kFirstLookEvery);
            (void)co_await look.async_wait(asio::as_tuple(asio::use_awaitable));
        }
    }
    if (has_let_go_ || is_leaving_) co_return;
    server_.start();
    if (admin_) admin_->start();
    look_at_certificate(Clock::now());
    say_where_it_listens();
    if (launcher_link_) launcher_link_->tell(proto::RouterNews::kServing);
}

void App::say_where_it_listens() const {
    // The line a person, a script or a test waits for; not a log line.
    const std::string host =
        config_.host.find(':') == std::string::npos ? config_.host : "[" + config_.host + "]";
    const std::string line = std::string(tls_ ? "listening on https://" : "listening on http://") +
                             host + ":" + std::to_string(server_.port()) + "\n";
    proto::Outlet out(STDERR_FILENO);
    (void)out.add(line);
    if (!out.flush_within(proto::kOutletFarewell)) {
        spdlog::debug("event=no_stderr");
    }
}

/// A request lives as long as its connection: while its body is read or waits to be parsed, in the
/// queue, on its way to a replica.
bool App::holds_requests() const {
    const std::size_t of_operators = admin_ ? admin_->connections() : 0;
    return server_.stats().connections + of_operators > 0 || !services_.generations.empty();
}

asio::awaitable<void> App::tick() {
    for (;;) {
        const auto due = Clock::now() + kTickInterval;
        dispatcher_.pauses().expect(due);
        ticker_.expires_at(due);
        const auto [error] = co_await ticker_.async_wait(asio::as_tuple(asio::use_awaitable));
        if (error) co_return;
        const auto now = Clock::now();
        spdlog::default_logger()->flush();  // what a slow reader of the log has left
        metrics_.loop_lag_seconds->Observe(std::chrono::duration<double>(now - due).count());
        metrics_.connections->Set(static_cast<double>(server_.stats().connections));
        // This process was stopped: nobody is to blame for that time.
        if (const auto stop = dispatcher_.pauses().on_tick(now)) {
            spdlog::warn("event=was_stopped late_ms={}",
                         std::chrono::duration_cast<std::chrono::milliseconds>(*stop).count());
            set_.on_pause(*stop);
        }
        set_.tick(now);
        access_log_.tick(now);
        look_at_certificate(now);
        if (admin_) admin_->tick(now);
        if (config_.ttft_max.count() > 0 || config_.total_max.count() > 0) {
            for (Generation* generation : services_.generations)
                generation->check_time(now);
        }
        dispatcher_.look_at_fleet();
        handlers_.tick(now);
    }
}

asio::awaitable<void> App::watch_death_pipe(int fd) {
    asio::posix::stream_descriptor pipe(loop_, fd);
    std::array<char, 64> buffer;
    for (;;) {
        const auto [error, count] = co_await pipe.async_read_some(
            asio::buffer(buffer), asio::as_tuple(asio::use_awaitable));
        if (!error) continue;
        spdlog::warn("event=launcher_gone");
        access_log_.write_held();
        leave_at_once(0);
    }
}

void App::wait_for_signal() {
    signals_.async_wait([this](const boost::system::error_code& error, int number) {
        if (error) return;
        on_signal(number);
        wait_for_signal();
    });
}

void App::on_signal(int number) {
    if (is_leaving_) return;
    ++signals_seen_;
    is_grace_for_running_ = number == SIGQUIT;
    if (signals_seen_ == 1) {
        spdlog::info("event=draining grace_ms={} deadline_ms={}", config_.drain_grace.count(),
                     config_.drain_deadline.count());
        asio::co_spawn(loop_, drain(), must_not_fail);
    } else {
        drain_timer_.cancel();
    }
}

void App::wait_for_reload() {
    reload_signal_.async_wait([this](const boost::system::error_code& error, int) {
        if (error) return;
        reload();
        wait_for_reload();
    });
}

/// What is wrong changes nothing: a slip of the editor must not lock everybody out.
void App::reload() {
    proto::ReloadReport report;
    reload_keys(report);
    reload_tls(report);
    if (launcher_link_) launcher_link_->tell(report);
}

void App::reload_keys(proto::ReloadReport& report) {
    const auto read = [this, &report](
                          KeySource& source, Reload subject, const char* name,
                          const std::function<void(const std::vector<KeyEntry>&)>& take) {
        if (!source.is_used()) return;
        const auto which = static_cast<std::size_t>(subject);
        if (const auto entries = source.read_again()) {
            take(*entries);
            metrics_.reloads.at(which)->Increment();
            spdlog::info("event=reloaded subject={} keys={}", name, entries->size());
            report.done.push_back(std::string(name) + ": " + std::to_string(entries->size()));
        } else {
            metrics_.reloads_failed.at(which)->Increment();
            spdlog::error("event=reload_failed subject={} kept=old error=\"{}\"", name,
                          entries.error());
            report.errors.push_back(proto::printable(entries.error(), kReportedErrorBytesMax));
        }
    };
    read(key_source_, Reload::kKeys, "keys",
         [this](const std::vector<KeyEntry>& entries) { keys_.replace(entries); });
    read(admin_key_source_, Reload::kAdminKeys, "admin_keys",
         [this](const std::vector<KeyEntry>& entries) { admin_->set_keys(entries); });
}

void App::reload_tls(proto::ReloadReport& report) {
    if (tls_ == nullptr) return;
    const auto which = static_cast<std::size_t>(Reload::kTls);
    try {
        tls_ = load_tls(config_);
    } catch (const std::runtime_error& error) {
        metrics_.reloads_failed.at(which)->Increment();
        spdlog::error("event=reload_failed subject=tls kept=old error=\"{}\"", error.what());
        report.errors.push_back(proto::printable(error.what(), kReportedErrorBytesMax));
        return;
    }
    certificate_watch_.begin_anew();
    look_at_certificate(Clock::now());
    server_.set_tls(tls_);
    if (admin_) admin_->set_tls(tls_);
    metrics_.reloads.at(which)->Increment();
    const int days = tls_->days_left(std::chrono::system_clock::now());
    spdlog::info("event=reloaded subject=tls days_left={}", days);
    report.done.push_back("tls: " + days_left_text(days));
}

void App::look_at_certificate(Clock::time_point now) {
    if (tls_ == nullptr) return;
    metrics_.set_certificate_end(tls_->ends_at());
    const auto days = certificate_watch_.look(*tls_, now, std::chrono::system_clock::now());
    if (!days) return;
    spdlog::warn(
        "event=certificate_ends days_left={} path={} fix=\"put a new one in its place and "
        "reload\"",
        *days, config_.tls_cert);
}

asio::awaitable<void> App::drain() {
    const auto pause = [this](std::chrono::milliseconds time) {
        drain_timer_.expires_after(time);
        return drain_timer_.async_wait(asio::as_tuple(asio::use_awaitable));
    };
    handlers_.say_not_ready();
    const auto grace_end = Clock::now() + config_.drain_grace;
    const auto is_in_grace = [&] {
        const bool is_wanted = !is_grace_for_running_ || server_.connections_busy() > 0;
        return !has_let_go_ && signals_seen_ == 1 && is_wanted && Clock::now() < grace_end;
    };
    while (is_in_grace())
        (void)co_await pause(kDrainLook);
    dispatcher_.start_draining();
    const PauseWatch& pauses = dispatcher_.pauses();
    const auto deadline = pauses.awake(Clock::now()) + config_.drain_deadline;
    const auto& running = server_.stats().requests_running;
    while (running > 0 && signals_seen_ == 1 && pauses.awake(Clock::now()) < deadline) {
        (void)co_await pause(kDrainLook);
    }
    co_await leave();
}

void App::wait_for_hand_over() {
    hand_over_signal_.async_wait([this](const boost::system::error_code& error, int) {
        if (error) return;
        if (!has_let_go_ && signals_seen_ == 0) asio::co_spawn(loop_, hand_over(), must_not_fail);
        wait_for_hand_over();
    });
}

/// Nobody hears of it: connections that come wait in the backlog of the shared socket until the
/// successor accepts them, and those that are here get everything they have asked for.
asio::awaitable<void> App::hand_over() {
    has_let_go_ = true;
    server_.hand_over();
    if (admin_) admin_->hand_over();
    if (launcher_link_) launcher_link_->tell(proto::RouterNews::kLetGo);
    spdlog::info("event=handed_over connections={} requests={} deadline_ms={}",
                 server_.stats().connections, server_.stats().requests_running,
                 config_.drain_deadline.count());
    const auto begin = Clock::now();
    const auto idle_until = begin + std::max(config_.drain_grace, kLastRequestMin);
    const auto is_wanted = [&] {
        const std::size_t open = server_.stats().connections + (admin_ ? admin_->connections() : 0);
        const std::size_t busy =
            server_.connections_busy() + (admin_ ? admin_->connections_busy() : 0);
        const auto now = Clock::now();
        return (busy > 0 || (open > 0 && now < idle_until)) && now < begin + config_.drain_deadline;
    };
    // A look first: what the kernel has given us already is counted only after this turn.
    do {
        drain_timer_.expires_after(kDrainLook);
        (void)co_await drain_timer_.async_wait(asio::as_tuple(asio::use_awaitable));
    } while (signals_seen_ == 0 && is_wanted());
    if (signals_seen_ == 0) co_await leave();  // otherwise drain() has taken over
}

asio::awaitable<void> App::leave() {
    is_leaving_ = true;
    if (!services_.generations.empty()) {
        spdlog::warn("event=drain_deadline requests={}", services_.generations.size());
        for (Generation* generation : services_.generations)
            generation->expire();
    }
    follower_.stop();
    co_await server_.stop(kFarewell);
    if (admin_) co_await admin_->stop(std::chrono::milliseconds(0));
    loop_.stop();
}

}  // namespace router

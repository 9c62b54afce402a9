// The supervisor's router: its process, what it is told and says, and its replacement by one with
// new settings on the same listening socket.
//
//   restart_router: read again ─▶ the router's own check ─▶ RestartRouter ─▶ planner_router.cpp
//                     └ bad: nothing changes, and where the error is ─▶ child_check
#include <algorithm>
#include <csignal>
#include <exception>
#include <functional>
#include <system_error>
#include <utility>

#include <boost/asio/use_awaitable.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/launcher/child_check.h"
#include "deploy/launcher/command_name.h"
#include "deploy/launcher/prepare.h"
#include "deploy/launcher/router_change.h"
#include "deploy/launcher/supervisor.h"

namespace deploy {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::milliseconds kReloadWait{5'000};
constexpr std::chrono::milliseconds kCheckWait{10'000};    // for the router's check of its flags
constexpr std::chrono::milliseconds kRestartWait{20'000};  // beyond the fleet's own limit
constexpr std::chrono::milliseconds kLetGoWait{2'000};     // then the command returns all the same
constexpr const char* kNothingChanged =
    "nothing has changed, the router goes on with its old settings";

json refused(const std::string& error, int exit_code) {
    return {{"ok", false}, {"error", error}, {"exit_code", exit_code}};
}

json refused(const Failure& failure) {
    return refused(to_text(failure), exit_code_of(failure.kind));
}

ExitEvidence not_started(const std::system_error& error) {
    return {.wait_status = W_EXITCODE(1, 0), .last_line = error.what()};
}

}  // namespace

/// What follows from the settings in use, beside the processes.
void Supervisor::use(const Config& config) {
    if (&config != &plan_.config) plan_.config = config;
    const std::string& host = plan_.config.host;
    const bool is_v6 = host.find(':') != std::string::npos;
    facts_.url = scheme_of(plan_.config) + (is_v6 ? "[" + host + "]" : host) + ":" +
                 std::to_string(plan_.router_socket.port);
    facts_.config_digest = digest_of(plan_.config);
}

/// Descriptors: 3 the listening socket, 4 announcements, 5 the death pipe, 6 the internal key, 7
/// the admin interface's Unix socket, 8 its TCP socket if there is one. Throws std::system_error.
Supervisor::RouterProcess Supervisor::start_router(const Config& config,
                                                   const AdminListen& admin_listen) {
    SpawnRequest request;
    request.program = plan_.router_program;
    request.has_listen_socket = true;
    request.death_signal = SIGTERM;
    // Until it listens for them: neither a reload nor a restart must end it.
    request.ignored_signals = {SIGHUP, SIGUSR1};
    request.argv = {"--announce-fd",     "4", "--death-fd",        "5",
                    "--internal-key-fd", "6", "--admin-socket-fd", "7"};
    if (admin_listen.fd) request.argv.insert(request.argv.end(), {"--admin-listen-fd", "8"});
    const auto settings = router_arguments(config, plan_.runtime_dir);
    request.argv.insert(request.argv.end(), settings.begin(), settings.end());
    Pipe output = make_pipe();
    const UniqueFd key = memfd_with(plan_.internal_key);
    const Announcer::Opened announcements = announcer_.open();
    request.fds = {plan_.router_socket.fd.get(), announcements.theirs.get(), death_read_.get(),
                   key.get(), plan_.admin_socket.get()};
    if (admin_listen.fd) request.fds.push_back(admin_listen.fd.get());
    request.output_fd = output.write.get();
    try {
        SpawnedProcess process = spawn(request);
        const int pid = process.pid;
        ChildEvents events;
        events.on_output = [this, pid](const std::string& line) {
            const bool is_present = router_.child && router_.child->pid() == pid;
            const bool is_next = fleet_.successor.has_value() && fleet_.successor->pid == pid;
            relay_output(nullptr,
                         is_present ? "router"
                         : is_next  ? "next router"
                                    : "earlier router",
                         line);
        };
        events.on_exit = [this, pid](int wait_status) { router_ended(pid, wait_status); };
        return {
            .child = std::make_shared<Child>(context_.get_executor(), std::move(process),
                                             std::move(output.read), UniqueFd(), std::move(events)),
            .link = announcements.link};
    } catch (const std::system_error&) {
        announcer_.close(announcements.link);
        throw;
    }
}

void Supervisor::do_action(const SpawnRouter&) {
    try {
        router_ = start_router(plan_.config, plan_.admin_listen);
        post_event(RouterSpawned{router_.child->pid()});
        router_.child->start();
        save_record();
    } catch (const std::system_error& error) {
        post_event(RouterDied{not_started(error)});
    }
}

void Supervisor::do_action(const SpawnSuccessor&) {
    try {
        const bool is_same = admin_listen_of(successor_config_) == plan_.admin_listen.address;
        const AdminListen& admin_listen = is_same ? plan_.admin_listen : successor_admin_listen_;
        RouterProcess successor = start_router(successor_config_, admin_listen);
        const int pid = successor.child->pid();
        other_routers_.emplace(pid, successor);
        post_event(SuccessorSpawned{pid});
        successor.child->start();
        save_record();
    } catch (const std::system_error& error) {
        post_event(OtherRouterDied{0, not_started(error)});
    }
}

void Supervisor::do_action(const RetireRouter&) {
    const int pid = router_.child->pid();
    other_routers_.emplace(pid, std::exchange(router_, {}));
}

void Supervisor::do_action(const PromoteSuccessor&) {
    router_ = other_routers_.extract(fleet_.router.pid).mapped();
    if (admin_listen_of(successor_config_) != plan_.admin_listen.address) {
        plan_.admin_listen = std::exchange(successor_admin_listen_, {});
    }
    use(successor_config_);
    save_record();
    // Whoever has asked for a reload meanwhile means the router that serves.
    if (is_reload_running_) router_.child->signal(SIGHUP);
}

void Supervisor::router_ended(int pid, int wait_status) {
    if (router_.child && router_.child->pid() == pid) {
        const RouterProcess ended = std::exchange(router_, {});
        ++router_deaths_;
        announcer_.close(ended.link);
        post_event(RouterDied{evidence_of(*ended.child, wait_status)});
        return;
    }
    const RouterProcess ended = other_routers_.extract(pid).mapped();
    announcer_.close(ended.link);
    save_record();
    post_event(OtherRouterDied{pid, evidence_of(*ended.child, wait_status)});
}

void Supervisor::on_router_news(int link, proto::RouterNews word) {
    if (link == router_.link) {
        post_event(RouterSaid{fleet_.router.pid, word});
        return;
    }
    for (const auto& [pid, router] : other_routers_) {
        if (router.link != link) continue;
        post_event(RouterSaid{pid, word});
        return;  // the table may be another one now
    }
}

void Supervisor::do_action(const SignalRouter& action) {
    if (router_.child) router_.child->signal(action.signal);
}

void Supervisor::do_action(const SignalOtherRouter& action) {
    const auto other = other_routers_.find(action.pid);
    if (other != other_routers_.end()) other->second.child->signal(action.signal);
}

void Supervisor::do_action(const GuardRouterPort& action) {
    router_guards_ = {};
    if (!action.is_guarded) return;
    guard_port(router_guards_[0], plan_.router_socket.fd.get());
    guard_port(router_guards_[1], plan_.admin_socket.get());
    if (plan_.admin_listen.fd) guard_port(router_guards_[2], plan_.admin_listen.fd.get());
}

/// The keys are the router's; one that starts just now reads them anyway.
void Supervisor::reload_router() {
    console_.log("info", "launcher", "the router reads its keys and TLS files again");
    reload_report_.reset();
    if (router_.child) router_.child->signal(SIGHUP);
    // A key that is taken back must not open the connections of earlier ones either.
    for (const auto& [pid, router] : other_routers_)
        router.child->signal(SIGHUP);
}

/// One at a time, so that each order has a report of its own.
boost::asio::awaitable<json> Supervisor::reload() {
    if (is_reload_running_) co_return refused("the files are being read again already", 75);
    is_reload_running_ = true;
    json answer = co_await reload_once();
    is_reload_running_ = false;
    co_return answer;
}

boost::asio::awaitable<json> Supervisor::reload_once() {
    if (!router_.child) {
        co_return refused("the router does not run; it reads its files when it starts", 1);
    }
    reload_router();
    const int deaths = router_deaths_;  // a successor that takes over says what comes of it
    const std::function<bool()> is_over = [this, deaths] {
        return reload_report_.has_value() || router_deaths_ != deaths;
    };
    co_await until(kReloadWait, is_over);
    if (!reload_report_ && router_deaths_ != deaths) {
        co_return refused(
            "the router has ended meanwhile, so nobody can say what came of it; the next one reads "
            "the files as it starts: see '" +
                command_name() + " status', and the log for what is wrong with them",
            1);
    }
    if (!reload_report_) {
        co_return refused("the router does not say what came of it; see its log", 1);
    }
    json answer{{"ok", reload_report_->errors.empty()}, {"done", reload_report_->done}};
    if (reload_report_->errors.empty()) co_return answer;
    std::string error = "the old ones stay in use:";
    for (const std::string& one : reload_report_->errors)
        error += "\n  " + one;
    answer["error"] = error;
    answer["exit_code"] = exit_code_of(FailureClass::kConfig);
    co_return answer;
}

/// One at a time: the check takes a moment in which a second order may come.
boost::asio::awaitable<json> Supervisor::restart_router() {
    if (is_restart_running_) co_return refused("the router is being restarted already", 75);
    is_restart_running_ = true;
    json answer;
    try {
        answer = co_await restart_router_once();
    } catch (const StartError& error) {  // the configuration is none, or the router refuses it
        metrics_.count_router_restart(RouterRestart::kRefused);
        Failure failure = error.failure();
        console_.log("warn", "launcher",
                     "the router is not restarted: " + failure.what + " (" + failure.why + ")");
        failure.fix += (failure.fix.empty() ? "" : "; ") + std::string(kNothingChanged);
        answer = refused(failure);
    } catch (const std::exception& error) {
        answer = refused(error.what() + std::string("; ") + kNothingChanged, 1);
    }
    is_restart_running_ = false;
    co_return answer;
}

boost::asio::awaitable<json> Supervisor::restart_router_once() {
    std::string refusal = router_restart_refusal(fleet_);
    if (!refusal.empty()) co_return refused(refusal, 2);
    LoadedConfig fresh = load_config(plan_.sources);
    make_paths_absolute(fresh.config);
    const RouterChange change = router_change(plan_.config, fresh.config);
    fresh.config = change.config;
    check_exposure(fresh.config);
    const bool is_good = co_await is_good_for_router(fresh.config);
    // Asked again it says where the error is; it has just shown that it answers.
    if (!is_good) (void)check_router(fresh, plan_);
    refusal = router_restart_refusal(fleet_);
    if (!refusal.empty()) co_return refused(refusal, 2);
    const std::string address = admin_listen_of(fresh.config);
    successor_admin_listen_ = {};
    if (address != plan_.admin_listen.address) successor_admin_listen_ = listen_for_admin(address);
    successor_config_ = fresh.config;
    const int earlier_pid = fleet_.router.pid;
    console_.log("info", "launcher", "a router with the settings as they are now is started");
    post_event(RestartRouter{});
    const std::function<bool()> is_decided = [this] { return !fleet_.successor.has_value(); };
    co_await until(kRestartWait, is_decided);
    if (fleet_.phase != FleetPhase::kRunning) co_return refused("the fleet is stopping", 2);
    if (fleet_.successor.has_value() || !fleet_.successor_failure.empty()) {
        metrics_.count_router_restart(RouterRestart::kFailed);
        successor_admin_listen_ = {};
        co_return refused("the router cannot run with its new settings: " +
                              fleet_.successor_failure + "\n  " + kNothingChanged,
                          1);
    }
    metrics_.count_router_restart(RouterRestart::kServes);
    const std::function<bool()> is_alone = [this, earlier_pid] {
        const auto& retired = fleet_.retired_routers;
        const auto found = std::ranges::find(retired, earlier_pid, &RetiredRouter::pid);
        return found == retired.end() || found->has_let_go;
    };
    co_await until(kLetGoWait, is_alone);
    json answer{{"ok", true}, {"pid", fleet_.router.pid}};
    answer["not_applied"] = change.not_applied;
    // It may have had nothing to finish.
    answer["earlier_pid"] = other_routers_.contains(earlier_pid) ? earlier_pid : 0;
    answer["is_alone"] = is_alone();
    co_return answer;
}

/// Looks every few milliseconds whether `is_over`, at most so long.
boost::asio::awaitable<void> Supervisor::until(std::chrono::milliseconds most,
                                               std::function<bool()> is_over) {
    boost::asio::steady_timer timer(context_);
    const TimePoint limit = Clock::now() + most;
    while (!is_over() && Clock::now() < limit) {
        timer.expires_after(kLook);
        co_await timer.async_wait(boost::asio::use_awaitable);
    }
}

/// What the router program itself thinks of `config`. It reads the files that the settings name, so
/// it is asked as a process, and this thread goes on meanwhile.
boost::asio::awaitable<bool> Supervisor::is_good_for_router(Config config) {
    SpawnRequest request;
    request.program = plan_.router_program;
    request.argv = router_arguments(config, plan_.runtime_dir);
    request.argv.emplace_back("--check-config");
    Pipe output = make_pipe();
    request.output_fd = output.write.get();
    auto end = std::make_shared<std::optional<int>>();
    ChildEvents events;
    events.on_exit = [end](int wait_status) { *end = wait_status; };
    SpawnedProcess process = spawn(request);
    const auto check =
        std::make_shared<Child>(context_.get_executor(), std::move(process), std::move(output.read),
                                UniqueFd(), std::move(events));
    output.write.reset();
    check->start();
    const std::function<bool()> has_ended = [end] { return end->has_value(); };
    co_await until(kCheckWait, has_ended);
    if (!end->has_value()) {
        check->signal(SIGKILL);
        throw StartError({.kind = FailureClass::kInternal,
                          .what = "the router does not check its settings",
                          .why = plan_.router_program + " does not end",
                          .fix = "try: " + plan_.router_program + " --check-config"});
    }
    co_return **end == 0;
}

}  // namespace deploy

#include "replica/server/process.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/http_message.h"
#include "replica/server/app.h"
#include "replica/server/inherited.h"
#include "replica/server/log.h"
#include "replica/server/model_loader.h"
#include "replica/server/ready_pipe.h"
#include "replica/server/selftest.h"

namespace replica::server {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

/// Ends without destructors: threads still run, and the kernel frees everything.
[[noreturn]] void exit_now(ExitCode code) {
    stop_log();
    std::_Exit(static_cast<int>(code));
}

/// One clear line for people, one event for the launcher.
[[noreturn]] void die(ReadyPipe& pipe, const StartFailure& failure) {
    pipe.send(failure.fatal);
    say("fatal: " + failure.text());
    exit_now(failure.exit_code);
}

StartFailure failure(ExitCode code, std::string id, std::string error_class, std::string what,
                     std::string why, std::string fix) {
    return {code,
            {.id = std::move(id),
             .error_class = std::move(error_class),
             .what = std::move(what),
             .why = std::move(why),
             .fix = std::move(fix)}};
}

StartFailure port_failure(const ServerOptions& options, const std::system_error& error) {
    return failure(ExitCode::kPortInUse, "Q0600", "port",
                   "cannot listen on " + options.host + ":" + std::to_string(options.port),
                   error.code().message(), "stop the other process, or choose another --port");
}

/// The end of the launcher, whenever it comes: its end of the pipe closes.
class DeathWatch {
public:
    DeathWatch(asio::io_context& io, std::optional<int> fd) : pipe_(io) {
        if (!fd) return;
        pipe_.assign(*fd);
        wait();
    }

private:
    void wait() {
        pipe_.async_read_some(asio::buffer(ignored_),
                              [this](const boost::system::error_code& error, std::size_t) {
                                  if (error) exit_now(ExitCode::kInternal);
                                  wait();
                              });
    }

    asio::posix::stream_descriptor pipe_;
    std::array<char, 64> ignored_{};
};

/// The loading thread's work, with everything it tells the I/O thread and the launcher.
class Loading {
public:
    Loading(asio::io_context& io, App& app, ReadyPipe& pipe, ModelHead head)
        : io_(io), app_(app), pipe_(pipe), head_(std::move(head)) {}

    void run() {
        try {
            load();
        } catch (const kernels::OutOfDeviceMemory& error) {
            die(pipe_, failure(ExitCode::kDeviceMemory, "Q0501", "device_memory",
                               "the device is out of memory while loading", error.what(),
                               "free device memory, or lower --context or --sequences"));
        } catch (const std::bad_alloc&) {
            die(pipe_, failure(ExitCode::kDeviceMemory, "Q0501", "device_memory",
                               "out of memory while loading", {}, "use a smaller --context"));
        } catch (const std::exception& error) {
            die(pipe_, failure(ExitCode::kInternal, "Q0100", "internal", "loading failed",
                               error.what(), {}));
        }
    }

private:
    void load() {
        const LoadHooks hooks = make_hooks();
        const auto begin = Clock::now();
        hooks.on_progress(proto::ReplicaState::kLoading, 0, 0);
        auto serving = load_model(app_.state().options, hooks, std::exchange(head_, {}));
        if (!serving) die(pipe_, serving.error());
        tell_kernels(*serving->model);
        const auto loaded = Clock::now();
        warm_up(*serving, hooks);
        const auto warm = Clock::now();
        const auto report = run_selftest(*serving, hooks);
        if (!report) die(pipe_, report.error());
        const auto tested = Clock::now();
        pipe_.send(proto::SelftestEvent{.passed = true,
                                        .tokens_sha256 = report->tokens_sha256,
                                        .prefill_tokens_per_s = report->prefill_tokens_per_s,
                                        .decode_tokens_per_s = report->decode_tokens_per_s});
        const auto seconds = [](Clock::duration time) {
            return std::chrono::duration<double>(time).count();
        };
        log_event(LogLevel::kInfo, "loaded",
                  {{"seconds", std::to_string(seconds(tested - begin))},
                   {"context", std::to_string(serving->model->max_model_len())},
                   {"tool_format", std::string(chat::name_of(serving->model->tool_format))}});
        asio::post(
            io_, [this, taken = std::move(*serving), load = seconds(loaded - begin),
                  warming = seconds(warm - loaded), test = seconds(tested - warm)]() mutable {
                AppState& state = app_.state();
                state.load_seconds = {{"loading", load}, {"warming", warming}, {"selftest", test}};
                state.selftest_passed = true;
                app_.model_loaded(std::move(taken));
                app_.ready();
                // Only now: who hears this may send requests at once.
                pipe_.send(proto::ReadyEvent{.gpu_uuids = {state.gpu_uuid()}});
            });
    }

    LoadHooks make_hooks() {
        LoadHooks hooks;
        hooks.on_progress = [this](proto::ReplicaState phase, std::uint64_t done,
                                   std::uint64_t total) {
            pipe_.send(proto::PhaseEvent{.phase = phase, .done = done, .total = total});
            asio::post(io_, [this, phase, done, total] {
                app_.state().lifecycle.progress(phase, done, total);
                app_.state().status_publisher.notify();
            });
        };
        hooks.on_engine_change = [this] { app_.engine_changed(); };
        hooks.on_step = [this](const StepStats& stats) {
            app_.state().metrics.observe_step(stats);
        };
        hooks.on_device_lost = [this](const std::string& reason) {
            log_event(LogLevel::kError, "device_lost", {{"reason", reason}});
            asio::post(io_, [this, reason] { end_after_device_loss(reason); });
        };
        return hooks;
    }

    /// The engine has told every request; error events get a moment to leave.
    void end_after_device_loss(const std::string& reason) {
        app_.fail();
        const auto timer = std::make_shared<asio::steady_timer>(io_, std::chrono::seconds{1});
        timer->async_wait([this, timer, reason](const boost::system::error_code&) {
            die(pipe_, failure(ExitCode::kInternal, "Q0101", "internal", "the device is lost",
                               reason, {}));
        });
    }

    void tell_kernels(const ServedModel& model) {
        proto::KernelsEvent event;
        for (const kernels::KernelEntry& kernel : model.kernels()) {
            event.kernels.push_back({.name = kernels::full_name(kernel),
                                     .state = std::string(kernels::name_of(kernel.state)),
                                     .reason = kernel.reason});
        }
        pipe_.send(std::move(event));
    }

    asio::io_context& io_;
    App& app_;
    ReadyPipe& pipe_;
    std::optional<ModelHead> head_;  // until load() takes it
};

/// TERM or INT: drain; while loading, or the second time: at once.
class Signals {
public:
    Signals(asio::io_context& io, App& app) : io_(io), app_(app), signals_(io, SIGTERM, SIGINT) {
        wait();
    }

private:
    void wait() {
        signals_.async_wait([this](const boost::system::error_code& error, int) {
            if (error) return;
            if (!app_.state().serving) exit_now(ExitCode::kOk);
            log_event(LogLevel::kInfo, "draining",
                      {{"inside", std::to_string(app_.state().admission.inside())}});
            app_.drain(app_.state().options.drain_deadline, [this] { io_.stop(); });
            wait();
        });
    }

    asio::io_context& io_;
    App& app_;
    asio::signal_set signals_;
};

/// Whoever can reach a server without a key can use it.
bool is_exposed(const ServerOptions& options) {
    if (options.insecure_no_auth || options.internal_key_fd) return false;
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options.host, error);
    return !error && !address.is_loopback();  // what is no address cannot be bound
}

/// What can be known before the port is taken; what was read for it.
ModelHead check_start(const ServerOptions& options, ReadyPipe& pipe) {
    if (is_exposed(options)) {
        die(pipe,
            failure(ExitCode::kUsage, "Q0200", "config", "--host " + options.host,
                    "it would serve everybody who can reach that address, since it has no key",
                    "give --host 127.0.0.1 with quadriga-router in front, which has API keys, "
                    "or, if you mean it, --insecure-no-auth"));
    }
    auto head = read_model_head(options);
    if (!head) die(pipe, head.error());
    return std::move(*head);
}

std::unique_ptr<App> open_app(asio::io_context& io, const ServerOptions& options, ReadyPipe& pipe) {
    std::optional<std::string> key;
    try {
        if (options.internal_key_fd) key = read_internal_key(*options.internal_key_fd);
    } catch (const std::runtime_error& error) {
        die(pipe, failure(ExitCode::kUsage, "Q0200", "config", "--internal-key-fd", error.what(),
                          "hand down a readable descriptor"));
    }
    try {
        return std::make_unique<App>(io, options, std::move(key), inherited_socket());
    } catch (const std::system_error& error) {
        die(pipe, port_failure(options, error));
    }
}

}  // namespace

int run_replica(ServerOptions options) {
    std::signal(SIGPIPE, SIG_IGN);
    const rlimit no_core{0, 0};  // a core would hold prompts
    ::setrlimit(RLIMIT_CORE, &no_core);
    start_log();
    if (options.instance.empty()) options.instance = proto::make_instance_id();
    ReadyPipe pipe(options.ready_fd, options.instance);
    pipe.send(proto::HelloEvent{
        .pid = ::getpid(), .build = build_version(), .config = options.config_digest});

    ModelHead head = check_start(options, pipe);
    asio::io_context io(1);
    const DeathWatch death_watch(io, options.death_fd);
    const std::unique_ptr<App> app = open_app(io, options, pipe);
    const Signals signals(io, *app);
    app->start();
    say("listening on http://" + options.host + ":" + std::to_string(app->port()));
    Loading loading(io, *app, pipe, std::move(head));
    std::thread loader([&loading] { loading.run(); });
    io.run();  // until drained
    loader.join();
    stop_log();
    return static_cast<int>(ExitCode::kOk);
}

}  // namespace replica::server

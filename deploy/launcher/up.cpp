// `quadriga up`: everything that can fail is tried before the first process starts, in this order:
// model, who may come in, programs, devices, runtime folder, leftovers, sockets.
#include <csignal>

#include <boost/asio/io_context.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "deploy/launcher/address.h"
#include "deploy/launcher/child_check.h"
#include "deploy/launcher/command_name.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/control.h"
#include "deploy/launcher/gpu_plan.h"
#include "deploy/launcher/port_holder.h"
#include "deploy/launcher/prepare.h"
#include "deploy/launcher/replica_memory.h"
#include "deploy/launcher/supervisor.h"
#include "proto/http_server.h"
#include "proto/route_table.h"

namespace deploy {
namespace {

std::string exposure_text(const Config& config) {
    return std::string(is_loopback(config.host) ? "loopback, " : "open to the network, ") +
           (config.keys_file.empty() ? "no key" : "needs a key");
}

[[noreturn]] void refuse_second(const std::string& runtime_dir, const std::string& holder) {
    std::string running = holder;
    if (const auto record = read_record(runtime_dir); record.has_value()) {
        const auto process = describe_process(record->launcher.pid);
        running = process.has_value() ? to_text(*process) : holder;
        running += ", serving " + record->url;
    }
    throw StartError({.kind = FailureClass::kBusy,
                      .what = "a launcher is already running in " + runtime_dir,
                      .why = running,
                      .fix = "stop it with '" + command_name() + " down --runtime-dir " +
                             runtime_dir + "', or use another --runtime-dir and other ports"});
}

std::string set_text(const std::vector<int>& cpus) {
    if (cpus.empty()) return "shared";
    if (cpus.size() == 1) return std::to_string(cpus.front());
    return std::to_string(cpus.front()) + "-" + std::to_string(cpus.back());
}

/// "cpu, 1 thread each, cores 0, 1" or "cuda, GPUs 0 NVIDIA H200, 1 NVIDIA H200"
std::string device_text(const LaunchPlan& plan) {
    if (plan.is_cuda()) {
        std::string gpus;
        for (const GpuFacts& gpu : plan.gpus)
            gpus += (gpus.empty() ? "" : ", ") + std::to_string(gpu.index) + " " + gpu.name;
        const int share = plan.gpu_memory_mib.front();
        return "cuda, GPUs " + gpus +
               (share > 0 ? ", shared: " + std::to_string(share) + " MiB each" : "");
    }
    std::string cores;
    for (const auto& cpus : plan.cpus)
        cores += (cores.empty() ? "" : ", ") + set_text(cpus);
    if (plan.cpus.front().empty()) cores = "all, shared";
    return "cpu, " + std::to_string(plan.threads.front()) +
           (plan.threads.front() == 1 ? " thread" : " threads") + " each, cores " + cores;
}

/// What is known of memory before a load, and no more.
void print_fit(Console& console, const LaunchPlan& plan, DeviceMonitor& monitor,
               const std::optional<ReplicaMemory>& memory) {
    const MemoryReading reading = monitor.measure(0, plan.need_bytes());
    console.print("fit      weights: " + reading.note + ", before each load");
    if (!memory) return;
    console.print("         beside them: " + to_text(*memory) +
                  "; buffers come on top, known at load");
    const bool is_share = plan.is_cuda() && plan.gpu_memory_mib.front() > 0;
    const std::uint64_t least = plan.model_bytes + memory->least_bytes();
    if (!is_share && least > reading.available_bytes) {
        console.log("warn", "launcher",
                    "weights and one context are " + bytes_text(least) + ", more than the " +
                        bytes_text(reading.available_bytes) +
                        " that are free: lower context, or free memory");
    }
}

void print_plan(Console& console, const LaunchPlan& plan, DeviceMonitor& monitor,
                const std::optional<ReplicaMemory>& memory) {
    const Config& config = plan.config;
    const ShownAddress address = shown_address(config, plan.router_socket.port);
    const std::string& url = address.url;
    const std::string count =
        std::to_string(config.replica_count) +
        (config.replica_count == 1 ? " replica" : " replicas, loaded one at a time");
    console.print("plan     " + count + "; backend " + device_text(plan));
    console.print("model    " + config.served_name + " (" + config.model + ", " +
                  bytes_text(plan.model_bytes) + ")");
    print_fit(console, plan, monitor, memory);
    console.print("url      " + url + "/v1 (" + exposure_text(config) + ")");
    console.print("         " + url + "/dashboard");
    if (!address.elsewhere.empty()) {
        console.print("         " + address.elsewhere +
                      "/v1 from other machines that know the name");
    }
    // A certificate that vouches for itself, or one of an own authority, is known by its file
    // alone.
    std::string trust = config.tls_cert.empty() ? "" : " --cacert " + config.tls_cert;
    if (!address.resolve.empty()) trust += " --resolve " + address.resolve;
    console.print("try      curl -s" + trust + " " + url + "/v1/models" +
                  (config.keys_file.empty() ? "" : " -H \"Authorization: Bearer $KEY\""));
    console.print("         " + command_name() + " status --runtime-dir " + plan.runtime_dir +
                  "; metrics on http://127.0.0.1:" + std::to_string(plan.metrics_port) +
                  "/metrics");
}

/// GET /metrics on the launcher's own port, served by the launcher's thread.
std::unique_ptr<proto::HttpServer> serve_metrics(boost::asio::io_context& context,
                                                 UniqueFd listen_fd, proto::RouteTable& routes,
                                                 Supervisor& supervisor) {
    routes.add(
        "GET", "/metrics",
        [&supervisor](proto::HttpExchange& exchange, std::string) -> boost::asio::awaitable<void> {
            co_await exchange.send(proto::text_response(
                supervisor.scrape(), 200, "text/plain; version=0.0.4; charset=utf-8"));
        });
    proto::HttpServerOptions options;
    options.listen_fd = listen_fd.release();
    options.connections_max = 64;
    options.admit = [&routes](proto::HttpRequestHead& head) {
        return routes.refuse(head.method, head.path);
    };
    auto server = std::make_unique<proto::HttpServer>(
        context.get_executor(), std::move(options),
        [&routes](proto::HttpExchange& exchange) -> boost::asio::awaitable<void> {
            co_await routes.serve(exchange);
        });
    server->start();
    return server;
}

/// Removes what this launcher made in its folder, whatever way it ends.
struct RuntimeFiles {
    std::string folder;
    explicit RuntimeFiles(std::string folder_in) : folder(std::move(folder_in)) { forget_keys(); }
    RuntimeFiles(const RuntimeFiles&) = delete;
    RuntimeFiles& operator=(const RuntimeFiles&) = delete;
    /// The router's copies of key files are for its restarts, not for another start.
    void forget_keys() const {
        for (const char* name : {"/keys.good", "/admin-keys.good"})
            ::unlink((folder + name).c_str());
    }
    ~RuntimeFiles() {
        forget_keys();
        remove_record(folder);
        ::unlink((folder + "/control.sock").c_str());
        ::unlink((folder + "/internal.key").c_str());
        ::unlink(admin_socket_path(folder).c_str());
    }
};

}  // namespace

int run_up(const LoadedConfig& loaded) {
    LaunchPlan plan;
    plan.config = loaded.config;
    plan.sources = loaded.sources;
    const Config& config = plan.config;
    if (config.model.empty()) throw StartError(no_model());
    check_exposure(config);
    plan.model_bytes = model_bytes(config.model);
    make_paths_absolute(plan.config);
    plan.replica_program = find_program(config.replica_program, "quadriga-replica");
    plan.router_program = find_program(config.router_program, "quadriga-router");
    if (config.settle_s > 0) {
        plan.settle = Duration{static_cast<Duration::rep>(config.settle_s * 1000)};
    }
    const DevicePlan devices = plan_devices(plan);
    plan.runtime_dir = choose_runtime_dir(config.runtime_dir);
    make_runtime_dir(plan.runtime_dir);
    plan_cpus(plan);
    (void)check_router(loaded, plan);
    // One that does not answer is seen when it starts.
    const auto memory = parse_replica_memory(check_replica(loaded, plan).value_or(""));

    Console console;
    FileLock alone(plan.runtime_dir + "/launcher.lock");
    if (!alone.try_take("pid " + std::to_string(::getpid()))) {
        refuse_second(plan.runtime_dir, alone.holder());
    }
    if (const auto record = read_record(plan.runtime_dir); record.has_value()) {
        for (const std::string& name : kill_leftovers(*record)) {
            console.log("warn", "launcher", "ended a leftover of an earlier launcher: " + name);
        }
    }
    const RuntimeFiles files{plan.runtime_dir};

    plan.router_socket = listen_tcp(config.host, static_cast<std::uint16_t>(config.port), "router");
    for (int i = 0; i < config.replica_count; ++i) {
        const int port = config.replica_port_base == 0 ? 0 : config.replica_port_base + i;
        plan.replica_sockets.push_back(listen_tcp("127.0.0.1", static_cast<std::uint16_t>(port),
                                                  "replica " + std::to_string(i)));
    }
    ListenSocket metrics_socket =
        listen_tcp("127.0.0.1", static_cast<std::uint16_t>(config.metrics_port), "metrics");
    plan.metrics_port = metrics_socket.port;
    plan.admin_listen = listen_for_admin(admin_listen_of(plan.config));
    plan.admin_socket = listen_unix(admin_socket_path(plan.runtime_dir));
    UniqueFd control_socket = listen_unix(plan.runtime_dir + "/control.sock");
    plan.internal_key = make_internal_key();
    write_key_file(plan.runtime_dir, plan.internal_key);

    ::signal(SIGPIPE, SIG_IGN);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);

    DeviceMonitor& monitor = *devices.monitor;
    print_plan(console, plan, monitor, memory);
    if (!config.keys_file.empty() && config.tls_cert.empty() && !is_loopback(config.host)) {
        console.log("warn", "launcher",
                    "API keys, prompts and answers travel in clear on the network: give tls_cert "
                    "and tls_key, or let a proxy that speaks TLS stand before it");
    }
    if (!devices.note.empty()) console.print("         no GPU is used: " + devices.note);

    boost::asio::io_context context(1);
    Supervisor supervisor(context, std::move(plan), console, monitor);
    ControlServer control(context, std::move(control_socket), supervisor);
    proto::RouteTable routes;
    const auto metrics_server =
        serve_metrics(context, std::move(metrics_socket.fd), routes, supervisor);
    control.start();
    int exit_code = 0;
    supervisor.start([&](int code) {
        exit_code = code;
        control.finish(code);
        context.stop();
    });
    context.run();
    if (supervisor.ending().has_value()) throw StartError(*supervisor.ending());
    console.print(exit_code == 0 ? "stopped, nothing is left running"
                                 : "stopped, but a process could not be ended");
    return exit_code;
}

}  // namespace deploy

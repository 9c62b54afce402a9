// Events in, actions out: the loop of the supervisor and its simple actions. Replicas are in
// supervisor_spawn.cpp, the router in supervisor_router.cpp, what is shown to people in
// supervisor_show.cpp.
#include "deploy/launcher/supervisor.h"

#include <cerrno>
#include <csignal>
#include <sstream>
#include <system_error>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

namespace deploy {
namespace {

constexpr std::string_view kVersion = "0.1.0";

std::uint64_t random_seed() {
    std::uint64_t seed = 0;
    [[maybe_unused]] const ssize_t got = ::getrandom(&seed, sizeof seed, 0);
    return seed;
}

}  // namespace

Supervisor::Supervisor(boost::asio::io_context& context, LaunchPlan plan, Console& console,
                       DeviceMonitor& monitor)
    : context_(context),
      plan_(std::move(plan)),
      console_(console),
      monitor_(monitor),
      fleet_(make_fleet(plan_.config.replica_count, plan_.config.fleet_limits(), random_seed())),
      metrics_(plan_.config.replica_count, std::string(kVersion)),
      load_lock_(plan_.runtime_dir + "/load.lock"),
      announcer_(context.get_executor()),
      client_(context.get_executor()),
      signals_(context, SIGTERM, SIGINT, SIGHUP),
      timer_(context),
      second_(context),
      board_timer_(context),
      sample_timer_(context),
      slots_(static_cast<std::size_t>(plan_.config.replica_count)) {
    fleet_.limits.settle = plan_.settle;
    announcer_.on_drain_order = [this](const auto& order) { on_drain_at_router(order); };
    announcer_.on_reload_report = [this](int link, const auto& report) {
        if (link == router_.link) reload_report_ = report;
    };
    announcer_.on_router_news = [this](int link, auto word) { on_router_news(link, word); };
    announcer_.on_bad_line = [this](const std::string& line) {
        console_.log("warn", "launcher", "the router said nonsense: " + proto::printable(line));
    };
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) {
        throw std::system_error(errno, std::generic_category(), "pipe");
    }
    death_read_ = UniqueFd(pipe[0]);
    death_write_ = UniqueFd(pipe[1]);
    use(plan_.config);
    facts_.router_port = plan_.router_socket.port;
    facts_.metrics_port = plan_.metrics_port;
    facts_.runtime_dir = plan_.runtime_dir;
    facts_.model_bytes = plan_.model_bytes;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        ReplicaFacts facts;
        facts.port = plan_.replica_sockets[i].port;
        facts.url = "http://127.0.0.1:" + std::to_string(facts.port);
        if (plan_.is_cuda()) {
            const GpuFacts& gpu = plan_.gpus[i];
            facts.gpu_uuid = fleet_.replicas[i].device = gpu.uuid;
            facts.device = std::to_string(gpu.index) + " " + gpu.uuid.substr(0, 8) +
                           (gpu.pci.empty() ? "" : " " + gpu.pci);
            facts.device_note = gpu.name;
        } else {
            facts.device = "CPU-" + std::to_string(i);
            const std::vector<int>& cpus = plan_.cpus[i];
            facts.device_note = cpus.empty() ? "all cores, shared"
                                             : "cores " + std::to_string(cpus.front()) + "-" +
                                                   std::to_string(cpus.back());
        }
        facts_.replicas.push_back(std::move(facts));
    }
}

Supervisor::~Supervisor() = default;

void Supervisor::start(std::function<void(int code)> on_exit) {
    on_exit_ = std::move(on_exit);
    facts_.started_at = Clock::now();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        guard_port(slots_[i].guard, plan_.replica_sockets[i].fd.get());
        announce_to_router(static_cast<int>(i));
    }
    wait_for_signal();
    every_second();
    if (plan_.is_cuda()) every_sample();
    post_event(Begin{});
    draw_board();
}

/// Events that actions cause wait until the present plan has been carried out.
void Supervisor::post_event(Event event) {
    events_.push_back(std::move(event));
    if (is_planning_) return;
    is_planning_ = true;
    while (!events_.empty()) {
        const Event next = std::move(events_.front());
        events_.pop_front();
        for (const Action& action : plan(fleet_, next, Clock::now()))
            carry_out(action);
    }
    is_planning_ = false;
    if (fleet_.phase != FleetPhase::kDone) arm_timer();
}

void Supervisor::carry_out(const Action& action) {
    std::visit([this](const auto& one) { do_action(one); }, action);
}

void Supervisor::arm_timer() {
    timer_.expires_at(next_tick(fleet_, Clock::now()));
    timer_.async_wait([this](boost::system::error_code error) {
        if (!error) post_event(Tick{});
    });
}

void Supervisor::wait_for_signal() {
    signals_.async_wait([this](boost::system::error_code error, int number) {
        if (error) return;
        if (number == SIGHUP) {
            reload_router();
        } else {
            console_.log("info", "launcher",
                         number == SIGTERM ? "TERM received" : "interrupt received");
            post_event(StopAsked{});
        }
        wait_for_signal();
    });
}

void Supervisor::do_action(const MeasureMemory& action) {
    const MemoryReading reading = monitor_.measure(action.replica, plan_.need_bytes());
    post_event(MemoryMeasured{action.replica, reading.is_enough, reading.note});
}

void Supervisor::do_action(const TakeFileLock&) {
    if (load_lock_.try_take("the launcher with pid " + std::to_string(::getpid()) + " at " +
                            facts_.url)) {
        post_event(FileLockTaken{});
    } else {
        post_event(FileLockBusy{load_lock_.holder()});
    }
}

void Supervisor::do_action(const DropFileLock&) {
    load_lock_.drop();
}

void Supervisor::do_action(const SignalReplica& action) {
    if (const auto& child = slots_.at(static_cast<std::size_t>(action.replica)).child) {
        child->signal(action.signal);
    }
}

void Supervisor::do_action(const ShowStop&) {
    int requests = 0;
    for (const Replica& replica : fleet_.replicas)
        requests += replica.running + replica.waiting;
    if (requests == 0) {
        console_.print("stopping");
        return;
    }
    std::ostringstream seconds;
    seconds << plan_.config.drain_deadline_s;
    console_.print("stopping: " + std::to_string(requests) +
                   (requests == 1 ? " request ends" : " requests end") + " first, at most " +
                   seconds.str() + " s; another Ctrl-C or TERM cuts them off");
}

void Supervisor::do_action(const Say& action) {
    console_.log(action.is_warning ? "warn" : "info", "launcher", action.text);
}

void Supervisor::do_action(const Exit& action) {
    is_board_over_ = true;
    console_.freeze();
    signals_.cancel();
    timer_.cancel();
    second_.cancel();
    board_timer_.cancel();
    sample_timer_.cancel();
    announcer_.close_all();
    for (Slot& slot : slots_)
        slot.guard.reset();
    router_guards_ = {};
    load_lock_.drop();
    notifier_.send("STOPPING=1");
    if (on_exit_) on_exit_(action.code);
}

/// Connections to a port without a process are closed at once: nothing hangs in its backlog.
void Supervisor::guard_port(std::unique_ptr<boost::asio::posix::stream_descriptor>& guard,
                            int listen_fd) {
    if (!guard) {
        guard = std::make_unique<boost::asio::posix::stream_descriptor>(
            context_, ::fcntl(listen_fd, F_DUPFD_CLOEXEC, 0));
    }
    guard->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, &guard, listen_fd](boost::system::error_code error) {
                          // An aborted wait may run after its guard is gone: touch nothing then.
                          if (error || !guard) return;
                          close_waiting(listen_fd);
                          guard_port(guard, listen_fd);
                      });
}

/// Timer of a second: status pages, output budgets, systemd.
void Supervisor::every_second() {
    second_.expires_after(std::chrono::seconds(1));
    second_.async_wait([this](boost::system::error_code error) {
        if (error) return;
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            Slot& slot = slots_[i];
            if (slot.lines_dropped > 0) {
                console_.log("warn", "launcher",
                             "replica " + std::to_string(i) + ": " +
                                 std::to_string(slot.lines_dropped) + " lines of output not shown");
            }
            slot.lines_this_second = slot.lines_dropped = 0;
            boost::asio::co_spawn(context_,
                                  poll_replica(static_cast<int>(i), std::chrono::seconds(2)),
                                  boost::asio::detached);
        }
        console_.flush();
        notifier_.send("WATCHDOG=1");
        every_second();
    });
}

/// A failed poll changes nothing: silence is what counts, and the fleet measures it.
boost::asio::awaitable<void> Supervisor::poll_replica(int replica,
                                                      std::chrono::milliseconds timeout) {
    Slot& slot = slots_.at(static_cast<std::size_t>(replica));
    const ReplicaState state = fleet_.replicas.at(static_cast<std::size_t>(replica)).state;
    if (slot.is_poll_running ||
        (state != ReplicaState::kReady && state != ReplicaState::kDraining)) {
        co_return;
    }
    slot.is_poll_running = true;
    proto::HttpClientRequest request;
    request.target = "/internal/status";
    request.headers.set("authorization", "Bearer " + plan_.internal_key);
    request.timeouts.connect = timeout;
    request.timeouts.head = timeout;
    request.timeouts.body_idle = timeout;
    const std::string instance = slot.instance;
    const proto::Endpoint endpoint{
        "127.0.0.1", plan_.replica_sockets.at(static_cast<std::size_t>(replica)).port};
    auto response = co_await client_.request(endpoint, std::move(request));
    if (response.has_value() && response->status == 200) {
        constexpr std::size_t kStatusBytesMax = 64 * 1024;
        auto body = co_await response->read_all(kStatusBytesMax);
        if (body.has_value()) {
            auto status = proto::parse_replica_status(*body);
            if (status.has_value() && status->instance == instance && slot.instance == instance) {
                const WorkReported report{.replica = replica,
                                          .step = status->step,
                                          .running = status->running,
                                          .waiting = status->waiting};
                facts_.replicas.at(static_cast<std::size_t>(replica)).status = *status;
                post_event(report);
            }
        }
    }
    slot.is_poll_running = false;
}

}  // namespace deploy

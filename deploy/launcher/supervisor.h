// The doing side of the launcher: owns processes, pipes, sockets and timers, turns what happens
// into events for the pure fleet, and carries out the actions it answers with.
//
//   signals, pidfds, ready pipes, status pages, control socket ─▶ event ─▶ plan() ─▶ actions ─▶
//   here
//
// One thread runs everything, so nothing is locked, and the kernel's parent-death signal (which
// follows the spawning thread) is tied to the launcher's life.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "deploy/launcher/admin_listen.h"
#include "deploy/launcher/announcer.h"
#include "deploy/launcher/board.h"
#include "deploy/launcher/child.h"
#include "deploy/launcher/config.h"
#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/fleet.h"
#include "deploy/launcher/metrics.h"
#include "deploy/launcher/notify.h"
#include "deploy/launcher/runtime_dir.h"
#include "deploy/launcher/sockets.h"
#include "deploy/launcher/view.h"
#include "proto/http_client.h"

namespace deploy {

/// Everything `up` has prepared before a process starts.
struct LaunchPlan {
    Config config;
    ConfigSources sources;  // what it was read from
    std::string runtime_dir;
    std::string replica_program;
    std::string router_program;
    std::string internal_key;
    std::uint64_t model_bytes = 0;
    ListenSocket router_socket;
    UniqueFd admin_socket;     // of the router: the Unix socket, always
    AdminListen admin_listen;  // and the one over TCP, if it is wanted
    std::vector<ListenSocket> replica_sockets;
    std::uint16_t metrics_port = 0;
    std::vector<std::vector<int>> cpus;  // per replica; empty: not pinned
    std::vector<int> threads;            // per replica
    std::vector<GpuFacts> gpus;          // per replica; empty: CPU shares
    std::vector<int> gpu_memory_mib;     // per replica; 0: all that is free
    bool waits_for_power = false;        // READY once the card draws little
    Duration settle{0};                  // between self-test and READY, at most
    bool is_cuda() const { return !gpus.empty(); }
    /// The least a replica needs: weights (packing for a GPU adds up to 3 %), and some more.
    std::uint64_t need_bytes() const {
        return model_bytes + (is_cuda() ? model_bytes / 32 : 0) +
               (static_cast<std::uint64_t>(config.memory_slack_mib) << 20);
    }
};

class Supervisor {
public:
    Supervisor(boost::asio::io_context& context, LaunchPlan plan, Console& console,
               DeviceMonitor& monitor);
    ~Supervisor();

    /// Starts the fleet; run the context then. When everything has ended, `on_exit` gets the code.
    void start(std::function<void(int code)> on_exit);

    // For the control socket and the metrics listener.
    void ask_stop() { post_event(StopAsked{.has_grace = false}); }
    std::string refusal(const ReplicaOrder& order) const { return refusal_of(fleet_, order); }
    void give(const ReplicaOrder& order);
    nlohmann::json status_now() const;
    /// Asks every serving replica for fresh numbers first; at most half a second.
    boost::asio::awaitable<nlohmann::json> fresh_status();
    /// Has the router read its keys and TLS files again, and answers what came of it:
    /// {"ok":true,"done":[…]}, or the error. At most kReloadWait.
    boost::asio::awaitable<nlohmann::json> reload();
    /// Reads the configuration again and replaces the router by one with its new settings, on the
    /// same listening sockets: {"ok":true,"pid":…,"not_applied":[…]} once that serves, or the
    /// error, and then nothing has changed. At most about half a minute.
    boost::asio::awaitable<nlohmann::json> restart_router();
    std::string scrape();
    const std::optional<Failure>& ending() const { return fleet_.ending; }

private:
    struct RouterProcess {
        std::shared_ptr<Child> child;  // null: none
        int link = 0;                  // of the announcer
    };
    struct Slot {  // one replica's things
        std::shared_ptr<Child> child;
        std::shared_ptr<Child> last_child;  // keeps the last words of one that has ended
        std::string instance;
        std::uint64_t oom_kills_at_spawn = 0;
        bool is_poll_running = false;
        std::unique_ptr<boost::asio::posix::stream_descriptor> guard;
        std::string announced;  // the last announcement's text
        int lines_this_second = 0;
        int lines_dropped = 0;
        int calm_samples = 0;  // of its card's power, in a row, while it settles
    };

    void post_event(Event event);
    void arm_timer();
    void carry_out(const Action& action);

    void do_action(const MeasureMemory& action);
    void do_action(const TakeFileLock& action);
    void do_action(const DropFileLock& action);
    void do_action(const SpawnReplica& action);
    void do_action(const SpawnRouter& action);
    void do_action(const SignalReplica& action);
    void do_action(const SignalRouter& action);
    void do_action(const SpawnSuccessor& action);
    void do_action(const RetireRouter& action);
    void do_action(const PromoteSuccessor& action);
    void do_action(const SignalOtherRouter& action);
    void do_action(const Announce& action);
    void do_action(const GuardRouterPort& action);
    void do_action(const ShowStop& action);
    void do_action(const Say& action);
    void do_action(const Exit& action);

    boost::asio::awaitable<nlohmann::json> restart_router_once();
    boost::asio::awaitable<bool> is_good_for_router(Config config);
    boost::asio::awaitable<nlohmann::json> reload_once();
    boost::asio::awaitable<void> until(std::chrono::milliseconds most,
                                       std::function<bool()> is_over);
    void use(const Config& config);
    RouterProcess start_router(const Config& config, const AdminListen& admin_listen);
    void router_ended(int pid, int wait_status);
    void on_router_news(int link, proto::RouterNews word);
    void guard_router_ports();
    SpawnRequest replica_request(int replica) const;
    ExitEvidence evidence_of(const Child& child, int wait_status) const;
    void guard_port(std::unique_ptr<boost::asio::posix::stream_descriptor>& guard, int listen_fd);
    void announce_to_router(int replica);
    void on_drain_at_router(const proto::DrainOrder& order);
    void relay_output(Slot* slot, const std::string& process, const std::string& line);
    void wait_for_signal();
    void reload_router();
    void every_second();
    void every_sample();
    void sample_gpus();
    proto::PipeEvent as_seen(int replica, proto::PipeEvent line) const;
    void draw_board();
    bool is_startup_over() const;  // every replica is READY, or has given up
    void refresh_facts();
    void save_record();
    boost::asio::awaitable<void> poll_replica(int replica, std::chrono::milliseconds timeout);

    boost::asio::io_context& context_;
    LaunchPlan plan_;
    Console& console_;
    DeviceMonitor& monitor_;
    Fleet fleet_;
    FleetFacts facts_;
    Metrics metrics_;
    Notifier notifier_;
    FileLock load_lock_;
    Announcer announcer_;
    proto::HttpClient client_;
    boost::asio::signal_set signals_;
    boost::asio::steady_timer timer_;
    boost::asio::steady_timer second_;
    boost::asio::steady_timer board_timer_;
    boost::asio::steady_timer sample_timer_;
    UniqueFd death_read_;   // inherited by every child
    UniqueFd death_write_;  // held by the launcher alone: its end is the children's signal
    std::vector<Slot> slots_;
    RouterProcess router_;
    std::map<int, RouterProcess> other_routers_;  // by pid: the successor, those that have retired
    Config successor_config_;
    AdminListen successor_admin_listen_;  // where it is another one than before
    bool is_restart_running_ = false;
    bool is_reload_running_ = false;
    int router_deaths_ = 0;  // of present ones
    std::array<std::unique_ptr<boost::asio::posix::stream_descriptor>, 3> router_guards_;
    std::deque<Event> events_;
    std::optional<proto::ReloadReport> reload_report_;  // of the last reload, once it is there
    bool is_planning_ = false;
    bool is_ready_said_ = false;
    bool is_board_over_ = false;
    std::function<void(int)> on_exit_;
};

}  // namespace deploy

// The doing side of the launcher: owns processes, pipes, sockets and timers, turns what happens
// into events for the pure fleet, and carries out the actions it answers with.
//
//   signals, pidfds, ready pipes, status pages, control socket ─▶ event ─▶ plan() ─▶ actions ─▶
//   here
//
// One thread runs everything, so nothing is locked, and the kernel's parent-death signal (which
// follows the spawning thread) is tied to the launcher's life.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

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
    std::string runtime_dir;
    std::string replica_program;
    std::string router_program;
    std::string internal_key;
    std::uint64_t model_bytes = 0;
    ListenSocket router_socket;
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
    void ask_stop() { post_event(StopAsked{}); }
    std::string refusal(const ReplicaOrder& order) const { return refusal_of(fleet_, order); }
    void give(const ReplicaOrder& order);
    nlohmann::json status_now() const;
    /// Asks every serving replica for fresh numbers first; at most half a second.
    boost::asio::awaitable<nlohmann::json> fresh_status();
    /// Has the router read its keys and TLS files again, and answers what came of it:
    /// {"ok":true,"done":[…]}, or the error. At most kReloadWait.
    boost::asio::awaitable<nlohmann::json> reload();
    std::string scrape();
    const std::optional<Failure>& ending() const { return fleet_.ending; }

private:
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
    void do_action(const Announce& action);
    void do_action(const GuardRouterPort& action);
    void do_action(const ShowStop& action);
    void do_action(const Say& action);
    void do_action(const Exit& action);

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
    std::shared_ptr<Child> router_;
    std::unique_ptr<boost::asio::posix::stream_descriptor> router_guard_;
    std::deque<Event> events_;
    std::optional<proto::ReloadReport> reload_report_;  // of the last reload, once it is there
    bool is_planning_ = false;
    bool is_ready_said_ = false;
    bool is_board_over_ = false;
    std::function<void(int)> on_exit_;
};

}  // namespace deploy

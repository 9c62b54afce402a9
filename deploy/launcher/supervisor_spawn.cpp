// The supervisor's replicas: what they are given, and what the ends of children mean.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/launcher/prepare.h"
#include "deploy/launcher/supervisor.h"

namespace deploy {
namespace {

constexpr std::size_t kLastLines = 20;
constexpr std::size_t kEvidenceBytesMax = 300;

}  // namespace

/// Descriptors: 3 the listening socket, 4 the ready pipe, 5 the death pipe, 6 the internal key.
SpawnRequest Supervisor::replica_request(int replica) const {
    const Config& config = plan_.config;
    const auto i = static_cast<std::size_t>(replica);
    SpawnRequest request;
    request.program = plan_.replica_program;
    request.has_listen_socket = true;
    request.death_signal = SIGKILL;
    request.cpus = plan_.cpus[i];
    request.argv = replica_arguments(
        config, {.replica = replica,
                 .device = plan_.is_cuda() ? "0" : "cpu",  // the one GPU its environment shows it
                 .instance = slots_[i].instance,
                 .threads = plan_.threads[i],
                 .device_memory_mib = plan_.is_cuda() ? plan_.gpu_memory_mib[i] : 0,
                 .config_digest = facts_.config_digest});
    request.argv.insert(request.argv.end(),
                        {"--ready-fd", "4", "--death-fd", "5", "--internal-key-fd", "6"});
    if (plan_.is_cuda()) {
        request.environment = {"CUDA_DEVICE_ORDER=PCI_BUS_ID",
                               "CUDA_VISIBLE_DEVICES=" + plan_.gpus[i].uuid};
    }
    return request;
}

void Supervisor::do_action(const SpawnReplica& action) {
    const int replica = action.replica;
    const auto i = static_cast<std::size_t>(replica);
    Slot& slot = slots_.at(i);
    try {
        slot.instance = proto::make_instance_id();
        SpawnRequest request = replica_request(replica);
        Pipe ready = make_pipe();
        Pipe output = make_pipe();
        const UniqueFd key = memfd_with(plan_.internal_key);
        request.fds = {plan_.replica_sockets[i].fd.get(), ready.write.get(), death_read_.get(),
                       key.get()};
        request.output_fd = output.write.get();
        slot.guard.reset();  // the socket is the child's now
        slot.oom_kills_at_spawn = monitor_.oom_kills();
        const std::string process = "replica-" + std::to_string(replica);
        ChildEvents events;
        events.on_event = [this, replica](const proto::PipeEvent& line) {
            post_event(ReplicaSaid{replica, as_seen(replica, line)});
        };
        events.on_garbled = [this, replica](const std::string& why) {
            post_event(ReplicaGarbled{replica, why});
        };
        events.on_output = [this, i, process](const std::string& line) {
            relay_output(&slots_[i], process, line);
        };
        events.on_exit = [this, replica, i](int wait_status) {
            Slot& ended = slots_[i];
            ExitEvidence evidence = evidence_of(*ended.child, wait_status);
            evidence.is_host_memory = monitor_.oom_kills() > ended.oom_kills_at_spawn;
            // A new process must not take away what the one that failed said last.
            if (wait_status != 0) {
                facts_.replicas[i].failure_lines = ended.child->last_lines(kLastLines);
            }
            ended.last_child = std::exchange(ended.child, nullptr);
            client_.forget({"127.0.0.1", plan_.replica_sockets[i].port});
            guard_port(ended.guard, plan_.replica_sockets[i].fd.get());
            post_event(ReplicaDied{replica, evidence});
        };
        slot.child =
            std::make_shared<Child>(context_.get_executor(), spawn(request), std::move(output.read),
                                    std::move(ready.read), std::move(events));
        slot.last_child.reset();
        facts_.replicas[i].status.reset();
        post_event(ReplicaSpawned{replica, slot.child->pid(), slot.instance});
        slot.child->start();
        save_record();
    } catch (const std::system_error& error) {
        slot.child.reset();
        guard_port(slot.guard, plan_.replica_sockets[i].fd.get());
        post_event(SpawnFailed{replica,
                               {.kind = FailureClass::kInternal,
                                .what = "its process could not be started",
                                .why = error.what(),
                                .fix = "check " + plan_.replica_program}});
    }
}

/// Where the host shows which process computes on which card, that counts and not the report.
proto::PipeEvent Supervisor::as_seen(int replica, proto::PipeEvent line) const {
    auto* ready = std::get_if<proto::ReadyEvent>(&line.event);
    const auto& child = slots_.at(static_cast<std::size_t>(replica)).child;
    if (ready == nullptr || !plan_.is_cuda() || !child) return line;
    std::vector<std::string> seen = monitor_.devices_of(child->pid());
    if (!seen.empty()) ready->gpu_uuids = std::move(seen);
    return line;
}

ExitEvidence Supervisor::evidence_of(const Child& child, int wait_status) const {
    ExitEvidence evidence{.wait_status = wait_status};
    const std::vector<std::string> lines = child.last_lines(1);
    if (!lines.empty()) evidence.last_line = lines.front().substr(0, kEvidenceBytesMax);
    return evidence;
}

/// Children's lines go to our stderr with their name before them, within a budget per second.
void Supervisor::relay_output(Slot* slot, const std::string& process, const std::string& line) {
    constexpr int kLinesPerSecondMax = 200;
    if (slot != nullptr && ++slot->lines_this_second > kLinesPerSecondMax) {
        ++slot->lines_dropped;
        return;
    }
    console_.log_child(process, line);
}

/// Pid and start time of every process, so that the next launcher can clean up after a kill -9.
void Supervisor::save_record() {
    FleetRecord record;
    record.launcher = {
        .name = "launcher", .pid = ::getpid(), .start_ticks = start_ticks_of(::getpid())};
    record.url = facts_.url;
    const auto add_router = [&record](const char* name, const Child& child) {
        record.children.push_back(
            {.name = name, .pid = child.pid(), .start_ticks = child.start_ticks()});
    };
    if (router_.child) add_router("router", *router_.child);
    for (const auto& [pid, router] : other_routers_)
        add_router("another router", *router.child);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (const auto& child = slots_[i].child) {
            record.children.push_back({.name = "replica " + std::to_string(i),
                                       .pid = child->pid(),
                                       .start_ticks = child->start_ticks()});
        }
    }
    if (!write_record(plan_.runtime_dir, record)) {
        console_.log("warn", "launcher", "cannot write state.json in " + plan_.runtime_dir);
    }
}

/// Copies what the views need of the children's output.
void Supervisor::refresh_facts() {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const std::shared_ptr<Child>& child =
            slots_[i].child ? slots_[i].child : slots_[i].last_child;
        facts_.replicas[i].last_lines =
            child ? child->last_lines(kLastLines) : std::vector<std::string>{};
    }
}

}  // namespace deploy

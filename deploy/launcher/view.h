// What the operator sees: plain values made from the fleet's state, once for the board, the status
// command and the metrics alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "deploy/launcher/config.h"
#include "deploy/launcher/fleet.h"
#include "deploy/launcher/nvml.h"
#include "proto/status.h"

namespace deploy {

/// What the supervisor knows of a replica beside the fleet's state.
struct ReplicaFacts {
    std::uint16_t port = 0;
    std::string url;
    std::string device;                          // "CPU-0"
    std::string device_note;                     // "cores 0-1"
    std::string gpu_uuid;                        // empty on the CPU
    std::optional<GpuReading> gpu;               // the last sample
    double load_watts_max = 0;                   // of all loads so far
    std::optional<proto::ReplicaStatus> status;  // its last answer
    std::vector<std::string> last_lines;         // of its output, oldest first
    std::vector<std::string> failure_lines;      // of the process that failed last
};

struct FleetFacts {
    std::string url;  // "http://127.0.0.1:8080"
    std::uint16_t router_port = 0;
    std::uint16_t metrics_port = 0;
    std::string runtime_dir;
    std::string config_digest;  // "sha256:…" of the settings of this start
    std::uint64_t model_bytes = 0;
    TimePoint started_at{};
    std::vector<ReplicaFacts> replicas;
};

/// Everything, for --json and for the tables, which are made from it.
nlohmann::json status_json(const Fleet& fleet, const FleetFacts& facts, const Config& config,
                           TimePoint now);

/// The table of `quadriga status`.
std::string status_table(const nlohmann::json& status);
/// The text of `quadriga why N`; `replica` is one element of status["replicas"].
std::string why_text(const nlohmann::json& replica);

/// The last column: what it waits for, how far it is, why it is not there.
std::string note_of(const Fleet& fleet, int replica, TimePoint now);

/// "02:14", "1:02:14"
std::string clock_text(double seconds);

}  // namespace deploy

// What the launcher knows about the devices: free memory before a load, and what GPUs show. One
// implementation for the CPU here; the one for GPUs is gpu_monitor.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deploy/launcher/nvml.h"

namespace deploy {

struct MemoryReading {
    bool is_enough = false;
    std::uint64_t need_bytes = 0;
    std::uint64_t available_bytes = 0;
    std::string note;  // both in words
};

class DeviceMonitor {
public:
    virtual ~DeviceMonitor() = default;
    /// Whether `replica` may load now. Never cached: it is asked just before each load.
    virtual MemoryReading measure(int replica, std::uint64_t need_bytes) = 0;
    /// Rises each time the host's OOM killer has ended a process; 0 when unknown.
    virtual std::uint64_t oom_kills() = 0;
    /// What the replica's GPU shows now; none on the CPU, and when the card does not answer.
    virtual std::optional<GpuReading> read(int /*replica*/) { return std::nullopt; }
    /// UUIDs of the GPUs that the process computes on, as far as the host tells.
    virtual std::vector<std::string> devices_of(int /*pid*/) { return {}; }
};

/// MemAvailable >= need x 1.1. `proc_folder` is /proc, except in tests.
std::unique_ptr<DeviceMonitor> make_cpu_monitor(std::string proc_folder = "/proc");

/// Deals `cpus` to `replicas` in disjoint, contiguous sets of equal size. With fewer cores than
/// replicas the sets are empty: nobody is pinned, all share, one thread each.
std::vector<std::vector<int>> core_sets(const std::vector<int>& cpus, int replicas);
/// The cores this process may use.
std::vector<int> usable_cpus();

/// "14.1 GiB", "31 MiB"
std::string bytes_text(std::uint64_t bytes);

/// The bytes of a model: one file, or all of "x-00001-of-00005.gguf". Throws StartError
/// (kModelFile) when one of them is not there.
std::uint64_t model_bytes(const std::string& path);

}  // namespace deploy

// What the launcher knows about the devices: free memory before a load. One implementation for the
// CPU; the one for GPUs will load NVML at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

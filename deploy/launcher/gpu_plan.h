// What `up` finds out about GPUs before anything starts: whether the fleet runs on them, on which,
// and how much of its card each replica may plan with.
#pragma once

#include <memory>
#include <string>

#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/supervisor.h"

namespace deploy {

struct DevicePlan {
    std::unique_ptr<DeviceMonitor> monitor;
    std::string note;  // of `backend = auto`: why not GPUs
};

/// Fills the plan's gpus, gpu_memory_mib, waits_for_power and settle time when the backend is cuda,
/// or auto and there is a usable GPU. Throws StartError when cuda is wanted and cannot be had.
DevicePlan plan_devices(LaunchPlan& plan);

/// Compute capabilities that the replica program has kernels for, as it says itself; empty: built
/// without CUDA.
std::vector<std::string> architectures_of(const std::string& replica_program);

/// MiB that each replica on a card may plan with: even shares of what is free, less what a process
/// takes there before it plans. 0 for a card of its own.
std::vector<int> memory_shares_mib(const std::vector<GpuFacts>& gpus,
                                   const std::vector<std::uint64_t>& free_bytes);

}  // namespace deploy

// Memory before a load, and power, temperature and memory at all times, of the cards the replicas
// have. Launcher thread only.
#pragma once

#include <memory>
#include <vector>

#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/nvml.h"

namespace deploy {

struct GpuMonitorOptions {
    /// A card is idle again when it shows no more than before our first load, and this.
    std::uint64_t margin_bytes = std::uint64_t{512} << 20;
    std::string proc_folder = "/proc";
};

/// `gpus`: the card of each replica; a card may have several.
std::unique_ptr<DeviceMonitor> make_gpu_monitor(std::unique_ptr<Nvml> nvml,
                                                std::vector<GpuFacts> gpus,
                                                GpuMonitorOptions options = {});

}  // namespace deploy

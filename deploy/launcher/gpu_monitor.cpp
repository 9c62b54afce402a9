#include "deploy/launcher/gpu_monitor.h"

#include <algorithm>
#include <map>

#include "deploy/launcher/port_holder.h"

namespace deploy {
namespace {

class GpuMonitor final : public DeviceMonitor {
public:
    GpuMonitor(std::unique_ptr<Nvml> nvml, std::vector<GpuFacts> gpus, GpuMonitorOptions options)
        : nvml_(std::move(nvml)),
          gpus_(std::move(gpus)),
          options_(options),
          host_(make_cpu_monitor(options.proc_folder)) {
        for (const GpuFacts& gpu : gpus_) {
            ++replicas_on_[gpu.index];
            if (const auto reading = nvml_->read(gpu.index))
                idle_bytes_[gpu.index] = reading->memory_used_bytes;
        }
    }

    /// Enough is free, and what the last process had has come back. On a card with several replicas
    /// the second cannot be told from the neighbours' memory: there only the first counts.
    MemoryReading measure(int replica, std::uint64_t need_bytes) override {
        const GpuFacts& gpu = gpus_.at(static_cast<std::size_t>(replica));
        MemoryReading memory{.need_bytes = need_bytes};
        const std::optional<GpuReading> reading = nvml_->read(gpu.index);
        if (!reading) {
            memory.note = "GPU " + std::to_string(gpu.index) + " does not answer";
            return memory;
        }
        memory.available_bytes = reading->memory_free_bytes;
        memory.note = "need " + bytes_text(need_bytes) + ", free " +
                      bytes_text(reading->memory_free_bytes) + " of " +
                      bytes_text(reading->memory_total_bytes) + " on GPU " +
                      std::to_string(gpu.index);
        memory.is_enough = reading->memory_free_bytes >= need_bytes;
        if (replicas_on_.at(gpu.index) == 1) {
            std::uint64_t& idle = idle_bytes_[gpu.index];
            idle = std::min(idle, reading->memory_used_bytes);
            if (reading->memory_used_bytes > idle + options_.margin_bytes) {
                memory.is_enough = false;
                memory.note += ", " + bytes_text(reading->memory_used_bytes - idle) +
                               " more in use than when idle";
            }
        }
        if (!memory.is_enough) memory.note += holders(gpu.index);
        return memory;
    }

    std::uint64_t oom_kills() override { return host_->oom_kills(); }

    std::optional<GpuReading> read(int replica) override {
        return nvml_->read(gpus_.at(static_cast<std::size_t>(replica)).index);
    }

    std::vector<std::string> devices_of(int pid) override {
        std::vector<std::string> uuids;
        for (const GpuFacts& gpu : nvml_->gpus()) {
            const std::vector<GpuProcess> processes = nvml_->processes(gpu.index);
            if (std::ranges::find(processes, pid, &GpuProcess::pid) != processes.end())
                uuids.push_back(gpu.uuid);
        }
        return uuids;
    }

private:
    /// "; held by python3 (pid 4711, ...) 14.1 GiB": who is in the way, as far as the host tells.
    std::string holders(int index) const {
        std::string text;
        for (const GpuProcess& process : nvml_->processes(index)) {
            const auto known = describe_process(process.pid);
            text += (text.empty() ? "; held by " : ", ") +
                    (known ? to_text(*known) : "pid " + std::to_string(process.pid));
            if (process.bytes > 0) text += " " + bytes_text(process.bytes);
        }
        return text;
    }

    std::unique_ptr<Nvml> nvml_;
    std::vector<GpuFacts> gpus_;
    GpuMonitorOptions options_;
    std::unique_ptr<DeviceMonitor> host_;
    std::map<int, int> replicas_on_;           // by NVML's index
    std::map<int, std::uint64_t> idle_bytes_;  // the least that was seen in use
};

}  // namespace

std::unique_ptr<DeviceMonitor> make_gpu_monitor(std::unique_ptr<Nvml> nvml,
                                                std::vector<GpuFacts> gpus,
                                                GpuMonitorOptions options) {
    return std::make_unique<GpuMonitor>(std::move(nvml), std::move(gpus), std::move(options));
}

}  // namespace deploy

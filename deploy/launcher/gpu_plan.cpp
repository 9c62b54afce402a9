#include "deploy/launcher/gpu_plan.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "deploy/launcher/gpu_choice.h"
#include "deploy/launcher/gpu_monitor.h"
#include "deploy/launcher/program_output.h"

namespace deploy {
namespace {

/// Context, code and page tables of a process on a card, before it allocates: about 500 MB on an
/// H200. What it plans with is what is free after that, so only its neighbours must be spared it.
constexpr std::uint64_t kContextBytes = std::uint64_t{768} << 20;
/// Without a power reading a card rests this long after its self-test.
constexpr int kBlindSettleMs = 3'000;

/// Empty when the program does not end well.
std::string text_of_architectures(const std::string& replica_program) {
    const auto output = output_of(replica_program, {"--gpu-architectures"});
    return output && output->exit_code == 0 ? output->text : "";
}

Failure driver_failure(std::string why, std::string fix) {
    return {.kind = FailureClass::kDriver,
            .what = "the CUDA backend is not available",
            .why = std::move(why),
            .fix = std::move(fix)};
}

/// The cards and their monitor, or why not.
tl::expected<std::unique_ptr<DeviceMonitor>, Failure> plan_gpus(LaunchPlan& plan) {
    const Config& config = plan.config;
    const std::vector<std::string> architectures = architectures_of(plan.replica_program);
    if (architectures.empty()) {
        return tl::unexpected(driver_failure(plan.replica_program + " is built without CUDA",
                                             "build the preset cuda, or use --backend cpu"));
    }
    auto nvml = open_nvml();
    if (!nvml) {
        return tl::unexpected(driver_failure(nvml.error(), "install one, or use --backend cpu"));
    }
    auto gpus = choose_gpus((*nvml)->gpus(), {.gpus = config.gpus,
                                              .visible = std::getenv("CUDA_VISIBLE_DEVICES"),
                                              .replicas = config.replica_count,
                                              .architectures = architectures});
    if (!gpus) return tl::unexpected(gpus.error());
    std::vector<std::uint64_t> free_bytes;
    bool has_power = true;
    for (const GpuFacts& gpu : *gpus) {
        const auto reading = (*nvml)->read(gpu.index);
        if (!reading) {
            return tl::unexpected(driver_failure(
                "GPU " + std::to_string(gpu.index) + " (" + gpu.name + ") does not answer",
                "look at it with nvidia-smi; it may need a reset"));
        }
        free_bytes.push_back(reading->memory_free_bytes);
        has_power = has_power && reading->watts && reading->watts_cap;
    }
    plan.gpus = *std::move(gpus);
    plan.gpu_memory_mib = memory_shares_mib(plan.gpus, free_bytes);
    plan.waits_for_power = has_power && config.settle_s < 0;
    if (config.settle_s < 0) plan.settle = Duration{kBlindSettleMs};
    if (plan.waits_for_power) {
        plan.settle = Duration{static_cast<Duration::rep>(config.settle_max_s * 1000)};
    }
    return make_gpu_monitor(
        *std::move(nvml), plan.gpus,
        {.margin_bytes = static_cast<std::uint64_t>(config.vram_margin_mib) << 20});
}

}  // namespace

std::vector<std::string> architectures_of(const std::string& replica_program) {
    std::istringstream words(text_of_architectures(replica_program));
    std::vector<std::string> all;
    for (std::string word; words >> word;) {
        // An older program prints its help instead.
        if (word.find_first_not_of("0123456789.") != std::string::npos) return {};
        all.push_back(word);
    }
    return all;
}

std::vector<int> memory_shares_mib(const std::vector<GpuFacts>& gpus,
                                   const std::vector<std::uint64_t>& free_bytes) {
    std::vector<int> shares;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        const auto count =
            static_cast<std::uint64_t>(std::ranges::count(gpus, gpus[i].uuid, &GpuFacts::uuid));
        const std::uint64_t share = free_bytes[i] / count;
        shares.push_back(count == 1
                             ? 0
                             : static_cast<int>(std::max<std::uint64_t>(
                                   share > kContextBytes ? (share - kContextBytes) >> 20 : 0, 1)));
    }
    return shares;
}

DevicePlan plan_devices(LaunchPlan& plan) {
    const std::string& backend = plan.config.backend;
    if (backend != "cpu") {
        auto monitor = plan_gpus(plan);
        if (monitor) return {.monitor = *std::move(monitor), .note = ""};
        // Cards that were asked for by name are no matter of taste.
        if (backend == "cuda" || !plan.config.gpus.empty()) throw StartError(monitor.error());
        return {.monitor = make_cpu_monitor(), .note = monitor.error().why};
    }
    return {.monitor = make_cpu_monitor(), .note = ""};
}

}  // namespace deploy

// `quadriga check-config`: every value, where it comes from and what it comes to here, and all that
// `up` and the router would refuse, without starting anything.
#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

#include "deploy/launcher/child_check.h"
#include "deploy/launcher/command_name.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/gpu_plan.h"
#include "deploy/launcher/owned_keys.h"
#include "deploy/launcher/prepare.h"
#include "deploy/launcher/replica_memory.h"
#include "deploy/launcher/runtime_dir.h"

namespace deploy {
namespace {

/// What the launcher chooses for the router and no key of its own says.
constexpr std::array<std::string_view, 2> kOfLauncher{"admin_socket", "last_good_dir"};

/// Two keys of one name, each with an effect of its own.
constexpr const char* kBothStall =
    "; the router gives the replica no work then, step_stall_s above restarts it";

/// The rest may be right all the same: the model is often given on the command line.
std::string no_model_text() {
    const Failure failure = no_model();
    return "# all this is good, but `up` alone would end with exit " +
           std::to_string(exit_code_of(failure.kind)) + ": " + failure.what + "\n#   why   " +
           failure.why + "\n#   fix   " + failure.fix + "; to check one: " + command_name() +
           " check-config MODEL.gguf\n";
}

std::string quoted_path(const std::string& path) {
    return "\"" + path + "\"";
}

/// What the launcher chooses where the settings leave it open.
Resolved resolve(LaunchPlan& plan) {
    const Config& config = plan.config;
    Resolved here;
    here["replica_program"] = quoted_path(plan.replica_program);
    here["router_program"] = quoted_path(plan.router_program);
    here["runtime_dir"] = quoted_path(plan.runtime_dir);
    const DevicePlan devices = plan_devices(plan);
    if (config.backend == "auto") {
        here["backend"] = plan.is_cuda() ? "cuda" : "cpu: " + devices.note;
    }
    plan_cpus(plan);
    if (plan.is_cuda()) {
        std::string gpus;
        for (const GpuFacts& gpu : plan.gpus)
            gpus += (gpus.empty() ? "" : ", ") + std::to_string(gpu.index) + " " + gpu.name;
        here["gpus"] = gpus;
    } else if (config.threads_per_replica == 0) {
        here["threads_per_replica"] = std::to_string(plan.threads.front());
    }
    if (config.settle_s < 0) {
        here["settle_s"] = plan.waits_for_power ? "until the power has settled"
                           : plan.is_cuda()     ? "3"
                                                : "0";
    }
    constexpr std::string_view kByReplica = "the replica decides at load; its /info tells";
    for (const auto& [key, value] :
         {std::pair{"context", config.context}, std::pair{"sequences", config.sequences},
          std::pair{"kv_tokens", config.kv_tokens}}) {
        if (value == 0) here[key] = kByReplica;
    }
    for (const auto& [key, value] :
         {std::pair{"checkpoint_memory_mib", config.checkpoint_memory_mib},
          std::pair{"queued_tokens_max", config.queued_tokens_max},
          std::pair{"step_time_target_ms", config.step_time_target_ms}}) {
        if (value < 0) here[key] = kByReplica;
    }
    return here;
}

/// What the model's file tells of sizes that no key gives.
void resolve_memory(const ReplicaMemory& memory, Resolved& here) {
    if (here.contains("context")) here["context"] = std::to_string(memory.context);
    if (here.contains("sequences")) here["sequences"] = std::to_string(memory.sequences);
    if (!here.contains("kv_tokens")) return;
    here["kv_tokens"] = std::to_string(memory.kv_tokens_most) + ", or what memory allows, " +
                        std::to_string(memory.kv_tokens_least) + " at least";
}

/// The router's values as it says them, with their origins.
std::string router_text(const LoadedConfig& loaded, const LaunchPlan& plan) {
    std::istringstream lines(check_router(loaded, plan));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
        const std::string key = line.substr(0, line.find(' '));
        const auto given = loaded.origins.find("router." + key);
        const bool is_given = given != loaded.origins.end();
        const bool is_launchers = std::ranges::find(kOfLauncher, key) != kOfLauncher.end();
        if (!is_launchers && owned_by_launcher(ChildProgram::kRouter, key)) continue;  // said above
        std::string entry = "router." + line;
        if (entry.size() < 44) entry.resize(44, ' ');
        text += entry + "  # " +
                (is_given       ? given->second
                 : is_launchers ? "the launcher"
                                : "default") +
                (key == "step_stall_s" ? kBothStall : "") + "\n";
    }
    return text;
}

}  // namespace

int run_check_config(const LoadedConfig& loaded) {
    LaunchPlan plan;
    plan.config = loaded.config;
    check_exposure(loaded.config);
    if (!loaded.config.model.empty()) plan.model_bytes = model_bytes(loaded.config.model);
    plan.replica_program = find_program(loaded.config.replica_program, "quadriga-replica");
    plan.router_program = find_program(loaded.config.router_program, "quadriga-router");
    plan.runtime_dir = choose_runtime_dir(loaded.config.runtime_dir);
    Resolved resolved = resolve(plan);
    make_paths_absolute(plan.config);
    const auto said = check_replica(loaded, plan);
    if (!said) {
        throw StartError({.kind = FailureClass::kInternal,
                          .what = "the replica does not check its settings",
                          .why = plan.replica_program + " does not answer",
                          .fix = "try: " + plan.replica_program + " --help"});
    }
    const auto memory = parse_replica_memory(*said);
    if (memory) resolve_memory(*memory, resolved);
    const std::string text =
        to_text(loaded, resolved) + router_text(loaded, plan) +
        (loaded.config.model.empty() ? no_model_text() : std::string()) +
        (memory ? "# memory of each replica beside the weights: " + to_text(*memory) +
                      "; buffers come on top\n"
                : std::string()) +
        "# digest of all this: " + digest_of(plan.config);
    std::puts(text.c_str());
    return 0;
}

}  // namespace deploy

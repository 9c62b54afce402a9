// `quadriga check-config`: every value, where it comes from and what it comes to here, and all that
// `up` and the router would refuse, without starting anything.
#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

#include "deploy/launcher/commands.h"
#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/gpu_plan.h"
#include "deploy/launcher/prepare.h"
#include "deploy/launcher/program_output.h"
#include "deploy/launcher/runtime_dir.h"

namespace deploy {
namespace {

/// What the launcher decides for the router: its own keys say it already, or it is no setting.
constexpr std::array<std::string_view, 9> kSaidAbove{
    "host",     "port",    "keys_file",     "insecure_no_auth",
    "tls_cert", "tls_key", "drain_grace_s", "drain_deadline_s",
    "layout"};
constexpr std::array<std::string_view, 2> kOfLauncher{"admin_socket", "last_good_dir"};

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

[[noreturn]] void refuse_router_settings(const LoadedConfig& loaded, std::string words) {
    const std::string program = "quadriga-router: ";
    if (words.starts_with(program)) words.erase(0, program.size());
    while (!words.empty() && words.back() == '\n')
        words.pop_back();
    throw StartError({.kind = FailureClass::kConfig,
                      .what = "the router cannot run with these settings",
                      .why = std::move(words),
                      .fix = "correct the table [router]" +
                             (loaded.file.empty() ? std::string() : " in " + loaded.file) +
                             "; all keys: quadriga-router --help"});
}

/// The router's own words about its settings; it reads keys and certificates, too.
std::string router_text(const LoadedConfig& loaded, const LaunchPlan& plan) {
    std::vector<std::string> argv = router_arguments(loaded.config, plan.runtime_dir);
    argv.emplace_back("--check-config");
    const auto output = output_of(plan.router_program, argv);
    if (!output) refuse_router_settings(loaded, plan.router_program + " does not answer");
    if (output->exit_code != 0) refuse_router_settings(loaded, output->text);
    std::istringstream lines(output->text);
    std::string text;
    for (std::string line; std::getline(lines, line);) {
        const std::string key = line.substr(0, line.find(' '));
        const auto given = loaded.origins.find("router." + key);
        const bool is_given = given != loaded.origins.end();
        if (key == "replica") continue;  // they are announced, not set
        if (!is_given && std::ranges::find(kSaidAbove, key) != kSaidAbove.end()) continue;
        const bool is_launchers = std::ranges::find(kOfLauncher, key) != kOfLauncher.end();
        std::string entry = "router." + line;
        if (entry.size() < 44) entry.resize(44, ' ');
        text += entry + "  # " +
                (is_given       ? given->second
                 : is_launchers ? "the launcher"
                                : "default") +
                "\n";
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
    const Resolved resolved = resolve(plan);
    make_paths_absolute(plan.config);
    const std::string text = to_text(loaded, resolved) + router_text(loaded, plan) +
                             "# digest of all this: " + digest_of(plan.config);
    std::puts(text.c_str());
    return 0;
}

}  // namespace deploy

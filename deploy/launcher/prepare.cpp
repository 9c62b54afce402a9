#include "deploy/launcher/prepare.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include <unistd.h>

#include "deploy/launcher/address.h"
#include "deploy/launcher/command_name.h"
#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/runtime_dir.h"
#include "proto/regular_file.h"

namespace deploy {
namespace {

/// A file that a setting names, if it names one.
void check_file(const std::string& setting, const std::string& path) {
    if (path.empty()) return;
    const std::optional<std::string> error = proto::regular_file_error(path);
    if (!error) return;
    throw StartError({.kind = FailureClass::kConfig,
                      .what = setting + ": the file " + path + " cannot be read",
                      .why = *error,
                      .fix = "correct " + setting + ", or the rights of that file"});
}

std::string seconds_text(double seconds) {
    std::ostringstream text;
    text << seconds;
    return text.str();
}

}  // namespace

Failure no_model() {
    return {.kind = FailureClass::kConfig,
            .what = "no model is given",
            .why = "neither an argument, nor QUADRIGA_MODEL, nor the configuration has one",
            .fix = command_name() + " up MODEL.gguf"};
}

void check_exposure(const Config& config) {
    check_file("keys_file", config.keys_file);
    check_file("tls_cert", config.tls_cert);
    check_file("tls_key", config.tls_key);
    if (!config.keys_file.empty()) return;
    if (config.insecure_no_auth || is_loopback(config.host)) return;
    throw StartError({.kind = FailureClass::kConfig,
                      .what = "host " + config.host + " would serve everybody who can reach it",
                      .why = "it is not a loopback address, and there are no API keys",
                      .fix = "give --keys-file FILE, or --host 127.0.0.1, or, if you mean it, "
                             "--insecure-no-auth"});
}

void make_paths_absolute(Config& config) {
    for (std::string* path :
         {&config.model, &config.keys_file, &config.tls_cert, &config.tls_key}) {
        if (!path->empty()) *path = std::filesystem::absolute(*path).string();
    }
}

std::string find_program(const std::string& configured, const std::string& name) {
    std::string path = configured;
    if (path.empty()) {
        std::error_code error;
        const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
        path = (self.parent_path() / name).string();
    }
    if (::access(path.c_str(), X_OK) != 0) {
        throw StartError({.kind = FailureClass::kInternal,
                          .what = "the program " + path + " cannot be run",
                          .why = "it is not there, or not executable",
                          .fix = "build it, or name another with --" +
                                 name.substr(std::string("quadriga-").size()) + "-program"});
    }
    return path;
}

void plan_cpus(LaunchPlan& plan) {
    if (plan.is_cuda()) {  // a GPU's replica has few threads of its own
        plan.cpus.resize(plan.gpus.size());
        plan.threads.resize(plan.gpus.size(), 0);
        return;
    }
    plan.cpus = core_sets(usable_cpus(), plan.config.replica_count);
    for (std::vector<int>& cpus : plan.cpus) {
        const int share = std::max(1, static_cast<int>(cpus.size()));
        const int asked = plan.config.threads_per_replica;
        if (asked > share) cpus.clear();
        plan.threads.push_back(asked > 0 ? asked : share);
    }
}

std::vector<std::string> router_arguments(const Config& config, const std::string& runtime_dir) {
    std::vector<std::string> argv{"--drain-grace-s",    seconds_text(config.drain_grace_s),
                                  "--drain-deadline-s", seconds_text(config.drain_deadline_s),
                                  "--admin-socket",     admin_socket_path(runtime_dir),
                                  "--last-good-dir",    runtime_dir,
                                  "--layout",           config.layout};
    if (!config.keys_file.empty()) argv.insert(argv.end(), {"--keys-file", config.keys_file});
    if (config.insecure_no_auth) argv.emplace_back("--insecure-no-auth");
    if (!config.tls_cert.empty()) {
        argv.insert(argv.end(), {"--tls-cert", config.tls_cert, "--tls-key", config.tls_key});
        // Without keys it looks at Host; the name that its certificate vouches for is its own.
        const std::string name =
            config.keys_file.empty() ? certificate_name(config.tls_cert) : std::string();
        if (!name.empty()) argv.insert(argv.end(), {"--allowed-host", name});
    }
    argv.insert(argv.end(), config.router_settings.begin(), config.router_settings.end());
    argv.insert(argv.end(), config.router_args.begin(), config.router_args.end());
    return argv;
}

std::vector<std::string> replica_arguments(const Config& config, const ReplicaStart& start) {
    // A replica's own deadline lies before our KILL, so that streams end with an error event.
    const int drain_s = static_cast<int>(std::max(0.0, config.term_to_kill_s - 2));
    std::vector<std::string> argv;
    const auto add = [&argv](std::string flag, std::string value) {
        argv.push_back(std::move(flag));
        argv.push_back(std::move(value));
    };
    add("--model", config.model);
    add("--served-name", config.served_name);
    add("--device", start.device);
    add("--replica-index", std::to_string(start.replica));
    add("--instance", start.instance);
    add("--threads", std::to_string(start.threads));
    add("--drain-deadline-s", std::to_string(drain_s));
    if (start.device_memory_mib > 0)
        add("--device-memory-mib", std::to_string(start.device_memory_mib));
    if (config.context > 0) add("--context", std::to_string(config.context));
    if (config.sequences > 0) add("--sequences", std::to_string(config.sequences));
    add("--kv", config.kv);
    add("--kv-tokens", std::to_string(config.kv_tokens));
    add("--prefix-cache", config.prefix_cache);
    add("--drafts", config.drafts);
    add("--draft-tokens", std::to_string(config.draft_tokens));
    add("--draft-batch", std::to_string(config.draft_batch));
    const auto add_chosen = [&add](std::string flag, int value) {
        if (value >= 0) add(std::move(flag), std::to_string(value));
    };
    add_chosen("--checkpoint-memory-mib", config.checkpoint_memory_mib);
    add_chosen("--queued-tokens-max", config.queued_tokens_max);
    add_chosen("--step-time-target-ms", config.step_time_target_ms);
    add("--config-digest", start.config_digest);
    for (const std::string& kernel : config.require_kernels)
        add("--require-kernels", kernel);
    for (const std::string& kernel : config.disable_kernels)
        add("--disable-kernels", kernel);
    argv.insert(argv.end(), config.replica_args.begin(), config.replica_args.end());
    return argv;
}

}  // namespace deploy

// What `up` finds out and refuses before it touches anything; `check-config` does the same.
#pragma once

#include <string>
#include <vector>

#include "deploy/launcher/config.h"
#include "deploy/launcher/supervisor.h"

namespace deploy {

/// What `up` says without a model.
Failure no_model();

/// Whoever can reach a server without keys can use it; the router refuses that too, but only once
/// it runs. Also refuses key and TLS files that cannot be read. Throws StartError.
void check_exposure(const Config& config);

/// Of the model, keys and certificates: children and reloads may stand elsewhere.
void make_paths_absolute(Config& config);

/// `configured`, else `name` beside this executable. Throws StartError when it cannot be run.
std::string find_program(const std::string& configured, const std::string& name);

/// Cores and threads: disjoint sets, unless more threads are asked for than a share has.
void plan_cpus(LaunchPlan& plan);

/// The router's settings on its command line, without descriptors.
std::vector<std::string> router_arguments(const Config& config, const std::string& runtime_dir);

/// One start of a replica, beside the settings.
struct ReplicaStart {
    int replica = 0;
    std::string device;  // "0": the one GPU that its environment shows it; "cpu"
    std::string instance;
    int threads = 0;
    int device_memory_mib = 0;  // 0: all that is free
    std::string config_digest;
};

/// A replica's settings on its command line, without descriptors.
std::vector<std::string> replica_arguments(const Config& config, const ReplicaStart& start);

}  // namespace deploy

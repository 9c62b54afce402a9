// Settings of the launcher. One table (settings.cpp) names each key with its default, range and
// help; flag, environment variable and TOML key are made from it, so none can be missing:
//
//   replica_port_base = 8101      --replica-port-base 8101      QUADRIGA_REPLICA_PORT_BASE=8101
//
// Precedence: flag, environment, file, default. Each effective value knows its origin.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "deploy/launcher/fleet.h"

namespace deploy {

struct Config {
    std::string model;
    std::string served_name;  // default: file name without folder and .gguf
    std::string layout = "4x1";
    std::string backend = "auto";
    std::vector<std::string> gpus;
    std::string host = "127.0.0.1";
    int port = 8080;
    int replica_port_base = 8101;
    int metrics_port = 8099;
    std::string keys_file;          // API keys of the router; empty: no key is needed
    bool insecure_no_auth = false;  // the owner means a host that others reach, without keys
    std::string tls_cert, tls_key;  // PEM files; empty: clients speak without TLS
    /// The table [router] of the file as arguments: "--ping-s=5"; each with its origin.
    std::vector<std::string> router_settings;
    std::string runtime_dir;

    int threads_per_replica = 0;
    int context = 0;
    int sequences = 0;
    // How a replica caches, drafts and queues; -1: it chooses.
    int kv_tokens = 0;
    std::string kv = "f16";
    std::string prefix_cache = "on";
    int checkpoint_memory_mib = -1;
    std::string drafts = "auto";
    int draft_tokens = 3;
    int draft_batch = 4;
    int queued_tokens_max = -1;
    int step_time_target_ms = -1;
    std::vector<std::string> require_kernels;
    std::vector<std::string> disable_kernels;
    int memory_slack_mib = 256;
    int vram_margin_mib = 512;

    double hello_s = 5;
    double load_stall_s = 120;
    double selftest_stall_s = 60;
    double vram_wait_s = 60;
    double settle_s = -1;
    double settle_max_s = 10;
    double settle_power_ratio = 0.6;
    double step_stall_s = 60;
    double silence_s = 60;
    double term_to_kill_s = 10;
    double drain_grace_s = 5;
    double drain_deadline_s = 600;
    double backoff_first_s = 1;
    double backoff_max_s = 60;

    std::string replica_program;
    std::string router_program;
    std::vector<std::string> replica_args;
    std::vector<std::string> router_args;

    // Derived by finish().
    int replica_count = 4;

    FleetLimits fleet_limits() const;
};

struct Setting {
    using Field = std::variant<std::string Config::*, int Config::*, double Config::*,
                               bool Config::*, std::vector<std::string> Config::*>;
    std::string_view key;
    Field field;
    std::string_view help;
    double min = 0;  // of numbers, inclusive
    double max = 0;
    std::span<const std::string_view> words{};  // of strings; empty: any text

    std::string flag() const;                            // "--replica-port-base"
    std::string environment() const;                     // "QUADRIGA_REPLICA_PORT_BASE"
    std::string value_text(const Config& config) const;  // as in TOML
};

std::span<const Setting> settings();
const Setting* find_setting(std::string_view key);

/// Where each effective value came from: "default", "file quadriga.toml:3",
/// "environment QUADRIGA_PORT" or "flag --port".
using Origins = std::map<std::string, std::string, std::less<>>;

struct ConfigSources {
    std::map<std::string, std::string, std::less<>> flags;        // key -> text
    std::map<std::string, std::string, std::less<>> environment;  // QUADRIGA_... -> text
    std::string file;  // --config; empty: the default places, where a missing file is fine
    std::vector<std::string> default_files;
};

struct LoadedConfig {
    Config config;
    Origins origins;
    std::string file;       // the file read, empty if none
    ConfigSources sources;  // to read it again
};

/// Merges all sources and checks every value. Throws StartError (kConfig) with the key, what is
/// wrong with it and, for an unknown one, what was probably meant.
LoadedConfig load_config(const ConfigSources& sources);

/// The environment's QUADRIGA_ variables and the default places of the file.
ConfigSources sources_of_environment();

/// What a key's value comes to on this machine, where the value leaves that open.
using Resolved = std::map<std::string, std::string, std::less<>>;
/// One line per key: value, origin and what it comes to.
std::string to_text(const LoadedConfig& loaded, const Resolved& resolved = {});

/// "sha256:..." over all values but those that only say where files of this run are.
std::string digest_of(const Config& config);

/// The nearest of `candidates` if it is near enough to be a typing error, else "".
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

/// How clients reach the router: "http://" or "https://".
std::string scheme_of(const Config& config);

/// Whether only this machine reaches a server on `host`.
bool is_loopback(std::string_view host);

/// "4x1" -> 4 replicas of one device each. Throws StartError.
int replicas_of_layout(std::string_view layout);

}  // namespace deploy

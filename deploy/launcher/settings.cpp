// The table of all settings and how their values are written.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "deploy/launcher/config.h"

namespace deploy {
namespace {

constexpr double kPortMax = 65535;
constexpr double kDayS = 86400;
constexpr double kIntMax = 2147483647;

constexpr std::array<std::string_view, 3> kBackends = {"auto", "cpu", "cuda"};
constexpr std::array<std::string_view, 2> kOnOff = {"on", "off"};
constexpr std::array<std::string_view, 2> kKvTypes = {"f16", "f32"};
constexpr std::array<std::string_view, 3> kDrafts = {"auto", "always", "off"};

// clang-format off
constexpr auto kSettings = std::to_array<Setting>({
    {"model", &Config::model, "GGUF file to serve"},
    {"served_name", &Config::served_name, "Model name for clients; default: the file's name without .gguf"},
    {"layout", &Config::layout, "Replicas x devices each, for example 4x1"},
    {"backend", &Config::backend, "auto (GPUs where there are usable ones), cpu or cuda", 0, 0, kBackends},
    {"gpus", &Config::gpus, "GPU of each replica: index, UUID or PCI address; one may stand there several times; default: the first ones"},
    {"host", &Config::host, "Address of the router"},
    {"port", &Config::port, "Port of the router; 0 takes a free one", 0, kPortMax},
    {"replica_port_base", &Config::replica_port_base, "Port of replica 0, the others follow; 0 takes free ones", 0, kPortMax},
    {"metrics_port", &Config::metrics_port, "Port of the launcher's own /metrics; 0 takes a free one", 0, kPortMax},
    {"keys_file", &Config::keys_file, "TOML file of API keys (name, sha256, ...), read again by 'quadriga reload'; without it no key is needed"},
    {"insecure_no_auth", &Config::insecure_no_auth, "Serve others than this machine without keys"},
    {"tls_cert", &Config::tls_cert, "PEM certificate of the router, then its issuers, read again by 'quadriga reload'; with tls_key clients speak TLS"},
    {"tls_key", &Config::tls_key, "PEM key of tls_cert, without a passphrase"},
    {"runtime_dir", &Config::runtime_dir, "Folder of sockets, lock and state; default: $RUNTIME_DIRECTORY, /run/quadriga or $XDG_RUNTIME_DIR/quadriga"},
    {"threads_per_replica", &Config::threads_per_replica, "Compute threads of a CPU replica; 0: its share of the cores", 0, 1024},
    {"context", &Config::context, "Longest sequence in tokens, at least 16; 0: the replica chooses", 0, 16777216},
    {"sequences", &Config::sequences, "Sequences at once per replica; 0: the replica chooses", 0, 1024},
    {"kv_tokens", &Config::kv_tokens, "KV cache of a replica in tokens, all its sequences together; 0: a whole context for each", 0, kIntMax},
    {"kv", &Config::kv, "Type of the KV cache: f16, or f32 at twice the memory", 0, 0, kKvTypes},
    {"prefix_cache", &Config::prefix_cache, "Whether prompts with equal beginnings share them: on or off", 0, 0, kOnOff},
    {"checkpoint_memory_mib", &Config::checkpoint_memory_mib, "Host memory of a replica for saved states of recurrent models; -1: an eighth of what is free, at most 2048", -1, 1048576},
    {"drafts", &Config::drafts, "Speculation: auto (while it gains), always or off", 0, 0, kDrafts},
    {"draft_tokens", &Config::draft_tokens, "Most drafts in a row", 1, 8},
    {"draft_batch", &Config::draft_batch, "No drafts while more sequences than this decode", 1, 1024},
    {"queued_tokens_max", &Config::queued_tokens_max, "Prompt tokens that may wait in a replica; 0: no bound, -1: half a context for each waiting place", -1, kIntMax},
    {"step_time_target_ms", &Config::step_time_target_ms, "Prompt chunks shrink to keep steps this short while others decode; 0: never, -1: 100, on the CPU 200", -1, 60000},
    {"require_kernels", &Config::require_kernels, "Custom kernels that must be armed, \"*\" for all"},
    {"disable_kernels", &Config::disable_kernels, "Custom kernels whose fallbacks serve instead"},
    {"memory_slack_mib", &Config::memory_slack_mib, "Memory a replica needs beside its weights, at least", 0, 1048576},
    {"vram_margin_mib", &Config::vram_margin_mib, "A GPU is free again when it uses at most this much more than idle", 0, 1048576},
    {"hello_s", &Config::hello_s, "First word of a replica after its start", 0.01, kDayS},
    {"load_stall_s", &Config::load_stall_s, "Loading without progress; there is no total limit", 0.01, kDayS},
    {"selftest_stall_s", &Config::selftest_stall_s, "Self-test without a step", 0.01, kDayS},
    {"vram_wait_s", &Config::vram_wait_s, "Waiting for free memory before a load", 0.01, kDayS},
    {"settle_s", &Config::settle_s, "Rest between self-test and READY; -1: none on the CPU, on a GPU until its power has settled, 3 where that cannot be read", -1, 600},
    {"settle_max_s", &Config::settle_max_s, "Longest wait for the power to settle", 0, 600},
    {"settle_power_ratio", &Config::settle_power_ratio, "Power has settled at this share of the card's cap, in 3 samples", 0.01, 1},
    {"step_stall_s", &Config::step_stall_s, "Work without a step: wedged", 0.01, kDayS},
    {"silence_s", &Config::silence_s, "No answer of the status page: wedged", 0.01, kDayS},
    {"term_to_kill_s", &Config::term_to_kill_s, "From TERM to KILL", 0.01, 600},
    {"drain_grace_s", &Config::drain_grace_s, "Still accepting after TERM, while /ready says no; after `quadriga down` only while a request runs", 0, 600},
    {"drain_deadline_s", &Config::drain_deadline_s, "Running requests may take this long after TERM", 0, kDayS},
    {"backoff_first_s", &Config::backoff_first_s, "First pause after a failure; doubles each time", 0.01, kDayS},
    {"backoff_max_s", &Config::backoff_max_s, "Longest pause after a failure", 0.01, kDayS},
    {"replica_program", &Config::replica_program, "Default: quadriga-replica beside this program"},
    {"router_program", &Config::router_program, "Default: quadriga-router beside this program"},
    {"replica_args", &Config::replica_args, "More arguments for every replica"},
    {"router_args", &Config::router_args, "More arguments for the router"},
});
// clang-format on

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

std::string number_text(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%g", value);
    return text.data();
}

Duration from_seconds(double seconds) {
    return Duration{static_cast<Duration::rep>(seconds * 1000.0)};
}

}  // namespace

std::span<const Setting> settings() {
    return kSettings;
}

const Setting* find_setting(std::string_view key) {
    const auto* found = std::ranges::find(kSettings, key, &Setting::key);
    return found == kSettings.end() ? nullptr : found;
}

std::string Setting::flag() const {
    std::string text = "--" + std::string(key);
    std::ranges::replace(text, '_', '-');
    return text;
}

std::string Setting::environment() const {
    std::string text = "QUADRIGA_" + std::string(key);
    for (char& c : text)
        c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
}

std::string Setting::value_text(const Config& config) const {
    if (const auto* text = std::get_if<std::string Config::*>(&field)) {
        return quoted(config.*(*text));
    }
    if (const auto* whole = std::get_if<int Config::*>(&field)) {
        return std::to_string(config.*(*whole));
    }
    if (const auto* real = std::get_if<double Config::*>(&field)) {
        return number_text(config.*(*real));
    }
    if (const auto* yes = std::get_if<bool Config::*>(&field)) {
        return config.*(*yes) ? "true" : "false";
    }
    std::string list = "[";
    for (const std::string& item : config.*std::get<std::vector<std::string> Config::*>(field)) {
        list += (list.size() > 1 ? ", " : "") + quoted(item);
    }
    return list + "]";
}

FleetLimits Config::fleet_limits() const {
    FleetLimits limits;
    limits.hello = from_seconds(hello_s);
    limits.load_stall = from_seconds(load_stall_s);
    limits.selftest_stall = from_seconds(selftest_stall_s);
    limits.memory_wait = from_seconds(vram_wait_s);
    limits.memory_samples_good = 1;  // MemAvailable does not linger as device memory does
    limits.settle = from_seconds(settle_s < 0 ? 0 : settle_s);  // `up` knows better about GPUs
    limits.step_stall = from_seconds(step_stall_s);
    limits.silence = from_seconds(silence_s);
    limits.term_to_kill = from_seconds(term_to_kill_s);
    limits.drain_grace = from_seconds(drain_grace_s);
    limits.drain_deadline = from_seconds(drain_deadline_s);
    limits.backoff_first = from_seconds(backoff_first_s);
    limits.backoff_max = from_seconds(backoff_max_s);
    return limits;
}

}  // namespace deploy

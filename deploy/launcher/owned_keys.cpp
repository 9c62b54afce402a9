#include "deploy/launcher/owned_keys.h"

#include <algorithm>
#include <array>
#include <span>

namespace deploy {
namespace {

constexpr std::string_view kHanded = "the launcher hands the listening socket to it";
constexpr std::string_view kDescriptor = "the launcher hands down the descriptor";
constexpr std::string_view kEnds = "with it the program answers and ends";
constexpr std::string_view kCheck = "to check everything: quadriga check-config";
constexpr std::string_view kTakeOut = "take it out";

struct Row {
    std::string_view key;
    std::string_view setting = {};  // of the launcher that decides; then the rest may be empty
    std::string_view why = {};
    std::string_view fix = kTakeOut;
};

constexpr std::array kRouter{
    Row{"host", "host"},
    Row{"port", "port"},
    Row{"keys_file", "keys_file"},
    Row{"insecure_no_auth", "insecure_no_auth"},
    Row{"tls_cert", "tls_cert"},
    Row{"tls_key", "tls_key"},
    Row{"drain_grace_s", "drain_grace_s"},
    Row{"drain_grace", "drain_grace_s"},
    Row{"drain_deadline_s", "drain_deadline_s"},
    Row{"drain_deadline", "drain_deadline_s"},
    Row{"layout", "layout"},
    Row{"listen", {}, kHanded, "its address is the launcher's host and port"},
    Row{"replica",
        {},
        "the launcher announces its replicas to the router, by number",
        "take it out; another host's replica is added while it runs: POST /admin/replicas"},
    Row{"replicas",
        {},
        "the launcher announces its replicas to the router, by number",
        "their number is the launcher's layout; another host's replica is added while it runs: "
        "POST /admin/replicas"},
    Row{"admin_socket",
        {},
        "it is router-admin.sock in the launcher's runtime folder",
        "choose the folder with runtime_dir; over TCP: admin_listen"},
    Row{"last_good_dir",
        {},
        "it is the launcher's runtime folder",
        "choose the folder with runtime_dir"},
    Row{"announce_fd", {}, kDescriptor},
    Row{"admin_socket_fd", {}, kDescriptor},
    Row{"admin_listen_fd", {}, kDescriptor},
    Row{"death_fd", {}, kDescriptor},
    Row{"internal_key_fd", {}, kDescriptor},
    Row{"internal_key_file", {}, "the launcher makes a key for each start and hands it down"},
    Row{"check_config", {}, kEnds, kCheck},
    Row{"help", {}, kEnds},
    Row{"version", {}, kEnds},
};

constexpr std::array kReplica{
    Row{"model", "model"},
    Row{"served_name", "served_name"},
    Row{"device", "gpus"},
    Row{"threads", "threads_per_replica"},
    Row{"context", "context"},
    Row{"sequences", "sequences"},
    Row{"kv", "kv"},
    Row{"kv_tokens", "kv_tokens"},
    Row{"prefix_cache", "prefix_cache"},
    Row{"checkpoint_memory_mib", "checkpoint_memory_mib"},
    Row{"drafts", "drafts"},
    Row{"draft_tokens", "draft_tokens"},
    Row{"draft_batch", "draft_batch"},
    Row{"queued_tokens_max", "queued_tokens_max"},
    Row{"step_time_target_ms", "step_time_target_ms"},
    Row{"require_kernels", "require_kernels"},
    Row{"disable_kernels", "disable_kernels"},
    Row{"port", "replica_port_base"},
    Row{"host", {}, kHanded, "replicas listen on 127.0.0.1; clients come through the router"},
    Row{"device_memory_mib", {}, "the launcher shares a card's memory among its replicas"},
    Row{"replica_index", {}, "the launcher numbers its replicas"},
    Row{"instance", {}, "the launcher names each start of a replica"},
    Row{"config_digest", {}, "the launcher computes it"},
    Row{"drain_deadline_s", "term_to_kill_s"},
    Row{"ready_fd", {}, kDescriptor},
    Row{"death_fd", {}, kDescriptor},
    Row{"internal_key_fd", {}, kDescriptor},
    Row{"check_config", {}, kEnds, kCheck},
    Row{"gpu_architectures", {}, kEnds},
    Row{"help", {}, kEnds},
    Row{"version", {}, kEnds},
};

}  // namespace

std::optional<OwnedKey> owned_by_launcher(ChildProgram program, std::string_view key) {
    const std::span<const Row> rows = program == ChildProgram::kRouter
                                          ? std::span<const Row>(kRouter)
                                          : std::span<const Row>(kReplica);
    const auto row = std::ranges::find(rows, key, &Row::key);
    if (row == rows.end()) return std::nullopt;
    if (row->setting.empty()) return OwnedKey{std::string(row->why), std::string(row->fix)};
    const std::string setting(row->setting);
    return OwnedKey{"the launcher's own key " + setting + " decides it",
                    "set " + setting + " at the top of the file, before any table, or give " +
                        flag_of_key(setting)};
}

std::string key_of_argument(std::string_view argument) {
    if (argument == "-h") return "help";
    if (!argument.starts_with("--")) return "";
    std::string key(argument.substr(2, argument.find('=') - 2));
    if (argument.find('=') == std::string_view::npos) key = argument.substr(2);
    std::ranges::replace(key, '-', '_');
    return key;
}

std::string flag_of_key(std::string_view key) {
    std::string flag = "--" + std::string(key);
    std::ranges::replace(flag, '_', '-');
    return flag;
}

}  // namespace deploy

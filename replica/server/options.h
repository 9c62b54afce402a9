// The command line of quadriga-replica, as values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace replica::server {

/// More than anything sensible; bounds what a flag can ask for.
inline constexpr int kSequencesMax = 1024;
inline constexpr int kThreadsMax = 1024;
inline constexpr int kContextMax = 1 << 24;

enum class KvType { kF16, kF32 };

struct ServerOptions {
    std::string model_path;
    std::string device = "cpu";  // "cpu" or a GPU index
    std::string host = "127.0.0.1";
    std::uint16_t port = 8101;  // 0: any free one; unused with an inherited socket
    int threads = 0;            // 0: the processors this process may use
    std::vector<int> cores;     // pin the threads here
    int context = 0;            // tokens of one sequence; 0: the model's, bounded
    int sequences = 4;          // running at once
    /// Small enough on a CPU that a prefill cancelled midway frees its places soon (24 ms after the
    /// reset with the demo model on one thread, where the whole prefill takes 0.49 s), large enough
    /// that a weight is decoded once for many rows.
    int step_token_budget = 64;
    KvType kv = KvType::kF16;
    std::string served_name;  // default: the file's name without its ending
    std::vector<std::string> aliases;
    int replica_index = 0;
    std::vector<std::string> require_kernels;  // exact names; "*" is all that the plan wants
    std::string instance;                      // 16 hex digits; default: random
    std::string config_digest;                 // "sha256:…" of the launcher's snapshot
    std::string pre_override;                  // pre-tokeniser, whatever the file says
    std::string tool_format;                   // overrides what the template shows
    std::string reasoning_field = "reasoning_content";
    double temperature = 1.0;  // where a request names none
    std::chrono::seconds drain_deadline{600};

    std::optional<int> internal_key_fd, ready_fd, death_fd;

    /// Waiting entries: four per running sequence, as the API document says.
    int waiting_max() const { return 4 * sequences; }
};

/// What a command line asks for: run with options, or print `text` and end with `exit_code`
/// (--help, --version, a usage error).
struct CommandLine {
    std::optional<ServerOptions> options;
    std::string text;
    int exit_code = 0;
};
CommandLine parse_command_line(int argc, const char* const* argv);

/// "0.1.0", with what the build adds.
std::string build_version();

}  // namespace replica::server

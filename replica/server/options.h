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
inline constexpr int kGraphStepsMax = 192;  // of the 256 graphs that a backend keeps
inline constexpr int kContextMax = 1 << 24;
/// The start-up test asks a question of some ten tokens.
inline constexpr int kContextMin = 16;
inline constexpr std::int64_t kTokensMax = std::int64_t{1} << 40;

enum class KvType { kF16, kF32 };
/// kAuto: as long as measured gain says so. kAlways is for tests and benchmarks.
enum class DraftMode { kAuto, kAlways, kOff };

struct ServerOptions {
    std::string model_path;
    std::string device = "cpu";  // "cpu" or a GPU index
    std::string host = "127.0.0.1";
    bool insecure_no_auth = false;  // others than this machine are served without a key
    std::uint16_t port = 8101;      // 0: any free one; unused with an inherited socket
    int threads = 0;                // 0: the processors this process may use
    std::vector<int> cores;         // pin the threads here
    int context = 0;                // tokens of one sequence; 0: the model's, bounded
    int sequences = 4;              // running at once; on a GPU more by default
    /// Rows of a step at most. Default on a CPU: few enough that a prefill cancelled midway frees
    /// its places soon (24 ms after the reset with the demo model on one thread, where the whole
    /// prefill takes 0.49 s), enough that a weight is decoded once for many rows. On a GPU: enough
    /// that products run at full rate (kernels/README.md); a 27B takes 0.35 s for such a step, and
    /// less by step_time_target while others decode.
    std::optional<int> step_token_budget;
    KvType kv = KvType::kF16;
    std::int64_t kv_tokens = 0;  // of all sequences together; 0: a whole context for each
    /// While sequences decode, prompt chunks shrink so that a step takes about this long; 0: never.
    /// A reader takes in 5 to 10 tokens a second: at 100 ms nobody sees that a neighbour's prompt
    /// is computed. On a CPU chunks that short would decode every weight for a handful of rows, so
    /// there it is twice that.
    std::optional<std::chrono::milliseconds> step_time_target;

    bool has_prefix_cache = true;
    /// Saved recurrent states in host memory. Default: min(2 GiB, 1/8 of what is free at start).
    std::optional<std::int64_t> checkpoint_memory_mib;
    DraftMode drafts = DraftMode::kAuto;
    int draft_tokens = 3;   // in a row, where the model can draft
    int draft_batch = 4;    // no drafts while more sequences decode
    int graph_steps = 128;  // made ready before the first request, on a GPU

    /// Prompt tokens in the queue. Default: half a context for each waiting place; 0: no bound.
    std::optional<std::int64_t> queued_tokens_max;

    std::string served_name;  // default: the file's name without its ending
    std::vector<std::string> aliases;
    int replica_index = 0;
    std::vector<std::string> require_kernels;  // exact names; "*" is all that the plan wants
    std::vector<std::string> disable_kernels;  // their fallbacks serve in their place
    std::string cuda_library_dir;              // looked into before the default path
    std::int64_t device_memory_mib = 0;        // of a GPU, to plan with; 0 = all that is free
    std::string instance;                      // 16 hex digits; default: random
    std::string config_digest;                 // "sha256:…" of the launcher's snapshot
    std::string pre_override;                  // pre-tokeniser, whatever the file says
    std::string tool_format;                   // overrides what the template shows
    std::string reasoning_field = "reasoning_content";
    double temperature = 1.0;  // where a request names none
    std::chrono::seconds drain_deadline{600};

    std::optional<int> internal_key_fd, ready_fd, death_fd;
    bool is_check = false;  // of options and model alone; nothing is loaded

    /// Waiting entries: four per running sequence, as the API document says.
    int waiting_max() const { return 4 * sequences; }
    bool is_cpu() const { return device == "cpu"; }
    int step_token_budget_or_default() const;
    std::chrono::milliseconds step_time_target_or_default() const;
    std::uint64_t checkpoint_bytes_max(std::uint64_t free_bytes) const;
    std::int64_t queued_tokens_bound(std::int64_t max_model_len) const;
};

/// What a command line asks for: run with options, or print `text` and end with `exit_code`
/// (--help, --version, a usage error).
struct CommandLine {
    std::optional<ServerOptions> options;
    std::string text;
    int exit_code = 0;
};
CommandLine parse_command_line(int argc, const char* const* argv);

/// "9.0": compute capabilities of the GPUs this build has kernels for; empty without CUDA.
std::string gpu_architectures();

/// "0.1.0", with what the build adds.
std::string build_version();

}  // namespace replica::server

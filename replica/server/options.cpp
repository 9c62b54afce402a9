#include "replica/server/options.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include <CLI/CLI.hpp>

#include "replica/engine/step_runner.h"

namespace replica::server {
namespace {

constexpr int kExitUsage = 2;
/// A GPU reads its weights once for all sequences of a step.
constexpr int kGpuSequences = 16;

/// An option with a word for each value; the values behind the words are nobody's business.
template <class Value>
void add_words(CLI::App& app, const std::string& name, Value& target,
               const std::map<std::string, Value>& values, const std::string& help) {
    std::vector<std::string> words;
    for (const auto& [word, value] : values)
        words.push_back(word);
    app.add_option_function<std::string>(
           name, [&target, values](const std::string& word) { target = values.at(word); }, help)
        ->check(CLI::IsMember(words));
}

/// A number that is one: "nan" lies in no range and outside none.
const CLI::Validator kFinite(
    [](std::string& text) {
        double value = 0;
        const bool is_number = CLI::detail::lexical_cast(text, value) && std::isfinite(value);
        return is_number ? std::string() : text + " is no finite number";
    },
    "FINITE");

/// 0, or enough for the start-up test and an answer.
const CLI::Validator kContext(
    [](std::string& text) {
        int value = 0;
        const bool is_number = CLI::detail::lexical_cast(text, value);
        const bool is_fine =
            is_number && (value == 0 || (value >= kContextMin && value <= kContextMax));
        return is_fine ? std::string()
                       : text + " is neither 0 nor from " + std::to_string(kContextMin) + " to " +
                             std::to_string(kContextMax);
    },
    "INT");

/// What the engine keeps, drafts and queues.
void add_engine_options(CLI::App& app, ServerOptions& options) {
    app.add_option("--kv-tokens", options.kv_tokens,
                   "tokens of the KV cache, all sequences together; 0 = a whole context for each")
        ->check(CLI::Range(std::int64_t{0}, kTokensMax));
    app.add_option_function<int>(
           "--step-time-target-ms",
           [&options](int ms) { options.step_time_target = std::chrono::milliseconds(ms); },
           "prompt chunks shrink to keep steps this short while others decode; 0 = never "
           "(default 100, on the CPU 200)")
        ->check(CLI::Range(0, 60000));
    app.add_option_function<std::string>(
           "--prefix-cache",
           [&options](const std::string& word) { options.has_prefix_cache = word == "on"; },
           "whether prompts with equal beginnings share them: on or off (default on)")
        ->check(CLI::IsMember({"on", "off"}));
    app.add_option(
           "--checkpoint-memory-mib", options.checkpoint_memory_mib,
           "host memory for saved states of recurrent models; default: an eighth of what is "
           "free, at most 2048; 0 = none")
        ->check(CLI::Range(std::int64_t{0}, kTokensMax >> 20));
    add_words(
        app, "--drafts", options.drafts,
        {{"auto", DraftMode::kAuto}, {"always", DraftMode::kAlways}, {"off", DraftMode::kOff}},
        "speculation: auto (while it gains), always or off (default auto)");
    app.add_option("--draft-tokens", options.draft_tokens, "most drafts in a row")
        ->check(CLI::Range(1, kDraftTokensMax))
        ->capture_default_str();
    app.add_option("--draft-batch", options.draft_batch,
                   "no drafts while more sequences than this decode")
        ->check(CLI::Range(1, kSequencesMax))
        ->capture_default_str();
    app.add_option("--graph-steps", options.graph_steps,
                   "on a GPU, step sizes captured as graphs before the first request, at most; "
                   "0 = each when it comes")
        ->check(CLI::Range(0, kGraphStepsMax))
        ->capture_default_str();
    app.add_option("--queued-tokens-max", options.queued_tokens_max,
                   "prompt tokens that may wait; default: half a context for each waiting place; "
                   "0 = no bound")
        ->check(CLI::Range(std::int64_t{0}, kTokensMax));
}

void add_options(CLI::App& app, ServerOptions& options) {
    app.add_option("--model", options.model_path, "GGUF file (the first part of a split one)")
        ->required();
    app.add_option("--device", options.device, "cpu, or the number of a GPU")
        ->capture_default_str();
    app.add_option("--host", options.host, "address to listen on")->capture_default_str();
    app.add_option("--port", options.port, "port to listen on; 0 takes any free one")
        ->capture_default_str();
    app.add_flag("--insecure-no-auth", options.insecure_no_auth,
                 "serve others than this machine without a key");
    app.add_option("--threads", options.threads, "threads of the CPU backend; 0 = all processors")
        ->check(CLI::Range(0, kThreadsMax));
    app.add_option("--cores", options.cores, "processors to pin the threads to: 0,1,2")
        ->delimiter(',');
    app.add_option("--context", options.context, "tokens of one sequence; 0 = the model's")
        ->check(kContext);
    app.add_option("--sequences", options.sequences,
                   "sequences running at once (default 4, on a GPU 16)")
        ->check(CLI::Range(1, kSequencesMax));
    app.add_option("--step-token-budget", options.step_token_budget,
                   "tokens of one step (default 64 on a CPU, 4096 on a GPU)")
        ->check(CLI::Range(1, 65536));
    add_words(app, "--kv", options.kv, {{"f16", KvType::kF16}, {"f32", KvType::kF32}},
              "type of the KV cache: f16 or f32 (default f16)");
    app.add_option("--served-name", options.served_name, "model id in the API");
    app.add_option("--alias", options.aliases, "another id for the model; may be repeated")
        ->delimiter(',');
    app.add_option("--replica-index", options.replica_index, "number in status and metrics")
        ->check(CLI::Range(0, 4096));
    app.add_option("--require-kernels", options.require_kernels,
                   "kernels that must be armed: names, or * for all that the plan wants")
        ->delimiter(',');
    app.add_option("--disable-kernels", options.disable_kernels,
                   "kernels whose fallbacks serve instead: names as GET /info has them, such as "
                   "matmul_mma or matmul_mma/Q6_K")
        ->delimiter(',');
    app.add_option("--device-memory-mib", options.device_memory_mib,
                   "plan with this much of a GPU's free memory; 0 = all of it")
        ->check(CLI::Range(std::int64_t{0}, kTokensMax >> 20));
    app.add_option("--cuda-lib-dir", options.cuda_library_dir,
                   "where libcuda.so.1 and libcublasLt.so.13 are looked for first");
    app.add_option("--instance", options.instance, "16 hex digits naming this process");
    app.add_option("--config-digest", options.config_digest, "digest of the launcher's snapshot");
    app.add_option("--pre-tokenizer", options.pre_override, "use this one, whatever the file says");
    app.add_option("--tool-format", options.tool_format,
                   "qwen_xml, hermes, llama3_json or none; default: what the template shows");
    app.add_option("--reasoning-field", options.reasoning_field, "where reasoning goes")
        ->check(CLI::IsMember({"reasoning_content", "reasoning", "both", "inline"}))
        ->capture_default_str();
    app.add_option("--temperature", options.temperature, "where a request names none")
        ->check(kFinite)
        ->check(CLI::Range(0.0, 2.0))
        ->capture_default_str();
    app.add_option_function<int>(
           "--drain-deadline-s",
           [&options](int seconds) { options.drain_deadline = std::chrono::seconds(seconds); },
           "running requests may go on this long after SIGTERM (default 600)")
        ->check(CLI::Range(0, 86400));
    app.add_option("--internal-key-fd", options.internal_key_fd,
                   "descriptor with the internal key");
    app.add_option("--ready-fd", options.ready_fd, "descriptor for progress, one JSON line each");
    app.add_option("--death-fd", options.death_fd, "descriptor whose end means: exit now");
    app.add_flag("--check-config", options.is_check,
                 "check the options and the head of the model's file (\"\": none), and end");
}

bool is_instance_id(const std::string& text) {
    return text.size() == 16 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
               return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
           });
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
    ServerOptions options;
    CLI::App app{"An OpenAI-compatible server around one engine on one device.",
                 "quadriga-replica"};
    app.set_version_flag("--version", build_version());
    app.add_flag_callback(
        "--gpu-architectures", [] { throw CLI::CallForVersion(gpu_architectures(), 0); },
        "print the compute capabilities this build has kernels for, none without CUDA");
    add_options(app, options);
    add_engine_options(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        std::ostringstream out, err;
        const bool is_asked_for = app.exit(error, out, err) == 0;
        return {std::nullopt, out.str() + err.str(), is_asked_for ? 0 : kExitUsage};
    }
    if (!options.is_cpu() && app.count("--sequences") == 0) options.sequences = kGpuSequences;
    if (!options.instance.empty() && !is_instance_id(options.instance)) {
        return {std::nullopt, "--instance: 16 lower-case hex digits are wanted\n", kExitUsage};
    }
    if (options.served_name.empty()) {
        options.served_name = std::filesystem::path(options.model_path).stem().string();
    }
    return {std::move(options), {}, 0};
}

int ServerOptions::step_token_budget_or_default() const {
    constexpr int kGpu = 4096, kCpu = 64;
    return step_token_budget.value_or(is_cpu() ? kCpu : kGpu);
}

std::chrono::milliseconds ServerOptions::step_time_target_or_default() const {
    constexpr std::chrono::milliseconds kGpu{100}, kCpu{200};
    return step_time_target.value_or(is_cpu() ? kCpu : kGpu);
}

std::uint64_t ServerOptions::checkpoint_bytes_max(std::uint64_t free_bytes) const {
    constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U, kDefaultMax = 2048 * kMiB;
    if (checkpoint_memory_mib) return static_cast<std::uint64_t>(*checkpoint_memory_mib) * kMiB;
    return std::min(kDefaultMax, free_bytes / 8);
}

std::int64_t ServerOptions::queued_tokens_bound(std::int64_t max_model_len) const {
    return queued_tokens_max.value_or(waiting_max() * max_model_len / 2);
}

std::string build_version() {
    return "0.1.0";
}

}  // namespace replica::server

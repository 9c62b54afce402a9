#include "replica/server/check_config.h"

#include <cstdio>

#include "proto/json.h"
#include "replica/server/log.h"
#include "replica/server/model_loader.h"

namespace replica::server {

namespace {

/// The pages are one whole context at least, and a whole one for each sequence at most, unless
/// their number is given.
void say_memory(const ServerOptions& options, const ModelHead& head) {
    const std::optional<MemoryPlan> plan = plan_without_limit(options, head);
    if (!plan || plan->limits.blocks_total == 0) return;
    const RunnerLimits& limits = plan->limits;
    const auto blocks = static_cast<std::uint64_t>(limits.blocks_total);
    const auto least = static_cast<std::uint64_t>(
        options.kv_tokens > 0 ? limits.blocks_total : limits.step.blocks_per_seq);
    const proto::Json memory{
        {"memory",
         {{"context", limits.max_model_len},
          {"sequences", limits.step.seqs},
          {"kv_tokens_least", least * static_cast<std::uint64_t>(limits.block_tokens)},
          {"kv_tokens_most", blocks * static_cast<std::uint64_t>(limits.block_tokens)},
          {"kv_bytes_least", plan->kv_bytes / blocks * least},
          {"kv_bytes_most", plan->kv_bytes},
          {"state_bytes", plan->state_bytes}}}};
    std::puts(proto::json_text(memory).c_str());
}

}  // namespace

int run_check(const ServerOptions& options) {
    if (options.model_path.empty()) return static_cast<int>(ExitCode::kOk);
    const auto head = read_model_head(options);
    if (head) {
        say_memory(options, *head);
        return static_cast<int>(ExitCode::kOk);
    }
    const StartFailure& failure = head.error();
    std::string text = failure.fatal.id + " " + failure.fatal.what + "\n";
    if (!failure.fatal.why.empty()) text += "  why   " + failure.fatal.why + "\n";
    if (!failure.fatal.fix.empty()) text += "  fix   " + failure.fatal.fix + "\n";
    std::fputs(text.c_str(), stderr);
    return static_cast<int>(failure.exit_code);
}

}  // namespace replica::server

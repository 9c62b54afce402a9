#include "replica/engine/engine_limits.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace replica {
namespace {

void require_at_least(std::int64_t value, std::int64_t least, const char* name) {
    if (value >= least) return;
    throw std::invalid_argument("engine: " + std::string(name) + " is " + std::to_string(value) +
                                ", it must be at least " + std::to_string(least));
}

}  // namespace

EngineLimits engine_limits(const RunnerLimits& runner, const EngineOptions& options) {
    require_at_least(runner.step.rows, 1, "rows of a step");
    require_at_least(runner.step.seqs, 1, "sequences of a step");
    require_at_least(runner.step.logit_rows, 1, "logit rows of a step");
    require_at_least(runner.step.blocks_per_seq, 1, "blocks per sequence");
    require_at_least(runner.step.vocabulary, 1, "vocabulary");
    require_at_least(runner.blocks_total, 1, "blocks in total");
    require_at_least(runner.block_tokens, 1, "tokens of a block");
    if (runner.has_recurrent_state) require_at_least(runner.state_slots, 1, "state slots");
    require_at_least(options.sequences_max, 1, "sequences_max");
    require_at_least(options.waiting_max, 0, "waiting_max");
    require_at_least(options.step_token_budget, 1, "step_token_budget");
    require_at_least(options.queued_tokens_max, 0, "queued_tokens_max");
    require_at_least(options.draft_tokens_max, 0, "draft_tokens_max");
    require_at_least(options.draft_batch_max, 0, "draft_batch_max");

    EngineLimits limits{.waiting_max = options.waiting_max};
    limits.sequences_max = std::min(
        {options.sequences_max, runner.step.seqs, runner.step.logit_rows, runner.step.rows});
    if (runner.has_recurrent_state) {
        limits.sequences_max = std::min(limits.sequences_max, runner.state_slots);
    }
    limits.state_slots = runner.has_recurrent_state ? runner.state_slots : limits.sequences_max;
    limits.token_budget =
        std::clamp(options.step_token_budget, limits.sequences_max, runner.step.rows);
    const std::int64_t blocks = std::min(runner.blocks_total, runner.step.blocks_per_seq);
    limits.max_model_len = static_cast<std::int32_t>(
        std::min<std::int64_t>(runner.max_model_len, blocks * runner.block_tokens));
    require_at_least(limits.max_model_len, 2, "context");  // one prompt token, one answer
    limits.queued_tokens_max = options.queued_tokens_max > 0
                                   ? options.queued_tokens_max
                                   : std::numeric_limits<std::int64_t>::max();
    limits.step_time_target = options.step_time_target;
    limits.has_prefix_cache = options.has_prefix_cache;
    limits.draft_tokens_max =
        std::min({options.draft_tokens_max, runner.draft_tokens_max, kDraftTokensMax});
    limits.draft_batch_max = std::min(options.draft_batch_max, limits.sequences_max);
    limits.drafts_always = options.drafts_always;
    return limits;
}

}  // namespace replica

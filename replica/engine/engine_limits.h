// What an engine can really do: the operator's options cut to what the runner was prepared for.
#pragma once

#include <chrono>
#include <cstdint>

#include "replica/engine/engine.h"
#include "replica/engine/step_runner.h"

namespace replica {

struct EngineLimits {
    std::int32_t sequences_max = 0;
    std::int32_t waiting_max = 0;
    std::int32_t token_budget = 0;   // rows of a step; at least sequences_max
    std::int32_t max_model_len = 0;  // prompt and generated; fits into the pool alone
    std::int32_t state_slots = 0;
    std::int64_t queued_tokens_max = 0;  // prompt tokens waiting; always set
    std::chrono::duration<double> step_time_target{};
    bool has_prefix_cache = true;
    std::int32_t draft_tokens_max = 0;
    std::int32_t draft_batch_max = 0;
    bool drafts_always = false;

    /// Requests that may be in the engine at once; the next one meets kQueueFull.
    std::int32_t requests_max() const { return sequences_max + waiting_max; }
};

/// Throws std::invalid_argument naming the number, when nothing could ever run.
EngineLimits engine_limits(const RunnerLimits& runner, const EngineOptions& options);

}  // namespace replica

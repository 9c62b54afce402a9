// How much of everything a replica holds: a pure function of model, flags and free memory.
#pragma once

#include <cstdint>

#include <tl/expected.hpp>

#include "replica/engine/step_runner.h"
#include "replica/model/config.h"
#include "replica/model/error.h"

namespace replica {

struct RunnerOptions {
    std::int32_t context =
        0;  // tokens of one sequence; 0 = the trained context, at most kContextDefaultMax
    std::int32_t sequences_max = 8;    // running at once
    std::int32_t step_rows_max = 512;  // token budget of a step
    std::int32_t logit_rows_max =
        0;                           // 0 = sequences_max; more only to read logits of whole prompts
    std::int32_t block_tokens = 64;  // tokens of a KV page
    kernels::DType kv_dtype = kernels::DType::kF16;
};

/// Without a flag a sequence may hold this many tokens, if the model was trained for as many.
constexpr std::int32_t kContextDefaultMax = 32768;

struct MemoryPlan {
    RunnerLimits limits;
    kernels::DType kv_dtype = kernels::DType::kF16;
    std::uint64_t kv_bytes = 0, state_bytes = 0, buffer_bytes = 0, rope_bytes = 0;
    std::uint64_t total_bytes() const { return kv_bytes + state_bytes + buffer_bytes + rope_bytes; }
};

/// Every sequence gets room for a whole context. Refuses with a sentence when that exceeds
/// `free_bytes`: what it needs, what there is, and the largest context that fits.
tl::expected<MemoryPlan, ModelError> plan_memory(const ModelConfig& config,
                                                 const RunnerOptions& options,
                                                 std::uint64_t free_bytes);

}  // namespace replica

// How much of everything a replica holds: a pure function of model, flags and free memory.
//
//   device memory   weights │ KV pages │ recurrent states │ replay │ buffers │ rotary table │
//                   kernels' scratch │ reserve
//   host memory     snapshots (on the CPU both are one)
//
// All but the KV pages follow from model and flags. The pages are whole contexts for all sequences
// when there is room, else as many as fit, but at least one whole context: the engine preempts when
// they run out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

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
    /// 0 = what steps of the engine need; more only to read logits of whole prompts.
    std::int32_t logit_rows_max = 0;
    std::int32_t block_tokens = 64;  // tokens of a KV page
    std::int64_t kv_tokens = 0;      // of the whole pool, bounds the context too; 0 = by what fits
    kernels::DType kv_dtype = kernels::DType::kF16;
    std::int32_t draft_tokens_max = 0;          // 0 = no speculation, and no memory for it
    std::int32_t draft_batch_max = 4;           // sequences that verify in one step
    bool with_mtp = false;                      // the MTP block's memory without speculation too
    std::uint64_t snapshot_memory_bytes = 0;    // host memory for saved states
    std::uint64_t device_memory_bytes_max = 0;  // plan with at most this much; 0 = what is free
};

/// Without a flag a sequence may hold this many tokens, if the model was trained for as many.
inline constexpr std::int32_t kContextDefaultMax = 32768;

/// Hidden rows kept per state slot while drafting: those of an unfinished verify step (1 + drafts),
/// and as many again while the next one is made.
inline constexpr std::int32_t kKeptRows = 16;

/// What the device offers, to this model.
struct MemorySupply {
    std::uint64_t free_bytes = 0;
    std::uint64_t weight_bytes =
        0;  // to be placed in `free_bytes`, or counted there although placed
    std::uint64_t loading_bytes =
        0;                        // only while weights are placed, but pages come before they go
    bool is_host = false;         // device memory is host memory: snapshots come out of it too
    std::int32_t inputs_max = 0;  // the largest K of any matrix
    /// What the backend takes for steps of such limits; empty = nothing.
    std::function<std::uint64_t(const kernels::StepLimits&)> scratch_bytes;
};

/// Bytes are saturated: a plan too large for 64 bits fits nowhere.
struct MemoryPlan {
    RunnerLimits limits;
    kernels::DType kv_dtype = kernels::DType::kF16;
    bool has_mtp = false;             // pages and buffers for the MTP block
    std::int32_t conv_ring_rows = 0;  // of each slot
    bool snapshots_on_device = false;

    std::uint64_t weight_bytes = 0, kv_bytes = 0, state_bytes = 0, replay_bytes = 0,
                  buffer_bytes = 0, rope_bytes = 0, scratch_bytes = 0, reserve_bytes = 0;
    std::uint64_t snapshot_bytes = 0;  // of all places
    std::uint64_t device_bytes() const;
};

/// Whether the MTP block takes part: its weights are loaded and it has memory.
bool wants_mtp(const ModelConfig& config, const RunnerOptions& options);

/// Refuses a context beyond what the model was trained for; 0 leaves it to the plan.
std::optional<ModelError> check_context(const ModelConfig& config, std::int32_t context);

/// Refuses with a sentence when not even one whole context fits: what it needs, what there is, and
/// the largest context that fits.
tl::expected<MemoryPlan, ModelError> plan_memory(const ModelConfig& config,
                                                 const RunnerOptions& options,
                                                 const MemorySupply& supply);

}  // namespace replica

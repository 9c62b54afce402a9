// Shapes of the buffers between operations: one list, used to plan memory and to allocate it.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "replica/model/config.h"
#include "replica/model/forward.h"
#include "replica/model/memory_plan.h"

namespace replica {

/// Values a row leaves in the replay buffer of a layer: unit keys, deltas, decay factors.
std::int64_t replay_row_values(const DeltaNetConfig& net);

/// Bytes of everything `make_activations` allocates. Reads the plan's limits and has_mtp alone.
std::uint64_t buffer_bytes(const ModelConfig& config, const MemoryPlan& plan);

Activations make_activations(kernels::Backend& backend, const ModelConfig& config,
                             const MemoryPlan& plan);

/// KV pages, recurrent state and replay buffers for the plan.
ModelMemory make_model_memory(kernels::Backend& backend, const ModelConfig& config,
                              const MemoryPlan& plan);

}  // namespace replica

// Shapes of the buffers between operations: one list, used to plan memory and to allocate it.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "replica/model/config.h"
#include "replica/model/forward.h"
#include "replica/model/memory_plan.h"

namespace replica {

/// Bytes of everything `make_activations` allocates.
std::uint64_t buffer_bytes(const ModelConfig& config, const kernels::StepLimits& limits);

Activations make_activations(kernels::Backend& backend, const ModelConfig& config,
                             const kernels::StepLimits& limits);

/// KV pages and recurrent state for the plan.
ModelMemory make_model_memory(kernels::Backend& backend, const ModelConfig& config,
                              const MemoryPlan& plan);

}  // namespace replica

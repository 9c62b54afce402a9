// What the engine asks of a model: run one step. The real one is replica/model/runner; tests use a
// fake.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace replica {

struct RunnerLimits {
    kernels::StepLimits step;       // the largest step the runner was prepared for
    std::int32_t blocks_total = 0;  // KV pages, numbered 0 .. blocks_total - 1
    std::int32_t block_tokens = 0;
    std::int32_t state_slots = 0;  // recurrent slots, numbered 1 .. state_slots; slot 0 is scratch.
                                   // Pure-attention models have none and ignore state_slot
    bool has_recurrent_state = false;
    std::int32_t max_model_len = 0;
};

/// Engine thread only.
class StepRunner {
public:
    virtual ~StepRunner() = default;
    virtual const RunnerLimits& limits() const = 0;
    /// One forward pass over the batch. The result is valid until the next call.
    virtual const kernels::StepOutputs& run(const kernels::StepDescriptor& step) = 0;
};

}  // namespace replica

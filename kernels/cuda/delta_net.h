// Which kernels a delta net's sequences go to.
//
//     rows of a sequence   1 .. 16: delta_step      more: delta_chunk
//     plain delta_net      what the two are not built for, or when they are disabled
//
// delta_step also replays for sequences that delta_chunk then computes, so there is no delta_chunk
// without it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/armed.h"
#include "kernels/cuda/ops.h"

namespace kernels::cuda {

/// Which of the two serve, and how often the plain kernel did work that they could have done.
class DeltaNetRegistry {
public:
    /// Opts the kernels into their shared memory; `disabled` are names as in armed.h.
    DeltaNetRegistry(KernelSet& kernels, int shared_bytes_max,
                     std::span<const std::string> disabled);

    bool is_step_armed() const { return step_.state == KernelState::kArmed; }
    bool is_chunk_armed() const { return chunk_.state == KernelState::kArmed; }
    /// With the counters of now.
    std::vector<KernelEntry> entries(const KernelSet& kernels) const;
    void count_step_fallback() { ++step_.fallback_runs; }
    void count_chunk_fallback() { ++chunk_.fallback_runs; }

private:
    KernelEntry step_, chunk_;
};

struct DeltaStepOptions {
    bool replays_long = false;  // also for sequences that others compute
};

DeltaNetParams delta_net_params(const OpContext& context, const DeltaNetArgs& args);
/// Whether delta_step is built for these shapes.
bool delta_step_fits(const DeltaNetArgs& args);
void launch_delta_step(const OpContext& context, const DeltaNetArgs& args,
                       const DeltaStepOptions& options);

/// What steps within the limits need; 0 when none has a long sequence or a delta net.
std::int64_t delta_chunk_scratch_bytes(const StepLimits& limits);
bool delta_chunk_fits(const DeltaNetArgs& args);
/// For all sequences of more than kDeltaStepRows rows.
void launch_delta_chunk(const OpContext& context, const DeltaNetArgs& args);

}  // namespace kernels::cuda

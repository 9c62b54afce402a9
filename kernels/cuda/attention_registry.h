// Whether our attention kernels serve, or why not; what they did not do although they could have.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/armed.h"
#include "kernels/cuda/kernel_set.h"

namespace kernels::cuda {

inline constexpr std::int32_t kAttentionHeadDims[] = {64, 128, 256};  // of attention_decode

class AttentionRegistry {
public:
    /// Opts the kernels into their shared memory; `disabled` are names as in armed.h.
    AttentionRegistry(KernelSet& kernels, int shared_bytes_max,
                      std::span<const std::string> disabled);

    bool has_decode() const { return decode_.state == KernelState::kArmed; }
    /// The plain kernels did work that attention_decode has code for.
    void count_fallback() { ++decode_.fallback_runs; }
    /// With the counters of now.
    std::vector<KernelEntry> entries(const KernelSet& kernels) const;

private:
    KernelEntry decode_;
};

/// Index into kAttentionHeadDims; -1 = no kernel.
int attention_decode_index(std::int32_t head_dim);

}  // namespace kernels::cuda

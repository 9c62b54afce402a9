// Whether our attention kernels serve, or why not; what they did not do although they could have.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/armed.h"
#include "kernels/cuda/kernel_set.h"

namespace kernels::cuda {

// Of attention_decode and attention_prefill.
inline constexpr std::int32_t kAttentionHeadDims[] = {64, 128, 256};
/// Of a kernel of attention_decode: query heads of a KV head times rows. The last takes more in
/// turn.
inline constexpr std::int32_t kAttentionColumns[] = {8, 16, 32};

class AttentionRegistry {
public:
    /// Opts the kernels into their shared memory; `disabled` are names as in armed.h.
    AttentionRegistry(KernelSet& kernels, int shared_bytes_max,
                      std::span<const std::string> disabled);

    bool has_decode() const { return decode_.state == KernelState::kArmed; }
    bool has_prefill() const { return prefill_.state == KernelState::kArmed; }
    /// The plain kernels did work that one of ours has code for.
    void count_decode_fallback() { ++decode_.fallback_runs; }
    void count_prefill_fallback() { ++prefill_.fallback_runs; }
    /// With the counters of now.
    std::vector<KernelEntry> entries(const KernelSet& kernels) const;

private:
    KernelEntry decode_, prefill_;
};

/// Index into kAttentionHeadDims; -1 = no kernel.
int attention_head_index(std::int32_t head_dim);
/// For a step whose widest sequence has so many columns; `head_dim` has an index.
KernelId attention_decode_kernel(std::int32_t head_dim, std::int32_t columns);

}  // namespace kernels::cuda

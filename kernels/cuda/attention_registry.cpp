#include "kernels/cuda/attention_registry.h"

#include <algorithm>
#include <iterator>

#include "kernels/cuda/attention_cut.h"

namespace kernels::cuda {

int attention_head_index(std::int32_t head_dim) {
    const auto* found = std::ranges::find(kAttentionHeadDims, head_dim);
    return found == std::end(kAttentionHeadDims)
               ? -1
               : static_cast<int>(found - std::begin(kAttentionHeadDims));
}

namespace {

/// Opts a kernel of each head size into its shared memory.
KernelEntry open_entry(const char* name, KernelSet& kernels, KernelId first,
                       std::int32_t (*shared_bytes)(std::int32_t), int shared_bytes_max,
                       std::span<const std::string> disabled) {
    KernelEntry entry;
    entry.name = name;
    entry.variant = "F16";
    entry.fallback = "attention";
    for (std::size_t i = 0; i < std::size(kAttentionHeadDims); ++i) {
        const std::int32_t bytes = shared_bytes(kAttentionHeadDims[i]);
        if (!kernels.has(kernel_after(first, i))) {
            mark_wrong_arch(entry);
            break;
        }
        if (bytes <= shared_bytes_max &&
            kernels.allow_shared_bytes(kernel_after(first, i), bytes) == kSuccess)
            continue;
        entry.state = KernelState::kFailed;
        entry.reason =
            "the driver does not grant " + std::to_string(bytes) + " bytes of shared memory";
    }
    if (is_named_by_any(entry, disabled)) {
        entry.state = KernelState::kDisabled;
        entry.reason = "by the operator";
    }
    return entry;
}

}  // namespace

AttentionRegistry::AttentionRegistry(KernelSet& kernels, int shared_bytes_max,
                                     std::span<const std::string> disabled)
    : decode_(open_entry("attention_decode", kernels, KernelId::kAttentionDecodeFirst,
                         attention_shared_bytes, shared_bytes_max, disabled)),
      prefill_(open_entry("attention_prefill", kernels, KernelId::kAttentionPrefillFirst,
                          attention_prefill_shared_bytes, shared_bytes_max, disabled)) {}

std::vector<KernelEntry> AttentionRegistry::entries(const KernelSet& kernels) const {
    std::vector<KernelEntry> entries = {decode_, prefill_};
    for (std::size_t i = 0; i < std::size(kAttentionHeadDims); ++i) {
        entries[0].runs += kernels.runs(kernel_after(KernelId::kAttentionDecodeFirst, i));
        entries[1].runs += kernels.runs(kernel_after(KernelId::kAttentionPrefillFirst, i));
    }
    return entries;
}

}  // namespace kernels::cuda

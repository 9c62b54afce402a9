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

KernelId attention_decode_kernel(std::int32_t head_dim, std::int32_t columns) {
    const auto* form =
        std::ranges::find_if(kAttentionColumns, [&](std::int32_t most) { return columns <= most; });
    const auto index = std::min<std::ptrdiff_t>(form - std::begin(kAttentionColumns),
                                                std::ssize(kAttentionColumns) - 1);
    return kernel_after(
        KernelId::kAttentionDecodeFirst,
        static_cast<std::size_t>(attention_head_index(head_dim) * std::ssize(kAttentionColumns) +
                                 index));
}

namespace {

/// Opts `forms` kernels of each head size into their shared memory.
KernelEntry open_entry(const char* name, KernelSet& kernels, KernelId first, std::size_t forms,
                       std::int32_t (*shared_bytes)(std::int32_t), int shared_bytes_max,
                       std::span<const std::string> disabled) {
    KernelEntry entry;
    entry.name = name;
    entry.variant = "F16";
    entry.fallback = "attention";
    for (std::size_t i = 0; i < forms * std::size(kAttentionHeadDims); ++i) {
        const std::int32_t bytes = shared_bytes(kAttentionHeadDims[i / forms]);
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
                         std::size(kAttentionColumns), attention_shared_bytes, shared_bytes_max,
                         disabled)),
      prefill_(open_entry("attention_prefill", kernels, KernelId::kAttentionPrefillFirst, 1,
                          attention_prefill_shared_bytes, shared_bytes_max, disabled)) {}

std::vector<KernelEntry> AttentionRegistry::entries(const KernelSet& kernels) const {
    std::vector<KernelEntry> entries = {decode_, prefill_};
    constexpr std::size_t kHeads = std::size(kAttentionHeadDims);
    for (std::size_t i = 0; i < kHeads * std::size(kAttentionColumns); ++i)
        entries[0].runs += kernels.runs(kernel_after(KernelId::kAttentionDecodeFirst, i));
    for (std::size_t i = 0; i < kHeads; ++i)
        entries[1].runs += kernels.runs(kernel_after(KernelId::kAttentionPrefillFirst, i));
    return entries;
}

}  // namespace kernels::cuda

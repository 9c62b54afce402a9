#include "kernels/cuda/attention_registry.h"

#include <algorithm>
#include <iterator>

#include "kernels/cuda/attention_cut.h"

namespace kernels::cuda {

int attention_decode_index(std::int32_t head_dim) {
    const auto* found = std::ranges::find(kAttentionHeadDims, head_dim);
    return found == std::end(kAttentionHeadDims)
               ? -1
               : static_cast<int>(found - std::begin(kAttentionHeadDims));
}

AttentionRegistry::AttentionRegistry(KernelSet& kernels, int shared_bytes_max,
                                     std::span<const std::string> disabled) {
    decode_.name = "attention_decode";
    decode_.variant = "F16";
    decode_.fallback = "attention";
    for (std::size_t i = 0; i < std::size(kAttentionHeadDims); ++i) {
        const std::int32_t bytes = attention_shared_bytes(kAttentionHeadDims[i]);
        const KernelId id = kernel_after(KernelId::kAttentionDecodeFirst, i);
        if (bytes <= shared_bytes_max && kernels.allow_shared_bytes(id, bytes) == kSuccess)
            continue;
        decode_.state = KernelState::kFailed;
        decode_.reason =
            "the driver does not grant " + std::to_string(bytes) + " bytes of shared memory";
    }
    if (is_named_by_any(decode_, disabled)) {
        decode_.state = KernelState::kDisabled;
        decode_.reason = "by the operator";
    }
}

std::vector<KernelEntry> AttentionRegistry::entries(const KernelSet& kernels) const {
    KernelEntry entry = decode_;
    for (std::size_t i = 0; i < std::size(kAttentionHeadDims); ++i)
        entry.runs += kernels.runs(kernel_after(KernelId::kAttentionDecodeFirst, i));
    return {entry};
}

}  // namespace kernels::cuda

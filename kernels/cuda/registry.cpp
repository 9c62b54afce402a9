#include "kernels/cuda/registry.h"

#include "kernels/quant/format.h"

namespace kernels::cuda {

MatmulRegistry::MatmulRegistry(KernelSet& kernels, int shared_bytes_max,
                               std::span<const std::string> disabled) {
    for (std::size_t type = 0; type < kMatmulTypes.size(); ++type) {
        KernelEntry entry{.name = "matmul_mma",
                          .variant = std::string(kernels::name_of(kMatmulTypes[type])),
                          .reason = {},
                          .fallback = "linear",
                          .is_wanted = false};
        for (const KernelId id : matmul_kernels(type)) {
            if (!kernels.has(id)) {
                mark_wrong_arch(entry);
                break;
            }
            if (kernels.allow_shared_bytes(id, shared_bytes_max) == kSuccess) continue;
            entry.state = KernelState::kFailed;
            entry.reason = "the driver does not grant " + std::to_string(shared_bytes_max) +
                           " bytes of shared memory";
        }
        if (is_named_by_any(entry, disabled)) {
            entry.state = KernelState::kDisabled;
            entry.reason = "by the operator";
        }
        entries_.push_back(std::move(entry));
    }
}

bool MatmulRegistry::is_armed(DType dtype) const {
    const int type = matmul_type_index(dtype);
    return type >= 0 && entries_[static_cast<std::size_t>(type)].state == KernelState::kArmed;
}

void MatmulRegistry::want(DType dtype) {
    const int type = matmul_type_index(dtype);
    if (type >= 0) entries_[static_cast<std::size_t>(type)].is_wanted = true;
}

std::vector<KernelEntry> MatmulRegistry::entries(const KernelSet& kernels) const {
    std::vector<KernelEntry> entries = entries_;
    for (std::size_t type = 0; type < kMatmulTypes.size(); ++type) {
        const auto linear = static_cast<std::size_t>(linear_type_index(kMatmulTypes[type]));
        for (const KernelId id : matmul_kernels(type))
            entries[type].runs += kernels.runs(id);
        for (std::size_t i = 0; i < 2; ++i)
            entries[type].fallback_runs +=
                kernels.runs(kernel_after(KernelId::kLinearFirst, 2 * linear + i));
    }
    return entries;
}

}  // namespace kernels::cuda

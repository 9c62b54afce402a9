#include "kernels/cuda/delta_net.h"

namespace kernels::cuda {

DeltaNetRegistry::DeltaNetRegistry(std::span<const std::string> disabled)
    : step_{.name = "delta_step", .variant = "F32", .reason = {}, .fallback = "delta_net"} {
    if (!is_named_by_any(step_, disabled)) return;
    step_.state = KernelState::kDisabled;
    step_.reason = "by the operator";
}

std::vector<KernelEntry> DeltaNetRegistry::entries(const KernelSet& kernels) const {
    KernelEntry step = step_;
    for (const KernelId id : {KernelId::kDeltaStep1, KernelId::kDeltaStep2, KernelId::kDeltaStep3,
                              KernelId::kDeltaStep4})
        step.runs += kernels.runs(id);
    return {step};
}

}  // namespace kernels::cuda

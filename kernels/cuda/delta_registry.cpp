#include <string>
#include <utility>

#include "kernels/cuda/delta_chunk.h"
#include "kernels/cuda/delta_net.h"

namespace kernels::cuda {

DeltaNetRegistry::DeltaNetRegistry(KernelSet& kernels, int shared_bytes_max,
                                   std::span<const std::string> disabled)
    : step_{.name = "delta_step", .variant = "F32", .reason = {}, .fallback = "delta_net"},
      chunk_{.name = "delta_chunk", .variant = "F32", .reason = {}, .fallback = "delta_net"} {
    for (const auto& [id, bytes] : {std::pair{KernelId::kDeltaChunkPrepare, kChunkPrepareBytes},
                                    std::pair{KernelId::kDeltaChunkScan, kChunkScanBytes}}) {
        if (!kernels.has(id)) {
            mark_wrong_arch(chunk_);
            break;
        }
        if (bytes <= shared_bytes_max && kernels.allow_shared_bytes(id, bytes) == kSuccess)
            continue;
        chunk_.state = KernelState::kFailed;
        chunk_.reason =
            "the driver does not grant " + std::to_string(bytes) + " bytes of shared memory";
    }
    if (!kernels.has(KernelId::kDeltaStep1)) mark_wrong_arch(step_);
    for (KernelEntry* entry : {&step_, &chunk_}) {
        if (!is_named_by_any(*entry, disabled)) continue;
        entry->state = KernelState::kDisabled;
        entry->reason = "by the operator";
    }
    if (!is_step_armed() && is_chunk_armed()) {
        chunk_.state = KernelState::kDisabled;
        chunk_.reason = "needs delta_step, which is disabled";
    }
}

std::vector<KernelEntry> DeltaNetRegistry::entries(const KernelSet& kernels) const {
    KernelEntry step = step_;
    for (const KernelId id : {KernelId::kDeltaStep1, KernelId::kDeltaStep2, KernelId::kDeltaStep3,
                              KernelId::kDeltaStep4})
        step.runs += kernels.runs(id);
    KernelEntry chunk = chunk_;
    chunk.runs = kernels.runs(KernelId::kDeltaChunkScan);
    return {step, chunk};
}

}  // namespace kernels::cuda

#include "kernels/cuda/lane_registry.h"

#include <algorithm>
#include <iterator>

#include "kernels/cuda/lane_order.h"
#include "kernels/quant/format.h"

namespace kernels::cuda {
namespace {

KernelEntry open_entry(const char* name, const char* fallback, DType dtype, KernelSet& kernels,
                       std::span<const KernelId> ids, int shared_bytes_max,
                       std::span<const std::string> disabled) {
    KernelEntry entry{.name = name,
                      .variant = std::string(kernels::name_of(dtype)),
                      .reason = {},
                      .fallback = fallback,
                      .is_wanted = false};
    constexpr int kBytes =
        std::max(kHmmaSharedBytes, kDp4aWarps * kDp4aBatch * kLaneRows * int{sizeof(float)});
    if (!std::ranges::all_of(ids, [&](KernelId id) { return kernels.has(id); })) {
        mark_wrong_arch(entry, "sm_70", "sm_90a");
    } else if (kBytes > shared_bytes_max) {
        entry.state = KernelState::kFailed;
        entry.reason =
            "the driver does not grant " + std::to_string(kBytes) + " bytes of shared memory";
    }
    if (is_named_by_any(entry, disabled)) {
        entry.state = KernelState::kDisabled;
        entry.reason = "by the operator";
    }
    return entry;
}

std::vector<KernelId> dp4a_kernels(int type) {
    std::vector<KernelId> ids;
    for (std::size_t width = 0; width < std::size(kDp4aWidths); ++width)
        ids.push_back(matmul_dp4a_kernel(type, static_cast<int>(width)));
    return ids;
}

}  // namespace

LaneRegistry::LaneRegistry(KernelSet& kernels, int shared_bytes_max,
                           std::span<const std::string> disabled)
    : is_sm_70_(kernels.kind() == CodeKind::kSm70) {
    for (const DType dtype : kMatmulTypes) {
        const int type = matmul_type_index(dtype);
        const KernelId hmma = matmul_hmma_kernel(type);
        dp4a_.push_back(open_entry("matmul_dp4a", "linear", dtype, kernels, dp4a_kernels(type),
                                   shared_bytes_max, disabled));
        hmma_.push_back(open_entry("matmul_hmma", "matmul_dp4a", dtype, kernels, {&hmma, 1},
                                   shared_bytes_max, disabled));
    }
}

bool LaneRegistry::is_armed(DType dtype, LaneWay way) const {
    const int type = matmul_type_index(dtype);
    const std::vector<KernelEntry>& entries = way == LaneWay::kDp4a ? dp4a_ : hmma_;
    return type >= 0 && entries[static_cast<std::size_t>(type)].state == KernelState::kArmed;
}

bool LaneRegistry::is_armed(DType dtype) const {
    return is_armed(dtype, LaneWay::kDp4a) || is_armed(dtype, LaneWay::kHmma);
}

void LaneRegistry::want(DType dtype) {
    const int type = matmul_type_index(dtype);
    if (type < 0 || !is_sm_70_) return;
    dp4a_[static_cast<std::size_t>(type)].is_wanted = true;
    hmma_[static_cast<std::size_t>(type)].is_wanted = true;
}

std::vector<KernelEntry> LaneRegistry::entries(const KernelSet& kernels) const {
    std::vector<KernelEntry> entries;
    for (std::size_t i = 0; i < kMatmulTypes.size(); ++i) {
        const int type = static_cast<int>(i);
        KernelEntry dp4a = dp4a_[i];
        for (const KernelId id : dp4a_kernels(type))
            dp4a.runs += kernels.runs(id);
        const auto linear = static_cast<std::size_t>(linear_type_index(kMatmulTypes[i]));
        for (std::size_t rows = 0; is_sm_70_ && rows < 2; ++rows)
            dp4a.fallback_runs +=
                kernels.runs(kernel_after(KernelId::kLinearFirst, 2 * linear + rows));
        KernelEntry hmma = hmma_[i];
        hmma.runs = kernels.runs(matmul_hmma_kernel(type));
        // Columns that only matmul_dp4a's widest takes are matmul_hmma's.
        hmma.fallback_runs =
            kernels.runs(matmul_dp4a_kernel(type, static_cast<int>(std::size(kDp4aWidths)) - 1));
        entries.push_back(std::move(dp4a));
        entries.push_back(std::move(hmma));
    }
    return entries;
}

}  // namespace kernels::cuda

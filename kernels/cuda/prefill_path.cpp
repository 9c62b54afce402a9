#include "kernels/cuda/prefill_path.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/prefill_plan.h"

namespace kernels::cuda {

void PrefillPath::open(KernelSet& kernels, const CudaBackendOptions& options) {
    if (is_named_by_any(entry_, options.disabled_kernels))
        return fail(KernelState::kDisabled, "by the operator");
    if (!kernels.has(KernelId::kDequantiseFirst)) return mark_wrong_arch(entry_);
    const auto library = load_cublaslt(system_loader(), options.library_dir);
    if (!library) return fail(KernelState::kNotBuilt, library.error());
    if (!allow_prefill(kernels))
        return fail(KernelState::kFailed, "the driver does not grant its shared memory");
    auto products = LtProducts::make(*library);
    if (!products) return fail(KernelState::kFailed, products.error());
    products_ = std::move(*products);
    std::fprintf(stderr, "level=info event=cublaslt path=%s version=%zu\n", library->path.c_str(),
                 library->version());
}

void PrefillPath::fail(KernelState state, std::string reason) {
    scratch_.products = nullptr;
    entry_.state = state;
    entry_.reason = std::move(reason);
}

void PrefillPath::reserve(const ScratchPlan& plan, std::span<Matrix> matrices, Arena& arena,
                          const Driver& driver, OpContext& op) {
    if (plan.prefill_weights == 0) return;
    try {
        take(plan, arena, op);
        scale_weights(matrices, arena, driver, op);
    } catch (const CudaError& error) {
        if (error.status != kOutOfMemory) throw;
        return fail(KernelState::kFailed, "the device has no " + std::to_string(scratch_.bytes) +
                                              " bytes for its scratch");
    }
    scratch_.products = products_.get();
    if (std::string reason = prepare_prefill(op, matrices); !reason.empty())
        fail(KernelState::kFailed, std::move(reason));
}

void PrefillPath::take(const ScratchPlan& plan, Arena& arena, const OpContext& op) {
    scratch_.rows = plan.prefill_rows;
    scratch_.weight_bytes = PrefillLimits{}.weight_bytes;
    scratch_.bytes =
        plan.prefill_exponents + plan.prefill_weights + plan.prefill_sums + plan.prefill_workspace;
    const auto take = [&](std::int64_t bytes) {
        return arena.take(static_cast<std::size_t>(bytes));
    };
    scratch_.x = reinterpret_cast<std::uint16_t*>(op.scratch);
    scratch_.exponents = reinterpret_cast<std::int32_t*>(take(plan.prefill_exponents));
    scratch_.weights = reinterpret_cast<std::uint16_t*>(take(plan.prefill_weights));
    scratch_.sums = reinterpret_cast<float*>(take(plan.prefill_sums));
    products_->set_workspace(take(plan.prefill_workspace));
}

/// One scale for all segments where theirs are close, so that they can be multiplied at once: the
/// smallest, since no weight may leave the range.
void PrefillPath::share_scale(Matrix& matrix) {
    constexpr float kRatioMax = 256.0F;  // leaves 2^-18 of a segment's largest weight normal
    const std::span segments =
        std::span(matrix.segments).first(static_cast<std::size_t>(matrix.segment_count));
    const auto [least, most] = std::ranges::minmax(segments, {}, &SegmentView::half_scale);
    if (!(least.half_scale > 0.0F) || most.half_scale > kRatioMax * least.half_scale) return;
    const float scale = least.half_scale;
    for (SegmentView& segment : segments)
        segment.half_scale = scale;
}

/// The power of two that each segment's weights become binary16 with.
void PrefillPath::scale_weights(std::span<Matrix> matrices, Arena& arena, const Driver& driver,
                                const OpContext& op) {
    std::vector<std::uint32_t> words(matrices.size() * kSegmentsMax);
    const std::size_t bytes = words.size() * sizeof(std::uint32_t);
    const DeviceAddress largest = arena.take(bytes);
    check_cuda(driver, driver.fill_bytes(largest, 0, bytes, op.stream), "zeroing");
    launch_largest(op, matrices, reinterpret_cast<std::uint32_t*>(largest));
    check_cuda(driver, driver.copy_to_host(words.data(), largest, bytes, op.stream),
               "download of the largest weights");
    check_cuda(driver, driver.stream_synchronize(op.stream), "largest weights");
    for (std::size_t i = 0; i < matrices.size(); ++i)
        for (std::size_t s = 0; s < static_cast<std::size_t>(matrices[i].segment_count); ++s) {
            float value = 0.0F;
            std::memcpy(&value, &words[i * kSegmentsMax + s], sizeof value);
            SegmentView& segment = matrices[i].segments[s];
            segment.half_scale = segment.is_packed ? segment.unit : prefill_weight_scale(value);
        }
    for (Matrix& matrix : matrices)
        share_scale(matrix);
}

KernelEntry PrefillPath::entry() const {
    KernelEntry now = entry_;
    if (products_ != nullptr) now.runs = products_->runs();
    now.fallback_runs = scratch_.skipped;
    return now;
}

}  // namespace kernels::cuda

// Many tokens go to cuBLASLt (prefill.cpp). Of the rest, packed segments go to matmul_mma, on sm_70
// to matmul_dp4a and matmul_hmma (matmul_lanes.cpp); the others take one launch each. With SwiGLU
// the first half of the outputs is stored and the second one finishes it, so segments may have any
// types and lie across the middle; only interleaved ones hold both factors of an output at once.
#include <algorithm>
#include <cassert>

#include "kernels/cuda/ops.h"

namespace kernels::cuda {
namespace {

constexpr std::int64_t kOutputsPerBlock = 8;  // kLinearWarps
constexpr int kThreads = 256;
constexpr std::int64_t kWideColumns = 8;  // rows of x a pass of the wide kernels
constexpr std::int64_t kGroup = 8;        // inputs a lane reads at once

/// Rows of x as the kernels read them: 16-byte aligned, zeros up to a multiple of kGroup.
struct Input {
    const float* x;
    std::int64_t stride;
    const std::int32_t* row_map;
};

bool is_readable(const LinearJob& job) {
    return reinterpret_cast<std::uintptr_t>(job.x) % 16 == 0 && job.x_stride % 4 == 0 &&
           job.matrix->k % kGroup == 0;
}

Input prologue(const OpContext& context, const LinearJob& job) {
    if (job.norm_weight == nullptr && is_readable(job)) return {job.x, job.x_stride, job.row_map};
    const std::int64_t k = job.matrix->k;
    const std::int64_t k_padded = (k + kGroup - 1) / kGroup * kGroup;
    assert(k_padded <= context.scratch_stride && "prepare was told the largest K");
    launch_norm(context, {.rows = job.rows,
                          .live_rows = job.live_rows,
                          .row_map = job.row_map,
                          .x = job.x,
                          .x_stride = job.x_stride,
                          .weight = job.norm_weight,
                          .eps = job.norm_eps,
                          .k = k,
                          .k_padded = k_padded,
                          .y = context.scratch,
                          .y_stride = context.scratch_stride});
    return {context.scratch, context.scratch_stride, nullptr};
}

/// The plain segments' share of the range.
void launch_plain(const OpContext& context, const LinearJob& job, const Input& input,
                  const OutputRange& range) {
    for (const SegmentView& segment : job.matrix->used()) {
        if (segment.is_packed) continue;
        const std::int64_t first = std::max<std::int64_t>(range.begin, segment.first);
        const std::int64_t last =
            std::min<std::int64_t>(range.end, std::int64_t{segment.first} + segment.outputs);
        if (first >= last) continue;
        LinearParams p{};
        p.rows = job.live_rows;
        p.row_map = input.row_map;
        p.blocks = segment.blocks + (first - segment.first) * segment.row_bytes;
        p.row_bytes = segment.row_bytes;
        p.outputs = static_cast<std::int32_t>(last - first);
        p.k = static_cast<std::int32_t>(job.matrix->k);
        p.x = input.x;
        p.x_stride = input.stride;
        p.bias = job.bias != nullptr ? job.bias + first : nullptr;
        p.y = range.y + (first - range.begin);
        p.y_stride = job.y_stride;
        p.epilogue = range.epilogue;
        const int type = linear_type_index(static_cast<DType>(segment.dtype));
        const bool is_wide = job.rows > 1;
        const std::int64_t columns = is_wide ? kWideColumns : 1;
        context.kernels->launch(linear_kernel(type, is_wide),
                                {.x = (last - first + kOutputsPerBlock - 1) / kOutputsPerBlock,
                                 .y = (job.rows + columns - 1) / columns,
                                 .threads = kThreads},
                                context.stream, p);
    }
}

}  // namespace

void launch_linear(const OpContext& context, const LinearJob& job) {
    if (job.rows == 0) return;
    if (wants_prefill(context, job)) {
        if (has_prefill(context, job)) return launch_prefill(context, job);
        ++context.prefill->skipped;
    }
    const auto segments = job.matrix->used();
    const bool has_plain =
        std::ranges::any_of(segments, [](const SegmentView& s) { return !s.is_packed; });
    const Input input = has_plain ? prologue(context, job) : Input{};
    const auto launch = [&](std::int64_t begin, std::int64_t end, LinearEpilogue epilogue) {
        const OutputRange range{begin, end, job.y, epilogue};
        if (context.lanes.registry != nullptr)
            launch_lanes(context, job, range);
        else
            launch_matmul(context, job, range);
        launch_plain(context, job, input, range);
    };
    const std::int64_t n = job.matrix->n;
    switch (job.epilogue) {
        case Epilogue::kStore:
            return launch(0, n, LinearEpilogue::kStore);
        case Epilogue::kAddResidual:
            return launch(0, n, LinearEpilogue::kAdd);
        case Epilogue::kSwiGlu:
            if (segments.front().is_interleaved) return launch(0, n, LinearEpilogue::kSwiGlu);
            launch(0, n / 2, LinearEpilogue::kStore);
            launch(n / 2, n, LinearEpilogue::kSiluTimes);
            return;
    }
}

}  // namespace kernels::cuda

// matmul_mma up to eight rows; above, prepare_wide and matmul_wide, as many rows at a time as a
// kernel has columns.
#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack_host.h"

namespace kernels::cuda {
namespace {

constexpr int kPrepareThreads = 512;

bool touches(const SegmentView& segment, const OutputRange& range) {
    return segment.is_packed && segment.first < range.end &&
           std::int64_t{segment.first} + segment.outputs > range.begin;
}

XInput input_of(const LinearJob& job) {
    constexpr std::uintptr_t kPairBytes = 2 * sizeof(float);
    XInput input{};
    input.x = job.x;
    input.x_stride = job.x_stride;
    input.row_map = job.row_map;
    input.weight = job.norm_weight;
    input.eps = job.norm_eps;
    input.k = static_cast<std::int32_t>(job.matrix->k);
    input.is_paired = reinterpret_cast<std::uintptr_t>(job.x) % kPairBytes == 0 &&
                      job.x_stride % 2 == 0 &&
                      reinterpret_cast<std::uintptr_t>(job.norm_weight) % kPairBytes == 0;
    return input;
}

void launch_prepare(const OpContext& context, const LinearJob& job, std::int64_t first_row,
                    std::int64_t rows) {
    const MatmulScratch& scratch = context.matmul;
    PrepareXParams p{};
    p.columns = wide_columns(rows);
    p.rows = job.live_rows;
    p.first_row = static_cast<std::int32_t>(first_row);
    p.input = input_of(job);
    p.k_records = static_cast<std::int32_t>(record_count(job.matrix->k));
    assert(p.k_records <= scratch.k_records && "prepare was told the largest K");
    p.y = scratch.x;
    p.factors = scratch.x_factors;
    context.kernels->launch(KernelId::kPrepareWide,
                            {.x = rows, .threads = kPrepareThreads, .overlaps_previous = true},
                            context.stream, p);
}

MatmulQuery query_of(const OpContext& context, const LinearJob& job, const SegmentView& segment,
                     std::int64_t rows) {
    return {.dtype = static_cast<DType>(segment.dtype),
            .step_rows = job.rows,
            .rows = rows,
            .tiles = tile_count(segment.outputs),
            .k = job.matrix->k,
            .multiprocessors = context.matmul.multiprocessors,
            .shared_bytes_max = context.matmul.shared_bytes_max};
}

MatmulParams params_of(const OpContext& context, const LinearJob& job, const OutputRange& range,
                       const SegmentView& segment, const MatmulPlan& plan, std::int64_t first_row) {
    const MatmulScratch& scratch = context.matmul;
    MatmulParams p{};
    p.rows = job.live_rows;
    p.first_row = static_cast<std::int32_t>(first_row);
    p.records = segment.blocks;
    p.tiles = static_cast<std::int32_t>(tile_count(segment.outputs));
    p.k_records = plan.cut.k_records;
    p.groups = plan.cut.groups;
    p.blocks = plan.cut.blocks;
    p.input = input_of(job);
    p.x = scratch.x;
    p.weight_unit = segment.unit;
    p.x_factors = scratch.x_factors;
    p.window_slots = plan.window_slots;
    p.window_columns = plan.window_columns;
    p.pair_slots = plan.pair_slots;
    p.bias = job.bias;
    p.y = range.y;
    p.y_stride = job.y_stride;
    p.outputs = segment.outputs;
    p.first_output = segment.first;
    p.half = segment.is_interleaved ? segment.outputs / 2 : 0;
    p.begin = static_cast<std::int32_t>(range.begin);
    p.end = static_cast<std::int32_t>(range.end);
    p.epilogue = range.epilogue;
    p.partials = plan.way == MatmulWay::kWide ? scratch.wide_parts : scratch.partials;
    p.arrivals = scratch.arrivals;
    return p;
}

void launch_segment(const OpContext& context, const LinearJob& job, const OutputRange& range,
                    const SegmentView& segment, std::int64_t first_row, std::int64_t rows) {
    const MatmulPlan& plan = context.matmul.plans->of(query_of(context, job, segment, rows));
    const int type = matmul_type_index(static_cast<DType>(segment.dtype));
    context.kernels->launch(matmul_kernel(type, plan.columns, plan.way),
                            {.x = plan.cut.blocks,
                             .threads = plan.threads,
                             .shared_bytes = plan.shared_bytes,
                             .overlaps_previous = true},
                            context.stream,
                            params_of(context, job, range, segment, plan, first_row));
}

/// All packed segments of the range as one launch, if they are two and a kernel has their types.
bool launch_mix(const OpContext& context, const LinearJob& job, const OutputRange& range) {
    const SegmentView* one = nullptr;
    const SegmentView* other = nullptr;
    for (const SegmentView& segment : job.matrix->used()) {
        if (!touches(segment, range)) continue;
        if (other != nullptr) return false;
        (one == nullptr ? one : other) = &segment;
    }
    if (other == nullptr) return false;
    for (std::size_t mix = 0; mix < std::size(kMatmulMixes); ++mix)
        for (const auto& [first, second] : {std::pair(one, other), std::pair(other, one)}) {
            if (static_cast<DType>(first->dtype) != kMatmulMixes[mix].first ||
                static_cast<DType>(second->dtype) != kMatmulMixes[mix].second)
                continue;
            const std::optional<MatmulMixPlan>& plan =
                context.matmul.plans->mix(query_of(context, job, *first, job.rows),
                                          query_of(context, job, *second, job.rows));
            if (!plan) return false;
            const MatmulMixedParams p{
                .first = params_of(context, job, range, *first, plan->first, 0),
                .second = params_of(context, job, range, *second, plan->second, 0)};
            context.kernels->launch(
                kernel_after(KernelId::kMatmulMixedFirst, mix),
                {.x = plan->first.cut.blocks + plan->second.cut.blocks,
                 .threads = plan->first.threads,
                 .shared_bytes = std::max(plan->first.shared_bytes, plan->second.shared_bytes),
                 .overlaps_previous = true},
                context.stream, p);
            return true;
        }
    return false;
}

}  // namespace

void launch_matmul(const OpContext& context, const LinearJob& job, const OutputRange& range) {
    const auto segments = job.matrix->used();
    if (std::ranges::none_of(segments, [&](const SegmentView& s) { return touches(s, range); }))
        return;
    if (job.rows <= kMatmulFewColumns && launch_mix(context, job, range)) return;
    for (std::int64_t first = 0; first < job.rows; first += kMatmulColumnsMax) {
        const std::int64_t rows = std::min<std::int64_t>(kMatmulColumnsMax, job.rows - first);
        if (job.rows > kMatmulFewColumns) launch_prepare(context, job, first, rows);
        for (const SegmentView& segment : segments)
            if (touches(segment, range)) launch_segment(context, job, range, segment, first, rows);
    }
}

void launch_peak(KernelSet& kernels, StreamHandle stream, DType dtype, const PeakParams& params) {
    constexpr int kThreads = 256;
    constexpr std::int64_t kBlocksMax = 1024;
    constexpr std::int64_t kWarps = kThreads / 32;
    kernels.launch(
        kernel_after(KernelId::kPeakFirst, static_cast<std::size_t>(matmul_type_index(dtype))),
        {.x = std::min(kBlocksMax, (params.count + kWarps - 1) / kWarps), .threads = kThreads},
        stream, params);
}

}  // namespace kernels::cuda

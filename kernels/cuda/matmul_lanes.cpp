// Products on sm_70, 64 tokens at a time: quantise_lanes and matmul_dp4a, or halve_lanes,
// matmul_hmma and, where K is split, finish_lanes. lane_plan says which.
#include <algorithm>
#include <cassert>
#include <optional>

#include "kernels/cuda/lane_plan.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack_host.h"

namespace kernels::cuda {
namespace {

constexpr int kPrepareThreads = 256;
constexpr std::int32_t kSlabsPerBlock = 32;  // four of each warp
constexpr int kFinishThreads = 256;
// For sums of all warps: squares and largest values.
constexpr int kPrepareSharedBytes = 2 * kPrepareThreads / kLaneRows * int{sizeof(float)};

/// The rows of one pass.
struct Pass {
    std::int64_t first = 0;
    std::int64_t rows = 0;
};

bool touches(const SegmentView& segment, const OutputRange& range) {
    return segment.is_packed && segment.first < range.end &&
           std::int64_t{segment.first} + segment.outputs > range.begin;
}

LanePlan plan_of(const OpContext& context, const LinearJob& job, const SegmentView& segment,
                 const Pass& pass) {
    const auto dtype = static_cast<DType>(segment.dtype);
    const LaneRegistry& registry = *context.lanes.registry;
    const std::optional<LanePlan> plan =
        lane_plan({.step_rows = job.rows,
                   .rows = pass.rows,
                   .tiles = tile_count(segment.outputs, WeightOrder::kLanes),
                   .k = job.matrix->k,
                   .has_dp4a = registry.is_armed(dtype, LaneWay::kDp4a),
                   .has_hmma = registry.is_armed(dtype, LaneWay::kHmma)});
    assert(plan && "weights are packed for one of them");
    return *plan;
}

void launch_prepare(const OpContext& context, const LinearJob& job, const Pass& pass,
                    const LanePlan& plan) {
    PrepareLanesParams p{};
    p.rows = job.live_rows;
    p.first_row = static_cast<std::int32_t>(pass.first);
    p.input.x = job.x;
    p.input.x_stride = job.x_stride;
    p.input.row_map = job.row_map;
    p.input.weight = job.norm_weight;
    p.input.eps = job.norm_eps;
    p.input.k = static_cast<std::int32_t>(job.matrix->k);
    p.slabs = plan.stretches * kStretchSlabs;
    assert(p.slabs <= context.lanes.slabs && "prepare was told the largest K");
    p.columns = plan.columns;
    p.x = context.lanes.x;
    p.sides = context.lanes.sides;
    p.factors = context.lanes.factors;
    context.kernels->launch(
        plan.way == LaneWay::kDp4a ? KernelId::kQuantiseLanes : KernelId::kHalveLanes,
        {.x = plan.columns,
         .y = (p.slabs + kSlabsPerBlock - 1) / kSlabsPerBlock,
         .threads = kPrepareThreads,
         .shared_bytes = kPrepareSharedBytes},
        context.stream, p);
}

void launch_segment(const OpContext& context, const LinearJob& job, const OutputRange& range,
                    const SegmentView& segment, const Pass& pass, const LanePlan& plan) {
    LaneMatmulParams p{};
    p.rows = job.live_rows;
    p.first_row = static_cast<std::int32_t>(pass.first);
    p.records = segment.blocks;
    p.tiles = static_cast<std::int32_t>(tile_count(segment.outputs, WeightOrder::kLanes));
    p.k_records = static_cast<std::int32_t>(record_count(job.matrix->k));
    p.stretches = plan.stretches;
    p.columns = plan.columns;
    p.splits = plan.splits;
    p.x = context.lanes.x;
    p.sides = context.lanes.sides;
    p.factors = context.lanes.factors;
    p.partials = context.lanes.partials;
    p.bias = job.bias;
    p.y = range.y;
    p.y_stride = job.y_stride;
    p.outputs = segment.outputs;
    p.first_output = segment.first;
    p.begin = static_cast<std::int32_t>(range.begin);
    p.end = static_cast<std::int32_t>(range.end);
    p.epilogue = range.epilogue;
    assert(plan.partial_floats <= lane_partial_floats());
    const int type = matmul_type_index(static_cast<DType>(segment.dtype));
    context.kernels->launch(plan.way == LaneWay::kDp4a ? matmul_dp4a_kernel(type, plan.width)
                                                       : matmul_hmma_kernel(type),
                            {.x = plan.blocks,
                             .y = plan.splits,
                             .threads = plan.threads,
                             .shared_bytes = plan.shared_bytes},
                            context.stream, p);
    if (plan.splits > 1)
        context.kernels->launch(
            KernelId::kFinishLanes,
            {.x = (std::int64_t{segment.outputs} + kFinishThreads - 1) / kFinishThreads,
             .y = pass.rows,
             .threads = kFinishThreads},
            context.stream, p);
}

}  // namespace

void launch_lanes(const OpContext& context, const LinearJob& job, const OutputRange& range) {
    for (std::int64_t first = 0; first < job.rows; first += kLaneColumnsMax) {
        const Pass pass{first, std::min<std::int64_t>(kLaneColumnsMax, job.rows - first)};
        std::optional<LanePlan> prepared;  // what x was made for
        for (const SegmentView& segment : job.matrix->used()) {
            if (!touches(segment, range)) continue;
            assert(segment.has_lanes && range.epilogue != LinearEpilogue::kSwiGlu);
            const LanePlan plan = plan_of(context, job, segment, pass);
            if (!prepared || prepared->way != plan.way) launch_prepare(context, job, pass, plan);
            prepared = plan;
            launch_segment(context, job, range, segment, pass, plan);
        }
    }
}

}  // namespace kernels::cuda

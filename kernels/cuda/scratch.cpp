#include "kernels/cuda/scratch.h"

#include <algorithm>

#include "kernels/cuda/attention_cut.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/delta_net.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/pack_host.h"
#include "kernels/cuda/prefill_plan.h"
#include "kernels/cuda/prefill_table.h"
#include "kernels/cuda/sample_rows.h"

namespace kernels::cuda {
namespace {

constexpr std::int64_t kRowAlign = 64;  // floats
constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));

/// A model's vocabulary has more outputs than any other matrix.
std::int64_t tiles_max(const ScratchQuery& query) {
    std::int64_t tiles = std::max<std::int64_t>(1, tile_count(query.limits.vocabulary));
    for (const Matrix& matrix : query.matrices)
        for (const SegmentView& segment : matrix.used())
            tiles = std::max(tiles, tile_count(segment.outputs));
    return tiles;
}

/// Of any matrices: slices are cut to these limits, rounded up to tiles.
PrefillNeed prefill_need_max(const StepLimits& limits) {
    const PrefillLimits slices;
    const std::int64_t row_bytes = 2 * prefill_inputs(limits.inputs_max);
    return {.weights = std::max(slices.weight_bytes, kTileRows * row_bytes) + kTileRows * row_bytes,
            .sums = slices.sum_bytes + (kTileRows + 4) * limits.rows * kFloatBytes};
}

void plan_prefill(const ScratchQuery& query, ScratchPlan& plan) {
    const std::int64_t rows = query.limits.rows;
    if (!query.with_prefill || rows < kPrefillRows[0]) return;
    const PrefillNeed need = query.matrices.empty() ? prefill_need_max(query.limits)
                                                    : prefill_need(query.matrices, rows);
    if (need.weights == 0) return;
    plan.prefill_rows = rows;
    plan.prefill_exponents = rows * static_cast<std::int64_t>(sizeof(std::int32_t));
    plan.prefill_weights = need.weights;
    plan.prefill_sums = need.sums;
    plan.prefill_workspace = static_cast<std::int64_t>(LtProducts::kWorkspaceBytes);
}

}  // namespace

ScratchPlan scratch_plan(const ScratchQuery& query) {
    const StepLimits& limits = query.limits;
    ScratchPlan plan;
    plan.row_floats = (limits.inputs_max + kRowAlign - 1) / kRowAlign * kRowAlign;
    plan.k_records = record_count(limits.inputs_max);
    plan.rows = limits.rows * plan.row_floats * kFloatBytes;
    if (query.with_lanes) {
        plan.x_factors = kLaneColumnsMax * kFloatBytes;
        plan.lane_x = lane_x_bytes(limits.inputs_max);
        plan.lane_sides = lane_side_bytes(limits.inputs_max);
        plan.lane_partials = lane_partial_floats() * kFloatBytes;
    } else {
        plan.x = plan.k_records * wide_stage_bytes(kMatmulColumnsMax);
        plan.x_factors = kMatmulColumnsMax * kFloatBytes;
        plan.partials = matmul_partial_floats(query.multiprocessors) * kFloatBytes;
        plan.wide_parts = matmul_wide_part_floats(query.multiprocessors) * kFloatBytes;
        plan.matmul_arrivals = tiles_max(query) * kFloatBytes;
    }
    plan.attention_parts = attention_parts_floats(query.multiprocessors) * kFloatBytes;
    plan.attention_arrivals = kAttentionArrivals * kFloatBytes;
    plan.sampling = sample_rules_bytes(limits.logit_rows) + sample_drawn_bytes(limits.logit_rows);
    // There is no delta_chunk for sm_70.
    if (!query.with_lanes) plan.delta_chunk = delta_chunk_scratch_bytes(limits);
    plan_prefill(query, plan);
    return plan;
}

std::uint64_t ScratchPlan::device_bytes() const {
    constexpr std::int64_t kPageBytes = std::int64_t{2} << 20;
    std::int64_t sum = 0;
    for (const std::int64_t bytes :
         {rows, x, x_factors, partials, wide_parts, matmul_arrivals, lane_x, lane_sides,
          lane_partials, attention_parts, attention_arrivals, sampling, delta_chunk,
          prefill_exponents, prefill_weights, prefill_sums, prefill_workspace})
        sum += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    return static_cast<std::uint64_t>(sum);
}

void reserve_scratch(const ScratchPlan& plan, const DeviceFacts& facts, const Driver& driver,
                     Arena& arena, OpContext& op) {
    const auto take = [&](std::int64_t bytes) {
        return arena.take(static_cast<std::size_t>(bytes));
    };
    // Filled once: every launch leaves them as they were.
    const auto take_filled = [&](std::int64_t bytes, unsigned char value) {
        const DeviceAddress filled = take(bytes);
        check_cuda(driver,
                   driver.fill_bytes(filled, value, static_cast<std::size_t>(bytes), op.stream),
                   "filling of scratch");
        return filled;
    };
    const auto take_arrivals = [&](std::int64_t bytes) {
        return reinterpret_cast<std::uint32_t*>(take_filled(bytes, 0));
    };
    op.scratch = reinterpret_cast<float*>(take(plan.rows));
    op.scratch_stride = plan.row_floats;

    if (plan.lane_x > 0) {
        op.lanes.slabs =
            static_cast<std::int32_t>(plan.k_records * kRecordInputs / kLaneSlabInputs);
        op.lanes.x = reinterpret_cast<void*>(take(plan.lane_x));
        op.lanes.sides = reinterpret_cast<void*>(take(plan.lane_sides));
        op.lanes.factors = reinterpret_cast<float*>(take(plan.x_factors));
        op.lanes.partials = reinterpret_cast<float*>(take(plan.lane_partials));
    } else {
        op.matmul.k_records = static_cast<std::int32_t>(plan.k_records);
        op.matmul.x = reinterpret_cast<std::uint8_t*>(take(plan.x));
        op.matmul.x_factors = reinterpret_cast<float*>(take(plan.x_factors));
        op.matmul.partials = reinterpret_cast<float*>(take(plan.partials));
        constexpr unsigned char kNoPartByte = 0xFF;  // matmul_share.cuh
        op.matmul.wide_parts = reinterpret_cast<float*>(take_filled(plan.wide_parts, kNoPartByte));
        op.matmul.arrivals = take_arrivals(plan.matmul_arrivals);
    }
    op.matmul.multiprocessors = facts.multiprocessors;
    op.matmul.shared_bytes_max = facts.shared_bytes_max;

    op.attention.parts = reinterpret_cast<float*>(take(plan.attention_parts));
    op.attention.floats = plan.attention_parts / kFloatBytes;
    op.attention.arrivals = take_arrivals(plan.attention_arrivals);
    op.attention.multiprocessors = facts.multiprocessors;

    op.delta_chunk.bytes = plan.delta_chunk;
    if (plan.delta_chunk > 0)
        op.delta_chunk.scratch = reinterpret_cast<std::uint8_t*>(take(plan.delta_chunk));
}

}  // namespace kernels::cuda

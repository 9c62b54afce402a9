#include "kernels/cuda/lane_plan.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "kernels/cuda/lane_order.h"
#include "kernels/cuda/params.h"

namespace kernels::cuda {
namespace {

constexpr std::int64_t kHmmaStretchesLeast = 2;  // of a split: less is all beginning and end

std::int64_t stretch_count(std::int64_t k) {
    return (k + kStretchInputs - 1) / kStretchInputs;
}

LanePlan dp4a_plan(const LaneQuery& query) {
    const auto* width =
        std::ranges::find_if(kDp4aWidths, [&](int columns) { return columns >= query.rows; });
    assert(width != std::end(kDp4aWidths) && "rows are cut to passes");
    LanePlan plan;
    plan.way = LaneWay::kDp4a;
    plan.width = static_cast<std::int32_t>(width - std::begin(kDp4aWidths));
    plan.columns = *width;
    plan.blocks = query.tiles;
    plan.threads = kDp4aWarps * kLaneRows;
    plan.shared_bytes = kDp4aWarps * std::min(*width, kDp4aBatch) * kLaneRows *
                        static_cast<std::int32_t>(sizeof(float));
    return plan;
}

/// Of K: what a row's bits depend on, so that rows have no say.
std::int64_t hmma_splits(std::int64_t blocks, std::int64_t stretches) {
    const std::int64_t wanted = (kHmmaBlocksWanted + blocks - 1) / blocks;
    return std::clamp<std::int64_t>(stretches / kHmmaStretchesLeast, 1, wanted);
}

LanePlan hmma_plan(const LaneQuery& query) {
    LanePlan plan;
    plan.way = LaneWay::kHmma;
    plan.columns = static_cast<std::int32_t>((query.rows + kHmmaColumnStep - 1) / kHmmaColumnStep *
                                             kHmmaColumnStep);
    plan.blocks = (query.tiles + kHmmaWarps - 1) / kHmmaWarps;
    plan.splits = static_cast<std::int32_t>(hmma_splits(plan.blocks, stretch_count(query.k)));
    plan.threads = kHmmaWarps * kLaneRows;
    plan.shared_bytes = kHmmaSharedBytes;
    if (plan.splits > 1)
        plan.partial_floats = std::int64_t{plan.splits} * plan.columns * query.tiles * kLaneRows;
    return plan;
}

}  // namespace

std::optional<LanePlan> lane_plan(const LaneQuery& query) {
    assert(query.rows >= 1 && query.rows <= kLaneColumnsMax && query.tiles > 0 && query.k > 0);
    if (!query.has_dp4a && !query.has_hmma) return std::nullopt;
    const bool is_few = query.step_rows <= kDp4aFewColumns;
    const bool goes_by_dp4a = !query.has_hmma || (is_few && query.has_dp4a);
    LanePlan plan = goes_by_dp4a ? dp4a_plan(query) : hmma_plan(query);
    plan.stretches = static_cast<std::int32_t>(stretch_count(query.k));
    plan.numerics_id = static_cast<std::uint64_t>(plan.splits) << 33 |
                       static_cast<std::uint64_t>(query.k) << 1 |
                       static_cast<std::uint64_t>(plan.way);
    return plan;
}

std::int64_t lane_x_bytes(std::int64_t k_max) {
    constexpr std::int64_t kInputBytes = 2;  // binary16; int8 has one
    return stretch_count(k_max) * kStretchInputs * kInputBytes * kLaneColumnsMax;
}

std::int64_t lane_side_bytes(std::int64_t k_max) {
    return stretch_count(k_max) * kStretchSlabs * kLaneColumnsMax *
           static_cast<std::int64_t>(sizeof(LaneSide));
}

std::int64_t lane_partial_floats() {
    // splits <= wanted / blocks + 1, each of blocks * kHmmaWarps tiles.
    return 2 * std::int64_t{kHmmaBlocksWanted} * kHmmaWarps * kLaneRows * kHmmaColumnsMax;
}

}  // namespace kernels::cuda

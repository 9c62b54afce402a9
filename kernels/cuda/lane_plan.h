// The plan of a product on sm_70 with weights in the order of lane_order.h: pure host code, without
// CUDA.
//
//     up to 12 tokens      matmul_dp4a, as many columns as there are tokens, rounded up
//     more                 matmul_hmma, 64 at a time
//     one of them off      the other one, whatever the count
//
// The border is a published one, not ours: a fork for the V100 lost two to three times with its
// tensor cores below twelve rows. Nothing here was measured on a V100.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/tensor.h"

namespace kernels::cuda {

// matmul_dp4a: warps of a block, kernels by columns, columns that add their warps' sums at a time.
inline constexpr int kDp4aWarps = 8;
inline constexpr int kDp4aWidths[] = {1, 2, 4, 8, 12, 64};
inline constexpr int kDp4aFewColumns = 12;
inline constexpr int kDp4aBatch = 16;
// matmul_hmma: warps of a block, columns of a launch, shared memory, blocks that fill a V100.
inline constexpr int kHmmaWarps = 4;
inline constexpr int kHmmaColumnsMax = 64;
inline constexpr int kHmmaColumnStep = 16;
inline constexpr int kHmmaSharedBytes = 16384;
inline constexpr int kHmmaBlocksWanted = 160;
/// Tokens of a launch of either.
inline constexpr int kLaneColumnsMax = 64;

enum class LaneWay : std::uint8_t { kDp4a, kHmma };

struct LaneQuery {
    std::int64_t step_rows = 1;  // tokens of the whole step: they go one way
    std::int64_t rows = 1;       // of this launch, 1..kLaneColumnsMax
    std::int64_t tiles = 0;      // of 32 outputs
    std::int64_t k = 0;
    bool has_dp4a = true;
    bool has_hmma = true;
};

struct LanePlan {
    LaneWay way = LaneWay::kDp4a;
    std::int32_t width = 0;    // kDp4a: index into kDp4aWidths
    std::int32_t columns = 0;  // places of x
    std::int32_t stretches = 0;
    std::int32_t splits = 1;  // of K
    std::int64_t blocks = 0;  // for each split
    std::int32_t threads = 0;
    std::int32_t shared_bytes = 0;
    std::int64_t partial_floats = 0;
    std::uint64_t numerics_id = 0;  // equal ids: a row has equal bits
};

/// Nothing without either kernel.
std::optional<LanePlan> lane_plan(const LaneQuery& query);

/// Bytes of x, its sides and factors for 64 tokens, whichever way they go.
std::int64_t lane_x_bytes(std::int64_t k_max);
std::int64_t lane_side_bytes(std::int64_t k_max);
/// No plan needs more.
std::int64_t lane_partial_floats();

}  // namespace kernels::cuda

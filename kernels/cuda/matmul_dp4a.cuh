// matmul_dp4a: y = epilogue(W x) for few tokens on sm_70; weights are read and decoded once for all
// of them.
//
// Math      y[m, n] = sum over slabs of 32 inputs of scale_w * scale_x * (exact integer dot
// product),
//           in f32 and in order of k; minima meet the sums of x. x is int8 with a scale per 32
//           inputs (quantise_lanes), weights are the file's exact codes and scales
// Shapes    W [tiles, k_records] records of 32 rows x 256 inputs (lane_order.h); x [slabs][columns]
//           32 bytes and a LaneSide; y [rows, outputs] f32
// Moves     the records once; x, 1.5 bytes an input, once per tile of 32 rows
// Floor     bandwidth up to about a dozen tokens, then the integer pipe: a token costs 11
// instructions
//           per 32 weights (8 dot products, 3 to scale) beside 3 broadcast loads
// Plan      a block per tile, eight warps with a run of stretches each, a lane per row: a stretch
// is
//           four 16-byte loads of each lane, the next one on its way while one is multiplied. Sums
//           are added over the warps in their order. x comes from the L1, the same address in every
//           lane
// Laws      a row's bits depend on K alone: not on the other rows, nor on kColumns
#pragma once

#include "kernels/cuda/lane_format.cuh"
#include "kernels/cuda/lane_output.cuh"
#include "kernels/cuda/lane_plan.h"

namespace kernels::cuda {

/// An integer below 2^22 in size, counted from this, is a float's mantissa: no conversion.
inline constexpr int kFloatOrigin = 0x4B400000;
__device__ inline float float_from_origin(int value) {
    return __uint_as_float(static_cast<std::uint32_t>(value)) - 12582912.0F;
}

__device__ inline int dot16(const std::uint32_t* w, const uint4& x, int sum) {
    sum = dot4(static_cast<int>(w[0]), static_cast<int>(x.x), sum);
    sum = dot4(static_cast<int>(w[1]), static_cast<int>(x.y), sum);
    sum = dot4(static_cast<int>(w[2]), static_cast<int>(x.z), sum);
    return dot4(static_cast<int>(w[3]), static_cast<int>(x.w), sum);
}

/// What a slab of the lane's row gives to one column.
template <class Format>
__device__ inline float add_slab(const Format& format, const std::uint32_t (&w)[kSlabWords],
                                 const uint4* x, const LaneSide& side, float sum) {
    const uint4 first = load_x16(x);
    const uint4 last = load_x16(x + 1);
    if constexpr (Format::kGroupWords == 8) {
        int origin = kFloatOrigin;
        if constexpr (Format::kOffset != 0)
            origin -= Format::kOffset * (side.sums[0] + side.sums[1]);
        const int dot = dot16(w + 4, last, dot16(w, first, origin));
        sum = fmaf(format.scale(0) * side.scale, float_from_origin(dot), sum);
    } else {
        const int one = dot16(w, first, kFloatOrigin - Format::kOffset * side.sums[0]);
        const int other = dot16(w + 4, last, kFloatOrigin - Format::kOffset * side.sums[1]);
        sum = fmaf(format.scale(0) * side.scale, float_from_origin(one), sum);
        sum = fmaf(format.scale(1) * side.scale, float_from_origin(other), sum);
    }
    if constexpr (Format::kHasMinimum) sum = fmaf(-format.minimum(), side.sum, sum);
    return sum;
}

/// Adds the warps' sums in their order and stores them, some columns at a time.
template <int kColumns>
__device__ inline void finish_columns(const LaneMatmulParams& p, int tile, int live,
                                      const float (&sums)[kColumns]) {
    constexpr int kBatch = kColumns < kDp4aBatch ? kColumns : kDp4aBatch;
    auto* parts = reinterpret_cast<float*>(block_memory());  // [warps][kBatch][lanes]
    const int lane = lane_index();
#pragma unroll
    for (int begin = 0; begin < kColumns; begin += kBatch) {
        if (begin >= live) break;
        if (begin > 0) __syncthreads();  // the batch before has been read
#pragma unroll
        for (int c = 0; c < kBatch; ++c)
            parts[(warp_index() * kBatch + c) * kWarpLanes + lane] = sums[begin + c];
        __syncthreads();  // parts of all warps
        for (int c = warp_index(); c < kBatch; c += kDp4aWarps) {
            if (begin + c >= live) break;
            float sum = 0.0F;
#pragma unroll
            for (int w = 0; w < kDp4aWarps; ++w)
                sum += parts[(w * kBatch + c) * kWarpLanes + lane];
            store_lane_output(p, tile * kLaneRows + lane, begin + c, sum);
        }
    }
}

template <DType kType, int kColumns>
__device__ inline void matmul_dp4a(const LaneMatmulParams& p) {
    using Format = LaneFormat<kType>;
    constexpr int kUnrolled = kColumns <= 4 ? kStretchSlabs : 1;
    constexpr int kSkipped = 4;  // columns that are left out together where there are many
    const int live = min(*p.rows - p.first_row, kColumns);
    if (live <= 0) return;
    const int tile = static_cast<int>(blockIdx.x);
    const int first = p.stretches * warp_index() / kDp4aWarps;
    const int last = p.stretches * (warp_index() + 1) / kDp4aWarps;
    const std::uint8_t* records =
        p.records + std::int64_t{tile} * p.k_records * Format::Layout::kBytes;
    const auto load = [&](Format& format, int stretch) {
        format.load({records + std::int64_t{stretch / kRecordStretches} * Format::Layout::kBytes,
                     lane_index(), stretch % kRecordStretches});
    };
    float sums[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
        sums[c] = 0.0F;
    Format next;
    if (first < last) load(next, first);
    for (int stretch = first; stretch < last; ++stretch) {
        Format now = next;
        if (stretch + 1 < last) load(next, stretch + 1);
        const std::int64_t place = std::int64_t{stretch} * kStretchSlabs * kColumns;
        const uint4* x = static_cast<const uint4*>(p.x) + 2 * place;
        const LaneSide* sides = static_cast<const LaneSide*>(p.sides) + place;
#pragma unroll kUnrolled
        for (int slab = 0; slab < kStretchSlabs; ++slab) {
            std::uint32_t w[kSlabWords];
            now.words(w);
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
                if (kColumns > kDp4aFewColumns && c % kSkipped == 0 && c >= live) break;
                sums[c] = add_slab(now, w, x + 2 * c, sides[c], sums[c]);
            }
            now.next_slab();
            x += 2 * kColumns;
            sides += kColumns;
        }
    }
    finish_columns<kColumns>(p, tile, live, sums);
}

}  // namespace kernels::cuda

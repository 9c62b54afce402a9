// Tensor-core products in three bfloat16 terms: x = high + low with 16 bits of mantissa together,
// and x y = high high + low high + high low, which leaves relative errors near 1e-5. bfloat16 has
// the range of f32, so nothing needs scaling.
#pragma once

#include <cstdint>

#include "kernels/cuda/tensor_core.cuh"

namespace kernels::cuda {

/// Two values beside each other, in two parts.
struct SplitPair {
    std::uint32_t high, low;
};
__device__ inline SplitPair split_pair(float first, float second) {
    const std::uint32_t high = pack_bfloats(first, second);
    return {high, pack_bfloats(first - __uint_as_float(high << 16),
                               second - __uint_as_float(high & 0xffff0000U))};
}

/// A left operand.
struct SplitLeft {
    std::uint32_t high[4], low[4];

    /// From two sums side by side: a lane's places in them are those of an operand.
    __device__ void pack(const float (&left)[4], const float (&right)[4]) {
        const SplitPair pairs[4] = {split_pair(left[0], left[1]), split_pair(left[2], left[3]),
                                    split_pair(right[0], right[1]), split_pair(right[2], right[3])};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            high[i] = pairs[i].high;
            low[i] = pairs[i].low;
        }
    }
};

/// Right operands of two column tiles.
struct SplitRight {
    std::uint32_t high[4], low[4];
};

__device__ inline void add_product(float (&sum)[4], const SplitLeft& a, const SplitRight& b,
                                   int tile) {
    mma_bfloat(sum, a.high, b.high[2 * tile], b.high[2 * tile + 1]);
    mma_bfloat(sum, a.low, b.high[2 * tile], b.high[2 * tile + 1]);
    mma_bfloat(sum, a.high, b.low[2 * tile], b.low[2 * tile + 1]);
}

}  // namespace kernels::cuda

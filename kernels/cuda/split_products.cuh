// Products of a warpgroup in three bfloat16 terms (split_bfloat.cuh): left operands from sums in
// registers, right ones from pairs of tiles in shared memory.
#pragma once

#include "kernels/cuda/split_bfloat.cuh"
#include "kernels/cuda/wgmma_bfloat.cuh"

namespace kernels::cuda {

/// A right operand: descriptors of its two parts, the low one `tile_bytes` behind the high one.
struct SplitOperand {
    std::uint64_t high, low;
    __device__ SplitOperand(std::uint32_t address, int tile_bytes)
        : high(matrix_descriptor(address)), low(high + tile_bytes / kDescriptorBytes) {}
    /// `bytes` further on in both parts.
    __device__ SplitOperand at(int bytes) const {
        SplitOperand moved = *this;
        moved.high += bytes / kDescriptorBytes;
        moved.low += bytes / kDescriptorBytes;
        return moved;
    }
    static constexpr int kDescriptorBytes = 16;  // that an address counts in
};

/// A left operand of 16 inner columns: columns 16 part .. of sums.
__device__ inline SplitLeft split_left(const WarpgroupSums& d, int part) {
    const int i = 8 * part;
    const float left[4] = {d[i], d[i + 1], d[i + 2], d[i + 3]};
    const float right[4] = {d[i + 4], d[i + 5], d[i + 6], d[i + 7]};
    SplitLeft split;
    split.pack(left, right);
    return split;
}

/// The three terms.
template <bool kAdds>
__device__ inline void multiply_split_rows(WarpgroupSums& d, const SplitLeft& a,
                                           const SplitOperand& b) {
    multiply_rows<kAdds>(d, a.high, b.high);
    multiply_rows<true>(d, a.low, b.high);
    multiply_rows<true>(d, a.high, b.low);
}
__device__ inline void multiply_split_columns(WarpgroupSums& d, const SplitLeft& a,
                                              const SplitOperand& b) {
    multiply_columns(d, a.high, b.high);
    multiply_columns(d, a.low, b.high);
    multiply_columns(d, a.high, b.low);
}

}  // namespace kernels::cuda

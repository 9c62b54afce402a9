// linear: y = epilogue(W x) on the file's own blocks, decoded on the fly, nothing quantised.
//
// Math      y[m, n] = sum_k W[n, k] x[m, k] in f32, a lane's sum by fused multiply-adds in order
//           of k, lanes added as a tree
// Shapes    W [outputs, k] rows of blocks; x [*, k rounded up to 8] f32; y [rows, outputs] f32
// Moves     outputs * row_bytes for each pass of kColumns rows; x comes from the caches
// Floor     bandwidth: 27B ffn_down (5120 x 17408, IQ4_XS) moves 47.3 MB, 12.1 us measured
// Achieved  kernels/cuda/README.md; this is the plain version, bound by decode instructions and
//           by the loads of x
// Plan      one warp per output row, eight weights per lane and turn, 1 or 8 rows of x a pass
// Laws      a row's bits depend on neither the other rows nor the pass it falls into
#pragma once

#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

inline constexpr int kLinearWarps = 8;  // output rows per block
inline constexpr int kLinearThreads = kLinearWarps * kWarpLanes;

__device__ inline void finish_output(const LinearParams& p, int m, int n, float value) {
    if (p.bias != nullptr) value += p.bias[n];
    finish_value(p.epilogue, p.y + m * p.y_stride + n, value);
}

template <class Format, int kColumns>
__device__ void linear(const LinearParams& p) {
    const int n = static_cast<int>(blockIdx.x) * kLinearWarps + warp_index();
    const int m0 = static_cast<int>(blockIdx.y) * kColumns;
    const int columns = min(kColumns, *p.rows - m0);
    if (n >= p.outputs || columns <= 0) return;
    const std::uint8_t* row = p.blocks + n * p.row_bytes;
    const float* x[kColumns];
    float sum[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
        const int m = m0 + min(c, columns - 1);
        x[c] = p.x + (p.row_map != nullptr ? p.row_map[m] : m) * p.x_stride;
        sum[c] = 0.0F;
    }
    for (int k = lane_index() * kGroup; k < p.k; k += kWarpLanes * kGroup) {
        float w[kGroup];
        Format::decode(row, k, p.k, w);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
            if (c >= columns) continue;  // the same for the whole block
            const float4 a = *reinterpret_cast<const float4*>(x[c] + k);
            const float4 b = *reinterpret_cast<const float4*>(x[c] + k + 4);
            const float v[kGroup] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
            for (int j = 0; j < kGroup; ++j)
                sum[c] = fmaf(w[j], v[j], sum[c]);
        }
    }
    float mine = 0.0F;  // lane c keeps column c
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
        const float total = warp_sum(sum[c]);
        if (lane_index() == c) mine = total;
    }
    if (lane_index() < columns) finish_output(p, m0 + lane_index(), n, mine);
}

}  // namespace kernels::cuda

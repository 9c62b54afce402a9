// T = (I + A)^-1 of delta_chunk_prepare, A strictly lower triangular, by forward substitution in
// place of A: a thread per column, 16 rows at a time, in little code.
#pragma once

#include "kernels/cuda/delta_chunk.h"
#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

inline constexpr int kSolvedRows = 16;  // at a time

/// t -= A x for 16 rows of A, `a` at the first of their columns k .. k + 3.
__device__ inline void subtract_columns(float (&t)[kSolvedRows], const float* a,
                                        const float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < kSolvedRows; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(a + i * kChunkStride);
        t[i] = fmaf(-four.x, x[0], t[i]);
        t[i] = fmaf(-four.y, x[1], t[i]);
        t[i] = fmaf(-four.z, x[2], t[i]);
        t[i] = fmaf(-four.w, x[3], t[i]);
    }
}
/// t <- (I + A)^-1 t for the 16 x 16 square of A that `a` is at.
__device__ inline void solve_square(float (&t)[kSolvedRows], const float* a) {
#pragma unroll
    for (int i = 1; i < kSolvedRows; ++i)
#pragma unroll
        for (int k = 0; k < i; k += 4) {
            const float4 four = *reinterpret_cast<const float4*>(a + i * kChunkStride + k);
            t[i] = fmaf(-four.x, t[k], t[i]);
            if (k + 1 < i) t[i] = fmaf(-four.y, t[k + 1], t[i]);
            if (k + 2 < i) t[i] = fmaf(-four.z, t[k + 2], t[i]);
            if (k + 3 < i) t[i] = fmaf(-four.w, t[k + 3], t[i]);
        }
}
/// Column `column` of T = (I + A)^-1 in place of A's, by forward substitution; all threads of the
/// block, those that are idle too.
__device__ inline void invert_column(float* a, int column, bool is_idle) {
    const int first = column / kWarpLanes * kWarpLanes;  // of the warp; T's rows before are zeros
#pragma unroll 1
    for (int row0 = 0; row0 < kChunkRows; row0 += kSolvedRows) {
        float* rows = a + row0 * kChunkStride;
        float t[kSolvedRows];
#pragma unroll
        for (int i = 0; i < kSolvedRows; ++i)
            t[i] = row0 + i == column ? 1.0F : 0.0F;
        if (!is_idle && row0 >= first) {  // the same for the whole warp
#pragma unroll 1
            for (int k = first; k < row0; k += 4) {
                const float* known = a + k * kChunkStride + column;
                const float x[4] = {known[0], known[kChunkStride], known[2 * kChunkStride],
                                    known[3 * kChunkStride]};
                subtract_columns(t, rows + k, x);
            }
            solve_square(t, rows + row0);
        }
        __syncthreads();  // these rows of A are read
        if (!is_idle) {
#pragma unroll
            for (int i = 0; i < kSolvedRows; ++i)
                rows[i * kChunkStride + column] = t[i];
        }
        __syncthreads();  // and are T's
    }
}

}  // namespace kernels::cuda

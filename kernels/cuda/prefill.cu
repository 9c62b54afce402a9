// What stands around a product by cuBLASLt: x as binary16 in front, epilogues behind.
//
// cast_rows     x16[m] = binary16(2^-e[m] * norm(x[m])), zeros behind k; e is 0 for a row whose
// largest
//               value lies in [2^-6, 2^15), else it puts that value into [1, 2). The rare row with
//               another e has its y multiplied by 2^-e where the product is to be added to y:
//               finish_rows multiplies it back, so that all of it is exact
// finish_rows   y[m] = 2^e[m] * y[m] + bias, of rows that need it
// finish_sums   y[m, n] = epilogue(2^e[m] * sums[m, n] + bias), for SwiGLU and for y that cuBLASLt
//               cannot write
// Shapes        x [*, k] f32; x16 [rows, ld]; sums [rows, width] f32; y [rows, *] f32
// Moves         rows * 6 k bytes; as a rule nothing; rows * width * (4 + 4 or 2) bytes
// Floor         the copy ceiling
// Laws          a row's bits depend on that row alone
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = kCastThreads;
constexpr int kBias = 127;  // of f32's exponent
constexpr int kLowest = kBias - 6;
constexpr int kHighest = kBias + 15;

struct RowFacts {
    float squares, largest;
};

/// Of the whole block, the same in every thread.
__device__ RowFacts reduce(RowFacts own) {
    __shared__ float squares[kThreads / kWarpLanes], largest[kThreads / kWarpLanes];
    own.squares = warp_sum(own.squares);
    own.largest = __uint_as_float(__reduce_max_sync(~0U, __float_as_uint(own.largest)));
    if (lane_index() == 0) {
        squares[warp_index()] = own.squares;
        largest[warp_index()] = own.largest;
    }
    __syncthreads();
    RowFacts all{0.0F, 0.0F};
    for (int w = 0; w < static_cast<int>(blockDim.x) / kWarpLanes; ++w) {
        all.squares += squares[w];
        all.largest = fmaxf(all.largest, largest[w]);
    }
    return all;
}

__device__ float two_to(int exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(exponent + kBias) << 23);
}

/// 0 for ordinary rows, zeros, infinities and NaN.
__device__ int row_exponent(float largest) {
    const int biased = static_cast<int>(__float_as_uint(largest) >> 23);
    if (biased == 255 || largest == 0.0F || (biased >= kLowest && biased < kHighest)) return 0;
    // Both 2^e and 2^-e are normal.
    return max(-120, min(120, biased - kBias));
}

/// Inputs k .. k + 7 of x; zeros behind the end.
__device__ void load8(const CastRowsParams& p, const float* x, int k, float (&v)[8]) {
    if (p.is_wide && k + 8 <= p.input.k) {
        const float4 a = *reinterpret_cast<const float4*>(x + k);
        const float4 b = *reinterpret_cast<const float4*>(x + k + 4);
        const float loaded[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int j = 0; j < 8; ++j)
            v[j] = loaded[j];
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j)
            v[j] = k + j < p.input.k ? x[k + j] : 0.0F;
    }
}
/// Input j of eight from k on, times its weight.
__device__ float weighted(const CastRowsParams& p, const float (&v)[8], int k, int j) {
    if (p.input.weight == nullptr) return v[j];
    return k + j < p.input.k ? v[j] * p.input.weight[k + j] : 0.0F;
}

/// Eight inputs from k on to x16.
__device__ void store8(const CastRowsParams& p, std::uint16_t* to, const float (&v)[8], int k,
                       float factor, float down) {
    std::uint32_t pairs[4];
#pragma unroll
    for (int j = 0; j < 8; j += 2)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;"
            : "=r"(pairs[j / 2])
            : "f"(weighted(p, v, k, j + 1) * factor * down),
              "f"(weighted(p, v, k, j) * factor * down));
    store_global16(to + k, {pairs[0], pairs[1], pairs[2], pairs[3]});
}

/// A thread keeps its first kHeld groups of eight between the two passes; what is behind them is
/// read twice.
template <int kHeld>
__device__ void cast_row(const CastRowsParams& p) {
    let_next_kernel_start();
    wait_for_previous_kernel();
    const int m = static_cast<int>(blockIdx.x);
    const int step = 8 * static_cast<int>(blockDim.x);
    const int first = 8 * static_cast<int>(threadIdx.x);
    std::uint16_t* y16 = p.x16 + m * p.ld;
    if (m >= *p.rows) {  // a captured step with fewer rows: zeros travel nowhere
        for (int k = first; k < p.ld; k += step)
            *reinterpret_cast<uint4*>(y16 + k) = {};
        if (threadIdx.x == 0) p.exponents[m] = 0;
        return;
    }
    const float* x =
        p.input.x + (p.input.row_map != nullptr ? p.input.row_map[m] : m) * p.input.x_stride;
    RowFacts facts{0.0F, 0.0F};
    const auto see = [&](const float(&v)[8], int k) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            facts.squares = fmaf(v[j], v[j], facts.squares);
            facts.largest = fmaxf(facts.largest, fabsf(weighted(p, v, k, j)));
        }
    };
    float held[kHeld][8], rest[8];
#pragma unroll
    for (int i = 0; i < kHeld; ++i)  // all on their way before the first is used
        if (first + i * step < p.ld) load8(p, x, first + i * step, held[i]);
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
        if (first + i * step < p.ld) see(held[i], first + i * step);
    for (int k = first + kHeld * step; k < p.ld; k += step) {
        load8(p, x, k, rest);
        see(rest, k);
    }
    facts = reduce(facts);
    const float factor =
        p.input.weight == nullptr
            ? 1.0F
            : 1.0F / sqrtf(facts.squares / static_cast<float>(p.input.k) + p.input.eps);
    const int exponent = row_exponent(facts.largest * factor);
    const float down = two_to(-exponent);
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
        if (first + i * step < p.ld) store8(p, y16, held[i], first + i * step, factor, down);
    for (int k = first + kHeld * step; k < p.ld; k += step) {
        load8(p, x, k, rest);
        store8(p, y16, rest, k, factor, down);
    }
    if (threadIdx.x == 0) p.exponents[m] = exponent;
    if (exponent == 0 || p.added == nullptr) return;
    for (int n = static_cast<int>(threadIdx.x); n < p.added_columns;
         n += static_cast<int>(blockDim.x))
        p.added[m * p.added_stride + n] *= down;
}

}  // namespace

// Block: one row.
extern "C" __global__ void __launch_bounds__(kThreads, 2)
    cast_rows(const __grid_constant__ CastRowsParams p) {
    cast_row<4>(p);
}
extern "C" __global__ void __launch_bounds__(kCastShortThreads, 4)
    cast_rows_short(const __grid_constant__ CastRowsParams p) {
    cast_row<kCastShortInputs / 8 / kCastShortThreads>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    finish_rows(const __grid_constant__ FinishParams p) {
    let_next_kernel_start();
    wait_for_previous_kernel();
    const int m = static_cast<int>(blockIdx.x);
    if (m >= *p.rows) return;
    const int exponent = p.exponents[m];
    if (exponent == 0 && p.bias == nullptr) return;
    const float up = two_to(exponent);
    float* y = p.y + m * p.y_stride;
    for (int n = static_cast<int>(threadIdx.x); n < p.columns; n += kThreads)
        y[n] = p.bias != nullptr ? fmaf(y[n], up, p.bias[n]) : y[n] * up;
}

namespace {

/// A sum of the product as its output, 2^e taken back and the bias added.
__device__ float finished(const FinishParams& p, float sum, float up, int column) {
    return p.bias != nullptr ? fmaf(sum, up, p.bias[column]) : sum * up;
}
__device__ float with_epilogue(const FinishParams& p, float y, float value) {
    if (p.epilogue == LinearEpilogue::kAdd) return y + value;
    if (p.epilogue == LinearEpilogue::kSiluTimes) return y * sigmoid(y) * value;
    return value;
}

}  // namespace

// Block: kThreads times four columns of a row.
extern "C" __global__ void __launch_bounds__(kThreads)
    finish_sums(const __grid_constant__ FinishParams p) {
    let_next_kernel_start();
    wait_for_previous_kernel();
    const int m = static_cast<int>(blockIdx.y);
    if (m >= *p.rows) return;
    const int n =
        kFinishColumns * (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x));
    if (n >= p.columns) return;
    const bool is_pair = p.epilogue == LinearEpilogue::kSwiGlu;
    const float up = two_to(p.exponents[m]);
    // SwiGLU: 8 of the first half, 8 of the second, in turn.
    const float* sums = p.sums + m * p.sums_stride + (is_pair ? n / 8 * 16 + n % 8 : n);
    float* y = p.y + m * p.y_stride + n;
    if (p.is_wide && n + kFinishColumns <= p.columns) {
        const float4 first = *reinterpret_cast<const float4*>(sums);
        const float4 second = is_pair ? *reinterpret_cast<const float4*>(sums + 8) : float4{};
        const float4 before =
            p.epilogue == LinearEpilogue::kAdd || p.epilogue == LinearEpilogue::kSiluTimes
                ? *reinterpret_cast<const float4*>(y)
                : float4{};
        const float a[] = {first.x, first.y, first.z, first.w};
        const float b[] = {second.x, second.y, second.z, second.w};
        const float c[] = {before.x, before.y, before.z, before.w};
        float out[kFinishColumns];
#pragma unroll
        for (int i = 0; i < kFinishColumns; ++i) {
            const float value = finished(p, a[i], up, n + i);
            out[i] = is_pair ? value * sigmoid(value) * finished(p, b[i], up, p.half + n + i)
                             : with_epilogue(p, c[i], value);
        }
        *reinterpret_cast<float4*>(y) = {out[0], out[1], out[2], out[3]};
        return;
    }
    for (int i = 0; i < kFinishColumns && n + i < p.columns; ++i) {
        const float value = finished(p, sums[i], up, n + i);
        y[i] = is_pair ? value * sigmoid(value) * finished(p, sums[i + 8], up, p.half + n + i)
                       : with_epilogue(p, y[i], value);
    }
}

}  // namespace kernels::cuda

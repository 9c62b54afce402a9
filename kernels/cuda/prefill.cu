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

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kBias = 127;  // of f32's exponent
constexpr int kLowest = kBias - 6;
constexpr int kHighest = kBias + 15;

struct RowFacts {
    float squares, largest;
};

/// Of the whole block, the same in every thread.
__device__ RowFacts reduce(RowFacts own) {
    __shared__ float squares[kWarps], largest[kWarps];
    own.squares = warp_sum(own.squares);
    own.largest = __uint_as_float(__reduce_max_sync(~0U, __float_as_uint(own.largest)));
    if (lane_index() == 0) {
        squares[warp_index()] = own.squares;
        largest[warp_index()] = own.largest;
    }
    __syncthreads();
    RowFacts all{0.0F, 0.0F};
    for (int w = 0; w < kWarps; ++w) {
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

/// Inputs k .. k + 7 of x, times weights; zeros behind the end.
__device__ void load8(const CastRowsParams& p, const float* x, int k, float (&v)[8],
                      float (&raw)[8]) {
    if (p.is_wide && k + 8 <= p.input.k) {
        const float4 a = *reinterpret_cast<const float4*>(x + k);
        const float4 b = *reinterpret_cast<const float4*>(x + k + 4);
        const float loaded[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int j = 0; j < 8; ++j)
            raw[j] = loaded[j];
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j)
            raw[j] = k + j < p.input.k ? x[k + j] : 0.0F;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j)
        v[j] = p.input.weight == nullptr
                   ? raw[j]
                   : raw[j] * (k + j < p.input.k ? p.input.weight[k + j] : 0.0F);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    cast_rows(const __grid_constant__ CastRowsParams p) {
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int m = static_cast<int>(blockIdx.x);
    std::uint16_t* y16 = p.x16 + m * p.ld;
    const int first = 8 * static_cast<int>(threadIdx.x);
    constexpr int kStep = 8 * kThreads;
    if (m >= *p.rows) {  // a captured step with fewer rows: zeros travel nowhere
        for (int k = first; k < p.ld; k += kStep)
            *reinterpret_cast<uint4*>(y16 + k) = {};
        if (threadIdx.x == 0) p.exponents[m] = 0;
        return;
    }
    const float* x =
        p.input.x + (p.input.row_map != nullptr ? p.input.row_map[m] : m) * p.input.x_stride;
    RowFacts facts{0.0F, 0.0F};
    for (int k = first; k < p.ld; k += kStep) {
        float v[8], raw[8];
        load8(p, x, k, v, raw);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            facts.squares = fmaf(raw[j], raw[j], facts.squares);
            facts.largest = fmaxf(facts.largest, fabsf(v[j]));
        }
    }
    facts = reduce(facts);
    const float factor =
        p.input.weight == nullptr
            ? 1.0F
            : 1.0F / sqrtf(facts.squares / static_cast<float>(p.input.k) + p.input.eps);
    const int exponent = row_exponent(facts.largest * factor);
    const float down = two_to(-exponent);
    for (int k = first; k < p.ld; k += kStep) {
        float v[8], raw[8];
        load8(p, x, k, v, raw);
        std::uint32_t pairs[4];
#pragma unroll
        for (int j = 0; j < 8; j += 2)
            asm("cvt.rn.f16x2.f32 %0, %1, %2;"
                : "=r"(pairs[j / 2])
                : "f"(v[j + 1] * factor * down), "f"(v[j] * factor * down));
        *reinterpret_cast<uint4*>(y16 + k) = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
    if (threadIdx.x == 0) p.exponents[m] = exponent;
    if (exponent == 0 || p.added == nullptr) return;
    for (int n = static_cast<int>(threadIdx.x); n < p.added_columns; n += kThreads)
        p.added[m * p.added_stride + n] *= down;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    finish_rows(const __grid_constant__ FinishParams p) {
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int m = static_cast<int>(blockIdx.x);
    if (m >= *p.rows) return;
    const int exponent = p.exponents[m];
    if (exponent == 0 && p.bias == nullptr) return;
    const float up = two_to(exponent);
    float* y = p.y + m * p.y_stride;
    for (int n = static_cast<int>(threadIdx.x); n < p.columns; n += kThreads)
        y[n] = p.bias != nullptr ? fmaf(y[n], up, p.bias[n]) : y[n] * up;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    finish_sums(const __grid_constant__ FinishParams p) {
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int m = static_cast<int>(blockIdx.y);
    if (m >= *p.rows) return;
    const int n = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (n >= p.columns) return;
    const float up = two_to(p.exponents[m]);
    const float* sums = p.sums + m * p.sums_stride;
    float* y = p.y + m * p.y_stride + n;
    if (p.epilogue == LinearEpilogue::kSwiGlu) {  // 8 of the first half, 8 of the second, in turn
        const int at = n / 8 * 16 + n % 8;
        float a = sums[at] * up;
        float b = sums[at + 8] * up;
        if (p.bias != nullptr) {
            a += p.bias[n];
            b += p.bias[p.half + n];
        }
        *y = a * sigmoid(a) * b;
        return;
    }
    float value = sums[n] * up;
    if (p.bias != nullptr) value += p.bias[n];
    if (p.epilogue == LinearEpilogue::kStore) *y = value;
    if (p.epilogue == LinearEpilogue::kAdd) *y += value;
    if (p.epilogue == LinearEpilogue::kSiluTimes) *y = *y * sigmoid(*y) * value;
}

}  // namespace kernels::cuda

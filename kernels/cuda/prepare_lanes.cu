// quantise_lanes, halve_lanes: rows of x as matmul_dp4a and matmul_hmma read them; finish_lanes:
// the parts of a split K become outputs.
//
// Math      v = x * weight, over rms(x) where there is a norm. int8: a scale per 32 inputs, the
// largest
//           |v| / 127. binary16: v / s, s the power of two that puts the row's largest |v| into
//           [2^13, 2^14); what remains, s over rms, multiplies finished sums
// Shapes    x [*, k] f32; int8 [slabs][columns] 32 bytes and a LaneSide; binary16 [slabs][columns]
// 64
//           bytes and the f32 sum of the rounded values. parts [splits][columns][rows] f32
// Moves     rows * (4 + 1.5) k or rows * (8 + 2) k bytes; parts once
// Floor     a launch
// Plan      a few blocks per row, each of which looks over all of it, and deals with some slabs: a
//           warp per slab, a lane per input; sums by shuffles
// Laws      a NaN or an infinity in a row makes all outputs of that row NaN or infinite, as in f32
#include "kernels/cuda/lane_order.h"
#include "kernels/cuda/lane_output.cuh"
#include "kernels/cuda/power_of_two.cuh"
#include "kernels/cuda/volta_core.cuh"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr float kCodeMax = 127.0F;

/// A block's row: x and weight, without the factor of the norm.
struct LaneInput {
    const float* x;
    const float* weight;
    int k;
    __device__ float at(int i) const {
        if (i >= k) return 0.0F;
        return weight != nullptr ? x[i] * weight[i] : x[i];
    }
};

__device__ LaneInput input_row(const PrepareLanesParams& p, int m) {
    const XInput& in = p.input;
    return {in.x + (in.row_map != nullptr ? in.row_map[m] : m) * in.x_stride, in.weight, in.k};
}

/// 1 / rms, the same bits in every thread; 1 without a norm.
__device__ float factor_of(const PrepareLanesParams& p, const LaneInput& row) {
    if (row.weight == nullptr) return 1.0F;
    auto* parts = reinterpret_cast<float*>(block_memory());  // [kWarps]
    float squares = 0.0F;
    for (int i = static_cast<int>(threadIdx.x); i < row.k; i += kThreads)
        squares = fmaf(row.x[i], row.x[i], squares);
    squares = warp_sum(squares);
    if (lane_index() == 0) parts[warp_index()] = squares;
    __syncthreads();  // all warps' squares
    float sum = 0.0F;
    for (int w = 0; w < kWarps; ++w)
        sum += parts[w];
    return 1.0F / sqrtf(sum / static_cast<float>(row.k) + p.input.eps);
}

/// Bits of the largest |v|; those of a NaN are above all others.
__device__ std::uint32_t largest_of(const LaneInput& row) {
    auto* parts = reinterpret_cast<std::uint32_t*>(block_memory()) + kWarps;  // [kWarps]
    std::uint32_t largest = 0;
    for (int i = static_cast<int>(threadIdx.x); i < row.k; i += kThreads)
        largest = max(largest, __float_as_uint(row.at(i)) & 0x7FFFFFFFU);
    largest = warp_max(largest);
    if (lane_index() == 0) parts[warp_index()] = largest;
    __syncthreads();  // all warps' largest
    for (int w = 0; w < kWarps; ++w)
        largest = max(largest, parts[w]);
    return largest;
}

/// Slabs of a row are dealt over the warps of its blocks.
__device__ int first_slab() {
    return static_cast<int>(blockIdx.y) * kWarps + warp_index();
}
__device__ int slab_stride() {
    return static_cast<int>(gridDim.y) * kWarps;
}

/// Over sixteen lanes.
__device__ int half_warp_sum(int value) {
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2)
        value += __shfl_xor_sync(~0U, value, distance);
    return value;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    quantise_lanes(const __grid_constant__ PrepareLanesParams p) {
    const int place = static_cast<int>(blockIdx.x);
    const int m = p.first_row + place;
    const bool is_live = m < *p.rows;
    LaneInput row{nullptr, nullptr, 0};  // zeros
    float factor = 1.0F;
    if (is_live) {
        row = input_row(p, m);
        factor = factor_of(p, row);
    }
    const int lane = lane_index();
    for (int slab = first_slab(); slab < p.slabs; slab += slab_stride()) {
        const float v = factor * row.at(slab * kLaneSlabInputs + lane);
        const float largest = __uint_as_float(warp_max(__float_as_uint(v) & 0x7FFFFFFFU));
        const float scale = largest / kCodeMax;
        const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
        // A subnormal scale has no inverse: such a slab counts as zero.
        const float code = rintf(v * inverse);
        const int q = fabsf(code) <= kCodeMax ? static_cast<int>(code) : 0;
        const int sum = half_warp_sum(q);
        const int first = __shfl_sync(~0U, sum, 0);
        const int last = __shfl_sync(~0U, sum, kWarpLanes / 2);
        const std::int64_t at = std::int64_t{slab} * p.columns + place;
        static_cast<std::int8_t*>(p.x)[at * kLaneSlabInputs + lane] = static_cast<std::int8_t>(q);
        if (lane == 0)
            static_cast<LaneSide*>(p.sides)[at] = {
                scale, {first, last}, scale * static_cast<float>(first + last)};
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    halve_lanes(const __grid_constant__ PrepareLanesParams p) {
    const int place = static_cast<int>(blockIdx.x);
    const int m = p.first_row + place;
    const bool is_live = m < *p.rows;
    LaneInput row{nullptr, nullptr, 0};  // zeros
    float factor = 0.0F;
    PowerOfTwo unit{1.0F, 1.0F};
    if (is_live) {
        row = input_row(p, m);
        factor = factor_of(p, row);
        unit = unit_of(largest_of(row));
    }
    const int lane = lane_index();
    for (int slab = first_slab(); slab < p.slabs; slab += slab_stride()) {
        const float v = row.at(slab * kLaneSlabInputs + lane);
        const std::uint16_t half = float_to_half(v * unit.inverse);
        const std::int64_t at = std::int64_t{slab} * p.columns + place;
        // Words of 16 bytes, so that those of eight columns lie in different banks.
        const int word = (lane / 8) ^ (place / 2 % 4);
        static_cast<std::uint16_t*>(p.x)[at * kLaneSlabInputs + 8 * word + lane % 8] = half;
        const float sum = warp_sum(half_to_float(half));
        if (lane == 0) static_cast<float*>(p.sides)[at] = sum;
    }
    if (blockIdx.y == 0 && threadIdx.x == 0) p.factors[place] = unit.value * factor;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    finish_lanes(const __grid_constant__ LaneMatmulParams p) {
    const int n = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    const int column = static_cast<int>(blockIdx.y);
    if (n >= p.outputs || p.first_row + column >= *p.rows) return;
    const std::int64_t rows = std::int64_t{p.tiles} * kLaneRows;
    float sum = 0.0F;
    for (int split = 0; split < p.splits; ++split)
        sum += p.partials[(std::int64_t{split} * p.columns + column) * rows + n];
    store_lane_output(p, n, column, sum * p.factors[column]);
}

}  // namespace kernels::cuda

// prepare_wide: rows of x as matmul_wide reads them.
//
// Math      v = x * weight; y = binary16(v / s), s the power of two that puts the row's largest |v|
//           into [2^13, 2^14); factor = s / rms(x), which multiplies the finished sums
// Shapes    x [*, k] f32; y [k_records] stages of `columns` rows (matmul_cut.h); factors [columns]
// Moves     rows * (4 + 2) k bytes
// Floor     a launch
// Plan      one block per row, one warp per record, eight inputs beside each other a lane: a chunk
//           of an atom. What a lane reads of x is on its way together, and stays in registers from
//           the search for the largest to the rounding
// Overlap   the norm's weights come to the L2 before the wait for the kernel in front
#include "kernels/cuda/matmul_cut.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/x_record.cuh"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kRecordsPerWarp = kMatmulInputsMax / kRecordInputs / kWarps;

/// Inputs 8 lane .. 8 lane + 7 of record `record`; zeros past k, which is a multiple of 8.
__device__ void load_straight(const float* row, int record, int k, bool is_paired,
                              float (&v)[kChunkInputs]) {
    const int first = record * kRecordInputs + kChunkInputs * lane_index();
    if (first >= k) {
#pragma unroll
        for (float& value : v)
            value = 0.0F;
    } else if (is_paired) {
#pragma unroll
        for (int j = 0; j < kChunkInputs; j += 2) {
            const float2 two = *reinterpret_cast<const float2*>(row + first + j);
            v[j] = two.x;
            v[j + 1] = two.y;
        }
    } else {
#pragma unroll
        for (int j = 0; j < kChunkInputs; ++j)
            v[j] = row[first + j];
    }
}

/// Where a row's chunk of a record lies: a swapped chunk of an atom (matmul_wgmma.cuh).
__device__ std::uint8_t* chunk_of(const PrepareXParams& p, int record, int place) {
    const int atom = lane_index() / 8;
    const int chunk = lane_index() % 8 ^ place % 8;
    return p.y + std::int64_t{record} * wide_stage_bytes(p.columns) + place / 8 * kWideGroupBytes +
           atom * kWideAtomBytes + place % 8 * 128 + 16 * chunk;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    prepare_wide(const __grid_constant__ PrepareXParams p) {
    __shared__ float squares[kWarps];
    __shared__ std::uint32_t largest[kWarps];
    const int place = static_cast<int>(blockIdx.x);
    const int lane = lane_index();
    const float* weight = p.input.weight;
    const int k = p.input.k;
    if (weight != nullptr)
        for (int i = kWarpLanes * static_cast<int>(threadIdx.x); i < k; i += kWarpLanes * kThreads)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(weight + i));
    let_next_kernel_start();
    // The step was written by a copy in front of all kernels: read before the wait.
    const int m = p.first_row + place;
    const bool is_live = m < *p.rows;
    const int from = is_live && p.input.row_map != nullptr ? p.input.row_map[m] : m;
    wait_for_previous_kernel();
    if (!is_live) return;
    const float* row = p.input.x + from * p.input.x_stride;
    float v[kRecordsPerWarp][kChunkInputs];
#pragma unroll
    for (int i = 0; i < kRecordsPerWarp; ++i)
        load_straight(row, warp_index() + kWarps * i, k, p.input.is_paired, v[i]);
    float sum = 0.0F;
    float peak = 0.0F;
#pragma unroll
    for (int i = 0; i < kRecordsPerWarp; ++i) {
        const int record = warp_index() + kWarps * i;
        if (weight != nullptr && record < p.k_records) {
            float w[kChunkInputs];
            load_straight(weight, record, k, p.input.is_paired, w);
#pragma unroll
            for (int j = 0; j < kChunkInputs; ++j) {
                sum = fmaf(v[i][j], v[i][j], sum);
                v[i][j] *= w[j];
            }
        }
#pragma unroll
        for (const float value : v[i])
            peak = fmaxf(peak, fabsf(value));
    }
    const std::uint32_t own = __reduce_max_sync(~0U, __float_as_uint(peak));
    sum = warp_sum(sum);
    if (lane == 0) {
        largest[warp_index()] = own;
        squares[warp_index()] = sum;
    }
    __syncthreads();  // squares and the warps' largest
    std::uint32_t bits = 0;
#pragma unroll
    for (const std::uint32_t other : largest)
        bits = max(bits, other);
    const PowerOfTwo unit = unit_of(bits);
#pragma unroll
    for (int i = 0; i < kRecordsPerWarp; ++i) {
        const int record = warp_index() + kWarps * i;
        if (record < p.k_records)
            store_global16(chunk_of(p, record, place), round_chunk(v[i], unit.inverse));
    }
    if (threadIdx.x == 0)
        p.factors[place] =
            unit.value * (weight == nullptr ? 1.0F
                                            : norm_factor(kWarps, k, p.input.eps,
                                                          [&](int warp) { return squares[warp]; }));
}

}  // namespace kernels::cuda

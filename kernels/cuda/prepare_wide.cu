// prepare_wide: rows of x as matmul_wide reads them.
//
// Math      v = x * weight; y = binary16(v / s), s the power of two that puts the row's largest |v|
//           into [2^13, 2^14); factor = s / rms(x), which multiplies the finished sums
// Shapes    x [*, k] f32; y [k_records] stages of `columns` rows (matmul_cut.h); factors [columns]
// Moves     rows * (4 + 2) k bytes
// Floor     a launch
// Plan      one block per row, one warp per record; a lane keeps its part of x in registers from
//           the search for the largest to the rounding
#include "kernels/cuda/matmul_cut.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/x_record.cuh"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kRecordsPerWarp = kMatmulInputsMax / kRecordInputs / kWarps;

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    prepare_wide(const __grid_constant__ PrepareXParams p) {
    __shared__ float squares[kMatmulInputsMax / kRecordInputs];
    __shared__ std::uint32_t largest[kWarps];
    let_next_kernel_start();
    wait_for_previous_kernel();
    const int place = static_cast<int>(blockIdx.x);
    const int m = p.first_row + place;
    if (m >= *p.rows) return;
    const int lane = lane_index();
    const XRow row{
        .x = p.input.x + (p.input.row_map != nullptr ? p.input.row_map[m] : m) * p.input.x_stride,
        .weight = p.input.weight,
        .k = p.input.k,
        .is_paired = p.input.is_paired};
    float v[kRecordsPerWarp][kChunkInputs];
    float peak = 0.0F;
#pragma unroll
    for (int i = 0; i < kRecordsPerWarp; ++i) {
        const int record = warp_index() + kWarps * i;
        if (record >= p.k_records) break;
        load_x(row, record, v[i]);
        if (row.weight != nullptr) {
            const float sum = weigh_chunk(row, record, v[i]);
            if (lane == 0) squares[record] = sum;
        }
#pragma unroll
        for (const float value : v[i])
            peak = fmaxf(peak, fabsf(value));
    }
    const std::uint32_t own = __reduce_max_sync(~0U, __float_as_uint(peak));
    if (lane == 0) largest[warp_index()] = own;
    __syncthreads();  // squares and the warps' largest
    std::uint32_t bits = 0;
#pragma unroll
    for (const std::uint32_t other : largest)
        bits = max(bits, other);
    const PowerOfTwo unit = unit_of(bits);
#pragma unroll
    for (int i = 0; i < kRecordsPerWarp; ++i) {
        const int record = warp_index() + kWarps * i;
        if (record >= p.k_records) break;
        const int pair = (lane / 4) ^ (place % 2);
        *reinterpret_cast<uint4*>(p.y + std::int64_t{record} * wide_stage_bytes(p.columns) +
                                  512 * place + 64 * pair + 16 * (lane % 4)) =
            round_chunk(v[i], unit.inverse);
    }
    if (threadIdx.x == 0)
        p.factors[place] =
            unit.value * (p.input.weight == nullptr
                              ? 1.0F
                              : norm_factor(p.k_records, p.input.k, p.input.eps,
                                            [&](int record) { return squares[record]; }));
}

}  // namespace kernels::cuda

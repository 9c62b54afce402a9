// prepare_x: rows of x for matmul_mma when there are too many for every block to make its own.
//
// Math      x_record.cuh; and 1 / rms of each row, which multiplies the finished sums
// Shapes    x [*, k] f32; y [places, k_records * 256] binary16; scales [places, k_records];
//           sums [places, k_records * 8]; factors [places]
// Moves     rows * (4 + 2) k bytes
// Floor     a launch
// Plan      one block per row, one warp per record
#include "kernels/cuda/matmul_cut.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/x_record.cuh"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpLanes;

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    prepare_x(const __grid_constant__ PrepareXParams p) {
    __shared__ float squares[kMatmulInputsMax / kRecordInputs];
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int place = static_cast<int>(blockIdx.x);
    const int m = p.first_row + place;
    if (m >= *p.rows) return;
    const XRow row{
        .x = p.input.x + (p.input.row_map != nullptr ? p.input.row_map[m] : m) * p.input.x_stride,
        .weight = p.input.weight,
        .k = p.input.k,
        .is_paired = p.input.is_paired};
    for (int record = warp_index(); record < p.k_records; record += kWarps) {
        float v[kChunkInputs];
        load_x(row, record, v);
        const XRecord made = make_x_record<true>(row, record, v);
        const std::int64_t at = std::int64_t{place} * p.k_records + record;
        *reinterpret_cast<uint4*>(p.y + at * 2 * kRecordInputs + 16 * lane_index()) = made.halves;
        if (lane_index() % 4 == 0) p.sums[8 * at + lane_index() / 4] = made.sum;
        if (lane_index() == 0) {
            p.scales[at] = made.scale;
            squares[record] = made.squares;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        p.factors[place] = p.input.weight == nullptr
                               ? 1.0F
                               : norm_factor(p.k_records, p.input.k, p.input.eps,
                                             [&](int record) { return squares[record]; });
}

}  // namespace kernels::cuda

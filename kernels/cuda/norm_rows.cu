// norm_rows: y[m] = x[m] / rms(x[m]) * weight, or a plain copy; zeros behind k up to k_padded.
//
// Shapes    x [*, k], y [rows, k_padded] f32, weight [k]
// Moves     rows * 8 k bytes
// Floor     a launch
// Plan      one block per row; the sum of squares in f32, in an order that k alone decides
// Source    RMSNorm, Zhang and Sennrich 2019; y may be x (a thread writes what it read)
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpLanes;

/// Sum over the block, the same bits in every thread.
__device__ float block_sum(float value) {
    __shared__ float partial[kWarps];
    value = warp_sum(value);
    if (lane_index() == 0) partial[warp_index()] = value;
    __syncthreads();
    float sum = 0.0F;
    for (int w = 0; w < kWarps; ++w)
        sum += partial[w];
    return sum;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    norm_rows(const __grid_constant__ NormParams p) {
    const int m = static_cast<int>(blockIdx.x);
    if (m >= *p.rows) return;
    const float* x = p.x + (p.row_map != nullptr ? p.row_map[m] : m) * p.x_stride;
    float* y = p.y + m * p.y_stride;
    const int thread = static_cast<int>(threadIdx.x);
    float factor = 1.0F;
    if (p.weight != nullptr) {
        float squares = 0.0F;
        for (int i = thread; i < p.k; i += kThreads)
            squares = fmaf(x[i], x[i], squares);
        factor = 1.0F / sqrtf(block_sum(squares) / static_cast<float>(p.k) + p.eps);
    }
    for (int i = thread; i < p.k; i += kThreads)
        y[i] = p.weight != nullptr ? x[i] * (factor * p.weight[i]) : x[i];
    for (int i = p.k + thread; i < p.k_padded; i += kThreads)
        y[i] = 0.0F;
}

}  // namespace kernels::cuda

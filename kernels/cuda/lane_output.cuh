// The end of a product by the kernels of sm_70: one sum becomes one output.
#pragma once

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

/// Output n of the segment for the launch's row at `column`, if both are wanted.
__device__ inline void store_lane_output(const LaneMatmulParams& p, int n, int column,
                                         float value) {
    const int output = p.first_output + n;
    if (n >= p.outputs || output < p.begin || output >= p.end) return;
    if (p.bias != nullptr) value += p.bias[output];
    finish_value(p.epilogue, p.y + (p.first_row + column) * p.y_stride + (output - p.begin), value);
}

}  // namespace kernels::cuda

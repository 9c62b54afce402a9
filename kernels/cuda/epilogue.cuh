// The end of a product: what happens to an output that is there already.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

__device__ inline void finish_value(LinearEpilogue epilogue, float* y, float value) {
    switch (epilogue) {
        case LinearEpilogue::kStore:
            *y = value;
            break;
        case LinearEpilogue::kAdd:
            *y += value;
            break;
        case LinearEpilogue::kSiluTimes:
            *y = *y * sigmoid(*y) * value;
            break;
        case LinearEpilogue::kSwiGlu:  // of interleaved tiles alone
            break;
    }
}

}  // namespace kernels::cuda

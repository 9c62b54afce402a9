// Plain numbers: the kernels of linear.cuh for these formats, one row of x and eight.
#include "kernels/cuda/linear.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_f32_1(const __grid_constant__ LinearParams p) {
    linear<FormatF32, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_f32_8(const __grid_constant__ LinearParams p) {
    linear<FormatF32, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_f16_1(const __grid_constant__ LinearParams p) {
    linear<FormatF16, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_f16_8(const __grid_constant__ LinearParams p) {
    linear<FormatF16, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_bf16_1(const __grid_constant__ LinearParams p) {
    linear<FormatBF16, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_bf16_8(const __grid_constant__ LinearParams p) {
    linear<FormatBF16, 8>(p);
}

}  // namespace kernels::cuda

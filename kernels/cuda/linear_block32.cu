// Blocks of 32: the kernels of linear.cuh for these formats, one row of x and eight.
#include "kernels/cuda/linear.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q8_0_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ8_0, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q8_0_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ8_0, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q4_0_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ4_0, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q4_0_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ4_0, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q4_1_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ4_1, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q4_1_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ4_1, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q5_0_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ5_0, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q5_0_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ5_0, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q5_1_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ5_1, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q5_1_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ5_1, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_iq4_nl_1(const __grid_constant__ LinearParams p) {
    linear<FormatIQ4_NL, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_iq4_nl_8(const __grid_constant__ LinearParams p) {
    linear<FormatIQ4_NL, 8>(p);
}

}  // namespace kernels::cuda

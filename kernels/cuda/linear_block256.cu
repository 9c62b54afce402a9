// Blocks of 256: the kernels of linear.cuh for these formats, one row of x and eight.
#include "kernels/cuda/linear.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q2_k_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ2_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q2_k_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ2_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q3_k_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ3_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q3_k_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ3_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q4_k_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ4_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q4_k_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ4_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q5_k_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ5_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q5_k_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ5_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q6_k_1(const __grid_constant__ LinearParams p) {
    linear<FormatQ6_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_q6_k_8(const __grid_constant__ LinearParams p) {
    linear<FormatQ6_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_iq4_xs_1(const __grid_constant__ LinearParams p) {
    linear<FormatIQ4_XS, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kLinearThreads)
    linear_iq4_xs_8(const __grid_constant__ LinearParams p) {
    linear<FormatIQ4_XS, 8>(p);
}

}  // namespace kernels::cuda

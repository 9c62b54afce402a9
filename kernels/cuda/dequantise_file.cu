// The file's blocks: the kernels of dequantise.cuh for these formats.
#include "kernels/cuda/dequantise.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_f32(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatF32, false>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    largest_f32(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatF32, true>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_f16(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatF16, false>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    largest_f16(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatF16, true>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_bf16(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatBF16, false>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    largest_bf16(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatBF16, true>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_q4_1(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ4_1, false>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    largest_q4_1(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ4_1, true>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_q5_0(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ5_0, false>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    largest_q5_0(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ5_0, true>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_q5_1(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ5_1, false>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    largest_q5_1(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ5_1, true>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_q2_k(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ2_K, false>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    largest_q2_k(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ2_K, true>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_q3_k(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ3_K, false>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads)
    largest_q3_k(const __grid_constant__ DequantiseParams p) {
    dequantise_file<FormatQ3_K, true>(p);
}

}  // namespace kernels::cuda

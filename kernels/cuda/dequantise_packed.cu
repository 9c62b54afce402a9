// Packed records: the kernels of dequantise.cuh for these formats.
#include "kernels/cuda/dequantise.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kDequantiseThreads, 1)
    dequantise_iq4_xs(const __grid_constant__ DequantiseParams p) {
    dequantise_packed<MatmulFormat<DType::kIQ4_XS>>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads, 1)
    dequantise_q6_k(const __grid_constant__ DequantiseParams p) {
    dequantise_packed<MatmulFormat<DType::kQ6_K>>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads, 1)
    dequantise_q5_k(const __grid_constant__ DequantiseParams p) {
    dequantise_packed<MatmulFormat<DType::kQ5_K>>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads, 1)
    dequantise_q8_0(const __grid_constant__ DequantiseParams p) {
    dequantise_packed<MatmulFormat<DType::kQ8_0>>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads, 1)
    dequantise_q4_k(const __grid_constant__ DequantiseParams p) {
    dequantise_packed<MatmulFormat<DType::kQ4_K>>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads, 1)
    dequantise_q4_0(const __grid_constant__ DequantiseParams p) {
    dequantise_packed<MatmulFormat<DType::kQ4_0>>(p);
}
extern "C" __global__ void __launch_bounds__(kDequantiseThreads, 1)
    dequantise_iq4_nl(const __grid_constant__ DequantiseParams p) {
    dequantise_packed<MatmulFormat<DType::kIQ4_NL>>(p);
}

}  // namespace kernels::cuda

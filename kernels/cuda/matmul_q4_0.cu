// Q4_0: the kernels of matmul_mma.cuh for this type.
#include "kernels/cuda/matmul_mma.cuh"
#include "kernels/cuda/matmul_pair.cuh"
#include "kernels/cuda/matmul_wide.cuh"

namespace kernels::cuda {

using Format = MatmulFormat<DType::kQ4_0>;

extern "C" __global__ void __launch_bounds__(kMatmulThreads, 1)
    matmul_q4_0_8(const __grid_constant__ MatmulParams p) {
    matmul_mma<Format>(p);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kMatmulThreads, 1)
    matmul_q4_0_pair(const __grid_constant__ MatmulParams p) {
    matmul_pair<Format>(p, static_cast<int>(blockIdx.x) / 2);
}
extern "C" __global__ void __launch_bounds__(kWideThreads, 1)
    matmul_q4_0_wide_16(const __grid_constant__ MatmulParams p) {
    matmul_wide<Format, 16>(p);
}
extern "C" __global__ void __launch_bounds__(kWideThreads, 1)
    matmul_q4_0_wide_32(const __grid_constant__ MatmulParams p) {
    matmul_wide<Format, 32>(p);
}
extern "C" __global__ void __launch_bounds__(kWideThreads, 1)
    matmul_q4_0_wide_64(const __grid_constant__ MatmulParams p) {
    matmul_wide<Format, 64>(p);
}

}  // namespace kernels::cuda

// The products of Q4_K weights on sm_70: matmul_dp4a.cuh, matmul_hmma.cuh.
#include "kernels/cuda/matmul_dp4a.cuh"
#include "kernels/cuda/matmul_hmma.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_k_1(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_k_2(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_K, 2>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_k_4(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_K, 4>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_k_8(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_k_12(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_K, 12>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_k_64(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_K, 64>(p);
}
extern "C" __global__ void __launch_bounds__(kHmmaWarps* kWarpLanes)
    matmul_hmma_q4_k(const __grid_constant__ LaneMatmulParams p) {
    matmul_hmma<DType::kQ4_K>(p);
}

}  // namespace kernels::cuda

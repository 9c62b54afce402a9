// The products of Q4_0 weights on sm_70: matmul_dp4a.cuh, matmul_hmma.cuh.
#include "kernels/cuda/matmul_dp4a.cuh"
#include "kernels/cuda/matmul_hmma.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_0_1(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_0, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_0_2(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_0, 2>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_0_4(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_0, 4>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_0_8(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_0, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_0_12(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_0, 12>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_q4_0_64(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kQ4_0, 64>(p);
}
extern "C" __global__ void __launch_bounds__(kHmmaWarps* kWarpLanes)
    matmul_hmma_q4_0(const __grid_constant__ LaneMatmulParams p) {
    matmul_hmma<DType::kQ4_0>(p);
}

}  // namespace kernels::cuda

// The products of IQ4_NL weights on sm_70: matmul_dp4a.cuh, matmul_hmma.cuh.
#include "kernels/cuda/matmul_dp4a.cuh"
#include "kernels/cuda/matmul_hmma.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_nl_1(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_NL, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_nl_2(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_NL, 2>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_nl_4(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_NL, 4>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_nl_8(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_NL, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_nl_12(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_NL, 12>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_nl_64(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_NL, 64>(p);
}
extern "C" __global__ void __launch_bounds__(kHmmaWarps* kWarpLanes)
    matmul_hmma_iq4_nl(const __grid_constant__ LaneMatmulParams p) {
    matmul_hmma<DType::kIQ4_NL>(p);
}

}  // namespace kernels::cuda

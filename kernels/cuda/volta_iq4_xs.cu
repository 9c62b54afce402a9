// The products of IQ4_XS weights on sm_70: matmul_dp4a.cuh, matmul_hmma.cuh.
#include "kernels/cuda/matmul_dp4a.cuh"
#include "kernels/cuda/matmul_hmma.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_xs_1(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_XS, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_xs_2(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_XS, 2>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_xs_4(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_XS, 4>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_xs_8(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_XS, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_xs_12(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_XS, 12>(p);
}
extern "C" __global__ void __launch_bounds__(kDp4aWarps* kWarpLanes)
    matmul_dp4a_iq4_xs_64(const __grid_constant__ LaneMatmulParams p) {
    matmul_dp4a<DType::kIQ4_XS, 64>(p);
}
extern "C" __global__ void __launch_bounds__(kHmmaWarps* kWarpLanes)
    matmul_hmma_iq4_xs(const __grid_constant__ LaneMatmulParams p) {
    matmul_hmma<DType::kIQ4_XS>(p);
}

}  // namespace kernels::cuda

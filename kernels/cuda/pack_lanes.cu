// pack_lanes: file rows become records of lane_order.h, for sm_70.
#include "kernels/cuda/pack.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_lanes_iq4_xs(const __grid_constant__ PackParams p) {
    pack<DType::kIQ4_XS, LaneLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_lanes_q6_k(const __grid_constant__ PackParams p) {
    pack<DType::kQ6_K, LaneLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_lanes_q5_k(const __grid_constant__ PackParams p) {
    pack<DType::kQ5_K, LaneLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_lanes_q4_k(const __grid_constant__ PackParams p) {
    pack<DType::kQ4_K, LaneLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_lanes_q8_0(const __grid_constant__ PackParams p) {
    pack<DType::kQ8_0, LaneLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_lanes_q4_0(const __grid_constant__ PackParams p) {
    pack<DType::kQ4_0, LaneLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_lanes_iq4_nl(const __grid_constant__ PackParams p) {
    pack<DType::kIQ4_NL, LaneLayout>(p);
}

}  // namespace kernels::cuda

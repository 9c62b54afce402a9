// pack: file rows become records of packed.h, for sm_90.
#include "kernels/cuda/pack.cuh"

namespace kernels::cuda {

extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_iq4_xs(const __grid_constant__ PackParams p) {
    pack<DType::kIQ4_XS, RecordLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_q6_k(const __grid_constant__ PackParams p) {
    pack<DType::kQ6_K, RecordLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_q5_k(const __grid_constant__ PackParams p) {
    pack<DType::kQ5_K, RecordLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_q4_k(const __grid_constant__ PackParams p) {
    pack<DType::kQ4_K, RecordLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_q8_0(const __grid_constant__ PackParams p) {
    pack<DType::kQ8_0, RecordLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_q4_0(const __grid_constant__ PackParams p) {
    pack<DType::kQ4_0, RecordLayout>(p);
}
extern "C" __global__ void __launch_bounds__(kPackThreads)
    pack_iq4_nl(const __grid_constant__ PackParams p) {
    pack<DType::kIQ4_NL, RecordLayout>(p);
}

}  // namespace kernels::cuda

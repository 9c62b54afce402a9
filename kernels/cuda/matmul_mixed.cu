// Two segments of different types as one launch: some pairs of blocks work on the one, the others
// on the other (matmul_pair.cuh). Saves a launch's start and end, and evens out types that cost
// more.
#include "kernels/cuda/matmul_pair.cuh"

namespace kernels::cuda {

template <DType kFirst, DType kSecond>
__device__ void matmul_mixed(const MatmulMixedParams& p) {
    const int pair = static_cast<int>(blockIdx.x) / 2;
    const int first_pairs = p.first.blocks / 2;
    if (pair < first_pairs)
        matmul_pair<MatmulFormat<kFirst>>(p.first, pair);
    else
        matmul_pair<MatmulFormat<kSecond>>(p.second, pair - first_pairs);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kMatmulThreads, 1)
    matmul_iq4_xs_q5_k_pair(const __grid_constant__ MatmulMixedParams p) {
    matmul_mixed<DType::kIQ4_XS, DType::kQ5_K>(p);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kMatmulThreads, 1)
    matmul_iq4_xs_q6_k_pair(const __grid_constant__ MatmulMixedParams p) {
    matmul_mixed<DType::kIQ4_XS, DType::kQ6_K>(p);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kMatmulThreads, 1)
    matmul_q4_k_q5_k_pair(const __grid_constant__ MatmulMixedParams p) {
    matmul_mixed<DType::kQ4_K, DType::kQ5_K>(p);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kMatmulThreads, 1)
    matmul_q4_k_q6_k_pair(const __grid_constant__ MatmulMixedParams p) {
    matmul_mixed<DType::kQ4_K, DType::kQ6_K>(p);
}

}  // namespace kernels::cuda

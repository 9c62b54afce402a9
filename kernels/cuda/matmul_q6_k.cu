// Q6_K: the kernels of matmul_mma.cuh and matmul_whole.cuh for this type.
#include "kernels/cuda/matmul_mma.cuh"
#include "kernels/cuda/matmul_whole.cuh"

namespace kernels::cuda {

using Format = MatmulFormat<DType::kQ6_K>;

extern "C" __global__ void __launch_bounds__(matmul_threads(1), 1)
    matmul_q6_k_8(const __grid_constant__ MatmulParams p) {
    matmul_mma<Format, 8, 1>(p);
}
extern "C" __global__ void __launch_bounds__(matmul_threads(1), 1)
    matmul_q6_k_16(const __grid_constant__ MatmulParams p) {
    matmul_mma<Format, 16, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kWholeThreads, 1)
    matmul_q6_k_whole(const __grid_constant__ MatmulParams p) {
    matmul_whole<Format>(p);
}

}  // namespace kernels::cuda

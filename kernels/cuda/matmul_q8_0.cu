// Q8_0: the kernels of matmul_mma.cuh and matmul_whole.cuh for this type.
#include "kernels/cuda/matmul_mma.cuh"
#include "kernels/cuda/matmul_whole.cuh"

namespace kernels::cuda {

using Format = MatmulFormat<DType::kQ8_0>;

extern "C" __global__ void __launch_bounds__(matmul_threads(1), 1)
    matmul_q8_0_8(const __grid_constant__ MatmulParams p) {
    matmul_mma<Format, 8, 1, false>(p);
}
extern "C" __global__ void __launch_bounds__(matmul_threads(2), 1)
    matmul_q8_0_16(const __grid_constant__ MatmulParams p) {
    matmul_mma<Format, 16, 2, false>(p);
}
extern "C" __global__ void __launch_bounds__(kWholeThreads, 1)
    matmul_q8_0_whole(const __grid_constant__ MatmulParams p) {
    matmul_whole<Format, false>(p);
}

}  // namespace kernels::cuda

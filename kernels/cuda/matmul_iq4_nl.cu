// IQ4_NL: the kernels of matmul_mma.cuh for this type.
#include "kernels/cuda/matmul_mma.cuh"

namespace kernels::cuda {

using Format = MatmulFormat<DType::kIQ4_NL>;

extern "C" __global__ void __launch_bounds__(matmul_threads(1), 1)
    matmul_iq4_nl_8(const __grid_constant__ MatmulParams p) {
    matmul_mma<Format, 8, 1>(p);
}
extern "C" __global__ void __launch_bounds__(matmul_threads(2), 1)
    matmul_iq4_nl_16(const __grid_constant__ MatmulParams p) {
    matmul_mma<Format, 16, 2>(p);
}

}  // namespace kernels::cuda

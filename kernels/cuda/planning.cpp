// What a CudaBackend would say, without a device.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/matrix_upload.h"
#include "kernels/cuda/pack_host.h"

namespace kernels {

std::vector<std::string> cuda_architectures() {
    return {"9.0"};  // as find_device checks
}

std::uint64_t cuda_packed_bytes(std::span<const MatrixSource> sources) {
    if (cuda::check_sources(sources)) return 0;
    return cuda::device_bytes(cuda::segment_plan(sources, [](const MatrixSource& source) {
        return cuda::is_packable(source.dtype, source.k);
    }));
}

std::uint64_t cuda_load_bytes() {
    return cuda::MatrixUpload::kSliceBytes;
}

}  // namespace kernels

// What a CudaBackend would say, without a device.
#include <algorithm>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/cubins.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/matrix_upload.h"
#include "kernels/cuda/pack_host.h"

namespace kernels {

bool has_cuda_sm_70() {
    return !cuda::sm_70_ptx().empty();
}

std::vector<std::string> cuda_architectures() {
    return cuda::architectures(has_cuda_sm_70());
}

std::uint64_t cuda_packed_bytes(std::span<const MatrixSource> sources) {
    if (cuda::check_sources(sources)) return 0;
    const auto can_pack = [](const MatrixSource& source) {
        return cuda::is_packable(source.dtype, source.k);
    };
    std::uint64_t bytes = 0;  // of the order that takes more
    for (const cuda::WeightOrder order : {cuda::WeightOrder::kTiles, cuda::WeightOrder::kLanes})
        if (order == cuda::WeightOrder::kTiles || has_cuda_sm_70())
            bytes =
                std::max(bytes, cuda::device_bytes(cuda::segment_plan(sources, can_pack, order)));
    return bytes;
}

std::uint64_t cuda_load_bytes() {
    return cuda::MatrixUpload::kSliceBytes;
}

}  // namespace kernels

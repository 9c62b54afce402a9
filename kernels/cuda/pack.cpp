#include <cassert>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/pack_host.h"

namespace kernels::cuda {

void launch_pack(KernelSet& kernels, StreamHandle stream, DType dtype, WeightOrder order,
                 const PackParams& params) {
    constexpr std::int64_t kBytesPerBlock = 4 * 256;
    const int type = matmul_type_index(dtype);
    assert(type >= 0 && "only types with a packed order");
    const std::int64_t bytes = params.tiles * params.k_records * record_bytes(dtype, order);
    if (bytes == 0) return;
    const KernelId id = order == WeightOrder::kLanes
                            ? pack_lanes_kernel(type)
                            : kernel_after(KernelId::kPackFirst, static_cast<std::size_t>(type));
    kernels.launch(id, {.x = (bytes + kBytesPerBlock - 1) / kBytesPerBlock, .threads = 256}, stream,
                   params);
}

}  // namespace kernels::cuda

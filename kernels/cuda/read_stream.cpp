#include <cassert>

#include "kernels/cuda/ops.h"

namespace kernels::cuda {

void launch_read_stream(const OpContext& context, const void* from, std::int64_t bytes,
                        std::int64_t blocks, unsigned* sink) {
    assert(reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && bytes % 16 == 0);
    const ReadStreamParams p{.from = from, .words = bytes / 16, .sink = sink};
    context.kernels->launch(KernelId::kReadStream, {.x = blocks, .threads = 512}, context.stream,
                            p);
}

}  // namespace kernels::cuda

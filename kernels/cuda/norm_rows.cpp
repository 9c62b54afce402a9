#include <cassert>

#include "kernels/cuda/ops.h"

namespace kernels::cuda {

void launch_norm(const OpContext& context, const NormJob& job) {
    if (job.rows == 0) return;
    assert(job.k > 0 && job.k_padded >= job.k && job.y_stride >= job.k_padded);
    assert((job.x != job.y || job.row_map == nullptr) && "in place only row by row");
    NormParams p{};
    p.rows = job.live_rows;
    p.row_map = job.row_map;
    p.x = job.x;
    p.x_stride = job.x_stride;
    p.weight = job.weight;
    p.eps = job.eps;
    p.k = static_cast<std::int32_t>(job.k);
    p.k_padded = static_cast<std::int32_t>(job.k_padded);
    p.y = job.y;
    p.y_stride = job.y_stride;
    context.kernels->launch(KernelId::kNormRows, {.x = job.rows, .threads = 256}, context.stream,
                            p);
}

}  // namespace kernels::cuda

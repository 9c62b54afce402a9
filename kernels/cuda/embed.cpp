#include <cassert>

#include "kernels/cuda/ops.h"

namespace kernels::cuda {

void launch_embed(const OpContext& context, const Matrix& table, const TensorView& x) {
    const std::int64_t rows = context.step->rows;
    if (rows == 0) return;
    assert(x.shape[1] >= table.k && x.rows() >= rows);
    EmbedParams p{};
    p.step = context.view;
    for (int s = 0; s < table.segment_count; ++s)
        p.segments[s] = table.segments[static_cast<std::size_t>(s)];
    p.segment_count = table.segment_count;
    p.k = static_cast<std::int32_t>(table.k);
    p.x = x.as<float>();
    p.x_stride = x.row_stride;
    context.kernels->launch(KernelId::kEmbedRows, {.x = rows, .threads = 256}, context.stream, p);
}

}  // namespace kernels::cuda

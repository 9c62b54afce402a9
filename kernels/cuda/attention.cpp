#include <cassert>

#include "kernels/cuda/ops.h"

namespace kernels::cuda {
namespace {

constexpr int kWarpLanes = 32;
constexpr int kAttentionThreads = 256;

KernelId kernel_for(std::int32_t head_dim) {
    if (head_dim <= 2 * kWarpLanes) return KernelId::kAttention2;
    if (head_dim <= 4 * kWarpLanes) return KernelId::kAttention4;
    return KernelId::kAttention8;
}

AttentionParams params_of(const OpContext& context, const AttentionArgs& args) {
    AttentionParams p{};
    p.step = context.view;
    p.n_h = args.n_h;
    p.n_kv = args.n_kv;
    p.head_dim = args.head_dim;
    p.n_rot = args.n_rot;
    p.block_tokens = static_cast<std::int32_t>(args.kv.k.shape[2]);
    p.has_gate = args.has_gate;
    p.is_adjacent = args.pairing == RopePairing::kAdjacent;
    p.is_f16 = args.kv.k.dtype == DType::kF16;
    p.norm_eps = args.norm_eps;
    p.q = args.q.as<float>();
    p.q_stride = args.q.row_stride;
    p.k = args.k.as<float>();
    p.k_stride = args.k.row_stride;
    p.v = args.v.as<float>();
    p.v_stride = args.v.row_stride;
    p.q_norm = args.q_norm.as<float>();
    p.k_norm = args.k_norm.as<float>();
    p.rope = args.rope.as<float>();
    p.rope_stride = args.rope.row_stride;
    p.k_pages = args.kv.k.data;
    p.v_pages = args.kv.v.data;
    p.page_stride = args.kv.k.row_stride;
    p.y = args.y.as<float>();
    p.y_stride = args.y.row_stride;
    return p;
}

}  // namespace

void launch_attention(const OpContext& context, const AttentionArgs& args) {
    const std::int64_t rows = context.step->rows;
    if (rows == 0) return;
    assert(args.n_kv > 0 && args.n_h % args.n_kv == 0);
    assert(args.head_dim > 0 && args.head_dim <= kHeadDimMax &&
           "head sizes up to 256 have a kernel");
    assert(args.n_rot % 2 == 0 && args.n_rot <= args.head_dim);
    assert(args.n_rot == 0 || args.rope.shape[1] == args.n_rot);
    assert(args.kv.k.dtype == DType::kF16 || args.kv.k.dtype == DType::kF32);
    assert(args.kv.k.dtype == args.kv.v.dtype && args.kv.k.shape == args.kv.v.shape &&
           args.kv.k.row_stride == args.kv.v.row_stride);
    assert(args.kv.k.shape[1] == args.n_kv && args.kv.k.shape[3] == args.head_dim);
    const AttentionParams p = params_of(context, args);
    context.kernels->launch(KernelId::kAttentionAppend,
                            {.x = rows, .y = args.n_kv, .threads = kWarpLanes}, context.stream, p);
    context.kernels->launch(kernel_for(args.head_dim),
                            {.x = rows, .y = args.n_h, .threads = kAttentionThreads},
                            context.stream, p);
}

}  // namespace kernels::cuda

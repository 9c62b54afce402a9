#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

#include "kernels/cuda/attention_cut.h"
#include "kernels/cuda/ops.h"

namespace kernels::cuda {
namespace {

constexpr int kWarpLanes = 32;
constexpr int kAttentionThreads = 256;
constexpr int kAttentionDecodeThreads = 256;
constexpr int kAttentionPrefillThreads = 384;

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
    p.seq_rows_max = std::numeric_limits<std::int32_t>::max();
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

/// Have attention_decode and attention_prefill code for this layer's heads and pages?
bool prefill_fits(const AttentionArgs& args) {
    const auto block_tokens = static_cast<std::uint64_t>(args.kv.k.shape[2]);
    const auto address = reinterpret_cast<std::uintptr_t>(args.kv.k.data) |
                         reinterpret_cast<std::uintptr_t>(args.kv.v.data);
    return args.kv.k.dtype == DType::kF16 && attention_head_index(args.head_dim) >= 0 &&
           std::has_single_bit(block_tokens) && block_tokens >= 16 &&
           block_tokens <= kAttentionUnitTokens && address % 16 == 0 &&
           args.kv.k.row_stride % 8 == 0;
}
bool decode_fits(const AttentionArgs& args) {
    return prefill_fits(args) && args.n_h / args.n_kv <= kAttentionHeadGroupMax;
}

/// Sequences of the step with at most, and with more than, so many rows as attention_decode takes.
struct SequenceKinds {
    bool has_steps = false;
    bool has_chunks = false;
    std::int32_t step_rows_max = 0;  // of the former
};
SequenceKinds kinds_of(const StepDescriptor& step) {
    SequenceKinds kinds;
    for (std::size_t s = 0; s < static_cast<std::size_t>(step.seqs); ++s) {
        const std::int32_t rows = step.row_begin[s + 1] - step.row_begin[s];
        if (is_attention_step(rows)) {
            kinds.has_steps = true;
            kinds.step_rows_max = std::max(kinds.step_rows_max, rows);
        }
        kinds.has_chunks |= rows > kAttentionStepRowsMax;
    }
    return kinds;
}

void launch_decode(const OpContext& context, const AttentionArgs& args) {
    const AttentionScratch& scratch = context.attention;
    AttentionDecodeParams p{};
    p.attention = params_of(context, args);
    p.heads_of_group = args.n_h / args.n_kv;
    p.token_shift = std::countr_zero(static_cast<std::uint32_t>(args.kv.k.shape[2]));
    const std::int32_t columns = p.heads_of_group * kinds_of(*context.step).step_rows_max;
    p.group_slots = static_cast<std::int32_t>(attention_group_slots(
        scratch.floats, scratch.multiprocessors, args.head_dim, attention_column_tiles(columns)));
    p.parts = scratch.parts;
    p.arrivals = scratch.arrivals;
    context.kernels->launch(attention_decode_kernel(args.head_dim, columns),
                            {.x = scratch.multiprocessors,
                             .threads = kAttentionDecodeThreads,
                             .shared_bytes = attention_shared_bytes(args.head_dim),
                             .overlaps_previous = true},
                            context.stream, p);
}

/// Of this step's rows in sequences of more than kAttentionStepRowsMax, which are in the pages.
void launch_prefill(const OpContext& context, const AttentionArgs& args) {
    AttentionPrefillParams p{};
    p.attention = params_of(context, args);
    p.heads_of_group = args.n_h / args.n_kv;
    p.token_shift = std::countr_zero(static_cast<std::uint32_t>(args.kv.k.shape[2]));
    const auto address = reinterpret_cast<std::uintptr_t>(args.q.data) |
                         reinterpret_cast<std::uintptr_t>(args.y.data);
    p.is_wide = address % 8 == 0 && args.q.row_stride % 2 == 0 && args.y.row_stride % 2 == 0;
    std::int64_t tiles = 0;
    const StepDescriptor& step = *context.step;
    for (std::size_t s = 0; s < static_cast<std::size_t>(step.seqs); ++s)
        tiles +=
            attention_prefill_tiles(step.row_begin[s + 1] - step.row_begin[s], p.heads_of_group);
    const auto index = static_cast<std::size_t>(attention_head_index(args.head_dim));
    context.kernels->launch(kernel_after(KernelId::kAttentionPrefillFirst, index),
                            {.x = tiles,
                             .y = args.n_kv,
                             .threads = kAttentionPrefillThreads,
                             .shared_bytes = attention_prefill_shared_bytes(args.head_dim)},
                            context.stream, p);
}

/// `p` says which sequences.
void launch_append(const OpContext& context, const AttentionArgs& args, const AttentionParams& p) {
    context.kernels->launch(KernelId::kAttentionAppend,
                            {.x = context.step->rows, .y = args.n_kv, .threads = kWarpLanes},
                            context.stream, p);
}
void launch_plain(const OpContext& context, const AttentionArgs& args, const AttentionParams& p) {
    launch_append(context, args, p);
    context.kernels->launch(attention_kernel(args.head_dim),
                            {.x = context.step->rows, .y = args.n_h, .threads = kAttentionThreads},
                            context.stream, p);
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
    const SequenceKinds kinds = kinds_of(*context.step);
    AttentionRegistry& registry = *context.attention.registry;
    AttentionParams p = params_of(context, args);
    if (kinds.has_steps && decode_fits(args)) {
        if (registry.has_decode()) {
            launch_decode(context, args);
            p.seq_rows_min = kAttentionStepRowsMax + 1;
        } else {
            registry.count_decode_fallback();
        }
    }
    if (kinds.has_chunks && prefill_fits(args)) {
        if (registry.has_prefill()) {
            AttentionParams chunks = p;
            chunks.seq_rows_min = kAttentionStepRowsMax + 1;
            launch_append(context, args, chunks);
            launch_prefill(context, args);
            p.seq_rows_max = kAttentionStepRowsMax;
        } else {
            registry.count_prefill_fallback();
        }
    }
    const bool has_rest = (kinds.has_steps && p.seq_rows_min <= kAttentionStepRowsMax) ||
                          (kinds.has_chunks && p.seq_rows_max > kAttentionStepRowsMax);
    if (has_rest) launch_plain(context, args, p);
}

}  // namespace kernels::cuda

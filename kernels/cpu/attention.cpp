// Attention over a step in two loops: first every row's K and V go to the pages, then every row
// reads the pages up to itself. Rows of the same step are read back from the pages too, so a
// prompt in one piece and the same prompt in two give the same bits.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/cpu/ops.h"

namespace kernels::cpu {
namespace {

/// Normed and rotated copy of one head of q or k.
void prepare_head(const Context& context, const AttentionArgs& args, const float* in,
                  const TensorView& norm, std::int64_t row, float* out) {
    const std::int64_t head_dim = args.head_dim;
    if (norm.empty()) {
        std::copy(in, in + head_dim, out);
    } else {
        context.rows.rms_norm(in, norm.as<float>(), args.norm_eps, head_dim, out);
    }
    const std::int32_t position = context.step->position[static_cast<std::size_t>(row)];
    rotate(out, args.rope.row<float>(position), args.n_rot, args.pairing);
}

void store(const Context& context, const TensorView& pool, std::int64_t offset, const float* values,
           std::int64_t count) {
    if (pool.dtype == DType::kF16) {
        context.attention.store_f16(values, count, pool.as<std::uint16_t>() + offset);
    } else {
        std::copy(values, values + count, pool.as<float>() + offset);
    }
}

void append(const Context& context, const AttentionArgs& args) {
    const StepDescriptor& step = *context.step;
    const std::int64_t head_dim = args.head_dim;
    const auto body = [&](const LoopPart& part) {
        float* key = context.thread(part).work;
        for (std::int64_t m = part.begin; m < part.end; ++m) {
            const std::int32_t* block_table = block_table_of(step, m);
            const std::int64_t token = kv_position(step, m);
            for (std::int64_t head = 0; head < args.n_kv; ++head) {
                const std::int64_t column = head * head_dim;
                prepare_head(context, args, args.k.row<float>(m) + column, args.k_norm, m, key);
                store(context, args.kv.k, kv_offset(args.kv.k, block_table, token, head), key,
                      head_dim);
                store(context, args.kv.v, kv_offset(args.kv.v, block_table, token, head),
                      args.v.row<float>(m) + column, head_dim);
            }
        }
    };
    // A value costs about eight multiply-adds.
    if (step.rows * args.n_kv * head_dim * 16 < kWorkPerWakeUp) {
        context.pool->run_here(step.rows, body);
    } else {
        context.pool->run(step.rows, body);
    }
}

/// Query heads first .. first + count - 1 of row m, all of one KV head.
void attend_heads(const Context& context, const AttentionArgs& args, std::int64_t m,
                  std::int64_t first, int count, float* work) {
    const StepDescriptor& step = *context.step;
    const std::int64_t head_dim = args.head_dim;
    const std::int64_t q_stride = head_dim * (args.has_gate ? 2 : 1);
    const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    float* q = work;                                 // [count, D]
    float* out = work + kAttentionHeads * head_dim;  // [count, D]
    for (int h = 0; h < count; ++h) {
        float* head = q + h * head_dim;
        prepare_head(context, args, args.q.row<float>(m) + (first + h) * q_stride, args.q_norm, m,
                     head);
        for (std::int64_t i = 0; i < head_dim; ++i)
            head[i] *= scale;
    }
    const std::int64_t kv_head = first / (args.n_h / args.n_kv);
    const std::int64_t element_bytes = args.kv.k.dtype == DType::kF16 ? 2 : 4;
    const std::int64_t head_bytes = kv_head * args.kv.k.shape[2] * head_dim * element_bytes;
    context.attention.attend({.heads = count,
                              .head_dim = args.head_dim,
                              .kv_is_f16 = args.kv.k.dtype == DType::kF16,
                              .q = q,
                              .k = args.kv.k.as<std::uint8_t>() + head_bytes,
                              .v = args.kv.v.as<std::uint8_t>() + head_bytes,
                              .page_bytes = args.kv.k.row_stride * element_bytes,
                              .block_table = block_table_of(step, m),
                              .block_tokens = static_cast<int>(args.kv.k.shape[2]),
                              .tokens = kv_position(step, m) + 1,
                              .out = out});
    for (int h = 0; h < count; ++h) {
        const float* from = out + h * head_dim;
        float* y = args.y.row<float>(m) + (first + h) * head_dim;
        if (args.has_gate) {
            const float* gate = args.q.row<float>(m) + (first + h) * q_stride + head_dim;
            context.attention.gate(from, gate, head_dim, y);
        } else {
            std::copy(from, from + head_dim, y);
        }
    }
}

}  // namespace

void attention(const Context& context, const AttentionArgs& args) {
    const StepDescriptor& step = *context.step;
    const std::int64_t head_dim = args.head_dim;
    assert(2 * kAttentionHeads * head_dim <= context.scratch->work_values &&
           "prepare was told the largest K, which is at least the heads together");
    append(context, args);

    // Heads of a group share the reads of K and V, unless that would leave threads idle.
    const std::int64_t group = args.n_h / args.n_kv;
    const std::int64_t threads = context.pool->threads();
    const bool few = std::int64_t{step.rows} * args.n_kv < threads;
    const std::int64_t together = few ? 1 : std::min<std::int64_t>(group, kAttentionHeads);
    const std::int64_t chunks = (group + together - 1) / together;
    const std::int64_t tasks = std::int64_t{step.rows} * args.n_kv * chunks;
    const auto body = [&](const LoopPart& part) {
        // Later rows of a prompt read more, so threads take turns instead of ranges.
        for (std::int64_t lane = part.begin; lane < part.end; ++lane)
            for (std::int64_t i = lane; i < tasks; i += threads) {
                const std::int64_t m = i / (args.n_kv * chunks);
                const std::int64_t kv_head = i / chunks % args.n_kv;
                const std::int64_t in_group = i % chunks * together;
                attend_heads(context, args, m, kv_head * group + in_group,
                             static_cast<int>(std::min(together, group - in_group)),
                             context.thread(part).work);
            }
    };
    std::int64_t tokens = 0;
    for (std::int64_t m = 0; m < step.rows; ++m)
        tokens += kv_position(step, m) + 1;
    if (tokens * args.n_h * head_dim * 2 < kWorkPerWakeUp) {
        context.pool->run_here(threads, body);
    } else {
        context.pool->run(threads, body);
    }
}

}  // namespace kernels::cpu

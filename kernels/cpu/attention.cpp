// Attention over a step in two loops: first every row's K and V go to the pages, then every row
// reads the pages up to itself, some rows of a prompt together, which share the reading. Rows of
// the same step are read back from the pages too, so a prompt in one piece and the same prompt in
// two give the same bits.
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

/// How the second loop is cut into tasks: some rows, times some heads of one KV head.
struct Cut {
    std::int64_t rows = 1;    // of a task
    std::int64_t heads = 1;   // of a task
    std::int64_t chunks = 1;  // tasks of a group of heads
    std::int64_t tasks = 0;

    /// Heads of a group and neighbouring rows share the reads of K and V, unless that would leave
    /// threads without work.
    Cut(const AttentionArgs& args, std::int64_t step_rows, std::int64_t threads) {
        const std::int64_t group = args.n_h / args.n_kv;
        const auto count = [&] { return (step_rows + rows - 1) / rows * args.n_kv * chunks; };
        heads = std::min<std::int64_t>(group, kAttentionQueries);
        chunks = (group + heads - 1) / heads;
        rows = kAttentionQueries / heads;
        while (count() < kTasksPerThread * threads && (rows > 1 || heads > 1)) {
            if (rows > 1) {
                rows /= 2;
            } else {
                heads = (heads + 1) / 2;
                chunks = (group + heads - 1) / heads;
            }
        }
        tasks = count();
    }

    static constexpr std::int64_t kTasksPerThread = 2;
};

/// Rows begin .. end - 1, all of one sequence, with query heads first .. first + heads - 1, all of
/// one KV head.
struct Queries {
    std::int64_t begin, end;
    std::int64_t first, heads;
};

void attend(const Context& context, const AttentionArgs& args, const Queries& part, float* work) {
    const StepDescriptor& step = *context.step;
    const std::int64_t head_dim = args.head_dim;
    const std::int64_t q_stride = head_dim * (args.has_gate ? 2 : 1);
    const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    float* q = work;                                   // [queries, D]
    float* out = work + kAttentionQueries * head_dim;  // [queries, D]
    const std::int64_t kv_head = part.first / (args.n_h / args.n_kv);
    const std::int64_t element_bytes = args.kv.k.dtype == DType::kF16 ? 2 : 4;
    const std::int64_t head_bytes = kv_head * args.kv.k.shape[2] * head_dim * element_bytes;
    AttentionQueries job{.queries = static_cast<int>((part.end - part.begin) * part.heads),
                         .head_dim = args.head_dim,
                         .kv_is_f16 = args.kv.k.dtype == DType::kF16,
                         .q = q,
                         .tokens = {},
                         .k = args.kv.k.as<std::uint8_t>() + head_bytes,
                         .v = args.kv.v.as<std::uint8_t>() + head_bytes,
                         .page_bytes = args.kv.k.row_stride * element_bytes,
                         .block_table = block_table_of(step, part.begin),
                         .block_tokens = static_cast<int>(args.kv.k.shape[2]),
                         .stretch = out + kAttentionQueries * head_dim,
                         .out = out};
    for (std::int64_t i = 0; i < job.queries; ++i) {
        const std::int64_t m = part.begin + i / part.heads;
        float* query = q + i * head_dim;
        const float* from = args.q.row<float>(m) + (part.first + i % part.heads) * q_stride;
        prepare_head(context, args, from, args.q_norm, m, query);
        for (std::int64_t c = 0; c < head_dim; ++c)
            query[c] *= scale;
        job.tokens[i] = kv_position(step, m) + 1;
    }
    context.attention.attend(job);
    for (std::int64_t i = 0; i < job.queries; ++i) {
        const std::int64_t m = part.begin + i / part.heads;
        const std::int64_t head = part.first + i % part.heads;
        const float* from = out + i * head_dim;
        float* y = args.y.row<float>(m) + head * head_dim;
        if (args.has_gate) {
            const float* gate = args.q.row<float>(m) + head * q_stride + head_dim;
            context.attention.gate(from, gate, head_dim, y);
        } else {
            std::copy(from, from + head_dim, y);
        }
    }
}

/// Task `task` of a cut. Its rows may belong to several sequences, which are taken in turn.
void run_task(const Context& context, const AttentionArgs& args, const Cut& cut, std::int64_t task,
              float* work) {
    const StepDescriptor& step = *context.step;
    const std::int64_t group = args.n_h / args.n_kv;
    const std::int64_t in_group = task % cut.chunks * cut.heads;
    const std::int64_t kv_head = task / cut.chunks % args.n_kv;
    const std::int64_t begin = task / (args.n_kv * cut.chunks) * cut.rows;
    const std::int64_t end = std::min<std::int64_t>(begin + cut.rows, step.rows);
    for (std::int64_t m = begin; m < end;) {
        const auto seq = static_cast<std::size_t>(step.seq_of_row[static_cast<std::size_t>(m)]);
        const std::int64_t last = std::min<std::int64_t>(end, step.row_begin[seq + 1]);
        attend(context, args,
               {.begin = m,
                .end = last,
                .first = kv_head * group + in_group,
                .heads = std::min(cut.heads, group - in_group)},
               work);
        m = last;
    }
}

}  // namespace

void attention(const Context& context, const AttentionArgs& args) {
    const StepDescriptor& step = *context.step;
    const std::int64_t head_dim = args.head_dim;
    assert((2 * kAttentionQueries + 2 * kAttentionStretch) * head_dim <=
               context.scratch->work_values &&
           "prepare was told the largest K, which is at least the heads together");
    append(context, args);

    const Cut cut(args, step.rows, context.pool->threads());
    const auto body = [&](const LoopPart& part) {
        // Later rows of a prompt read more: they come first, so that what is left to the end is
        // short.
        for (std::int64_t i = part.begin; i < part.end; ++i)
            run_task(context, args, cut, cut.tasks - 1 - i, context.thread(part).work);
    };
    std::int64_t tokens = 0;
    for (std::int64_t m = 0; m < step.rows; ++m)
        tokens += kv_position(step, m) + 1;
    if (tokens * args.n_h * head_dim * 2 < kWorkPerWakeUp) {
        context.pool->run_here(cut.tasks, body);
    } else {
        context.pool->run(cut.tasks, body);
    }
}

}  // namespace kernels::cpu

// Attention in double: all scores of a head, one softmax, one weighted sum. K and V are rounded to
// the pages' type, as every reader of the pages sees them. The softmax is taken in two passes over
// the scores, which are computed twice instead of stored: there is no room for a whole context.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/quant/half.h"

namespace kernels::cpu {
namespace {

void prepare_head(const Context& context, const AttentionArgs& args, const float* in,
                  const TensorView& norm, std::int64_t row, double* out) {
    std::copy(in, in + args.head_dim, out);
    if (!norm.empty()) {
        double squares = 0.0;
        for (int i = 0; i < args.head_dim; ++i)
            squares += out[i] * out[i];
        const double factor = 1.0 / std::sqrt(squares / args.head_dim + double{args.norm_eps});
        for (int i = 0; i < args.head_dim; ++i)
            out[i] *= factor * norm.as<float>()[i];
    }
    const std::int32_t position = context.step->position[static_cast<std::size_t>(row)];
    rotate(out, args.rope.row<float>(position), args.n_rot, args.pairing);
}

void store(const TensorView& pool, std::int64_t at, double value) {
    const auto rounded = static_cast<float>(value);
    if (pool.dtype == DType::kF16) {
        pool.as<std::uint16_t>()[at] = f32_to_f16(rounded);
    } else {
        pool.as<float>()[at] = rounded;
    }
}

double load(const TensorView& pool, std::int64_t at) {
    return pool.dtype == DType::kF16 ? f16_to_f32(pool.as<std::uint16_t>()[at])
                                     : pool.as<float>()[at];
}

void append(const Context& context, const AttentionArgs& args, std::int64_t m, double* key) {
    const std::int32_t* block_table = block_table_of(*context.step, m);
    const std::int64_t token = kv_position(*context.step, m);
    for (std::int64_t head = 0; head < args.n_kv; ++head) {
        const std::int64_t column = head * args.head_dim;
        prepare_head(context, args, args.k.row<float>(m) + column, args.k_norm, m, key);
        const std::int64_t k_at = kv_offset(args.kv.k, block_table, token, head);
        const std::int64_t v_at = kv_offset(args.kv.v, block_table, token, head);
        for (int i = 0; i < args.head_dim; ++i) {
            store(args.kv.k, k_at + i, key[i]);
            store(args.kv.v, v_at + i, double{args.v.row<float>(m)[column + i]});
        }
    }
}

double score(const AttentionArgs& args, const double* q, const std::int32_t* block_table,
             std::int64_t token, std::int64_t kv_head) {
    const std::int64_t at = kv_offset(args.kv.k, block_table, token, kv_head);
    double sum = 0.0;
    for (int i = 0; i < args.head_dim; ++i)
        sum += q[i] * load(args.kv.k, at + i);
    return sum / std::sqrt(static_cast<double>(args.head_dim));
}

void attend_head(const Context& context, const AttentionArgs& args, std::int64_t m,
                 std::int64_t head, double* work) {
    const std::int32_t* block_table = block_table_of(*context.step, m);
    const std::int64_t tokens = kv_position(*context.step, m) + 1;
    const std::int64_t kv_head = head / (args.n_h / args.n_kv);
    const std::int64_t q_stride = std::int64_t{args.head_dim} * (args.has_gate ? 2 : 1);
    const float* query = args.q.row<float>(m) + head * q_stride;
    double* q = work;
    double* out = work + args.head_dim;
    prepare_head(context, args, query, args.q_norm, m, q);
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t t = 0; t < tokens; ++t)
        largest = std::max(largest, score(args, q, block_table, t, kv_head));
    std::fill(out, out + args.head_dim, 0.0);
    double total = 0.0;
    for (std::int64_t t = 0; t < tokens; ++t) {
        const double weight = std::exp(score(args, q, block_table, t, kv_head) - largest);
        const std::int64_t at = kv_offset(args.kv.v, block_table, t, kv_head);
        total += weight;
        for (int i = 0; i < args.head_dim; ++i)
            out[i] += weight * load(args.kv.v, at + i);
    }
    float* y = args.y.row<float>(m) + head * args.head_dim;
    for (int i = 0; i < args.head_dim; ++i) {
        const double gate =
            args.has_gate ? 1.0 / (1.0 + std::exp(-double{query[args.head_dim + i]})) : 1.0;
        y[i] = static_cast<float>(out[i] / total * gate);
    }
}

}  // namespace

void reference_attention(const Context& context, const AttentionArgs& args) {
    const StepDescriptor& step = *context.step;
    assert(2 * std::int64_t{args.head_dim} <= context.scratch->work_values &&
           "prepare was told the largest K, which is at least the heads together");
    context.pool->run(step.rows, [&](const LoopPart& part) {
        for (std::int64_t m = part.begin; m < part.end; ++m)
            append(context, args, m, context.thread(part).work_double);
    });
    context.pool->run(std::int64_t{step.rows} * args.n_h, [&](const LoopPart& part) {
        for (std::int64_t i = part.begin; i < part.end; ++i)
            attend_head(context, args, i / args.n_h, i % args.n_h,
                        context.thread(part).work_double);
    });
}

}  // namespace kernels::cpu

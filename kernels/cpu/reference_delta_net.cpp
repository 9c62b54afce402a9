// The gated delta net in double, line by line as the recurrence is written. Only the state itself
// is f32, since that is how it lies in its slot: it is rounded once per row, so that a split prompt
// still equals a whole one.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/cpu/ops.h"

namespace kernels::cpu {
namespace {

double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

double softplus(double x) {
    return x > 20.0 ? x : std::log1p(std::exp(x));
}

/// silu(convolution) of `count` channels from `first` on.
void convolve(const DeltaNetArgs& args, const float* const* taps, std::int64_t first,
              std::int64_t count, double* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float* w = args.conv_w.as<float>() + (first + i) * args.conv_kernel;
        double sum = 0.0;
        for (int j = 0; j < args.conv_kernel; ++j)
            if (taps[j] != nullptr) sum += double{w[j]} * taps[j][first + i];
        out[i] = sum * sigmoid(sum);
    }
}

void scale_to_unit(double* x, std::int64_t count, double extra) {
    double squares = 0.0;
    for (std::int64_t i = 0; i < count; ++i)
        squares += x[i] * x[i];
    const double factor = extra / std::sqrt(squares + 1e-6);
    for (std::int64_t i = 0; i < count; ++i)
        x[i] *= factor;
}

/// o = what the updated state returns for q.
void update_state(float* state, std::int64_t size, const double* q, const double* k,
                  const double* v, double decay, double beta, double* o) {
    for (std::int64_t c = 0; c < size; ++c) {
        float* row = state + c * size;
        double recalled = 0.0;
        for (std::int64_t i = 0; i < size; ++i)
            recalled += decay * row[i] * k[i];
        const double delta = beta * (v[c] - recalled);
        o[c] = 0.0;
        for (std::int64_t i = 0; i < size; ++i) {
            const double now = decay * row[i] + k[i] * delta;
            row[i] = static_cast<float>(now);
            o[c] += now * q[i];
        }
    }
}

void run_head(const Context& context, const DeltaNetArgs& args, std::int32_t s, std::int32_t head,
              double* work) {
    const StepDescriptor& step = *context.step;
    const auto seq = static_cast<std::size_t>(s);
    const std::int64_t size = args.state_size;
    const std::int64_t key_head =
        args.head_order == HeadOrder::kTiled ? head % args.n_k : head / (args.n_v / args.n_k);
    double* q = work;
    double* k = work + size;
    double* v = work + 2 * size;
    double* o = work + 3 * size;
    float* state = args.state.row<float>(step.state_slot[seq]) + head * size * size;
    if (step.kv_len_before[seq] == 0) std::fill(state, state + size * size, 0.0F);
    const std::int64_t begin = step.row_begin[seq];
    for (std::int64_t m = begin; m < step.row_begin[seq + 1]; ++m) {
        const float* taps[kConvKernelMax];
        convolution_taps(step, args, s, m - begin, taps);
        convolve(args, taps, key_head * size, size, q);
        convolve(args, taps, (args.n_k + key_head) * size, size, k);
        convolve(args, taps, (2 * args.n_k + head) * size, size, v);
        scale_to_unit(q, size, 1.0 / std::sqrt(static_cast<double>(size)));
        scale_to_unit(k, size, 1.0);
        const double alpha =
            double{args.alpha.row<float>(m)[head]} + args.dt_bias.as<float>()[head];
        const double decay = std::exp(args.a.as<float>()[head] * softplus(alpha));
        update_state(state, size, q, k, v, decay, sigmoid(args.beta.row<float>(m)[head]), o);

        double squares = 0.0;
        for (std::int64_t i = 0; i < size; ++i)
            squares += o[i] * o[i];
        const double factor =
            1.0 / std::sqrt(squares / static_cast<double>(size) + double{args.norm_eps});
        const float* z = args.z.row<float>(m) + head * size;
        float* y = args.y.row<float>(m) + head * size;
        for (std::int64_t i = 0; i < size; ++i)
            y[i] = static_cast<float>(o[i] * factor * args.norm_weight.as<float>()[i] *
                                      (z[i] * sigmoid(z[i])));
    }
}

}  // namespace

void reference_delta_net(const Context& context, const DeltaNetArgs& args) {
    const StepDescriptor& step = *context.step;
    assert(4 * std::int64_t{args.state_size} <= context.scratch->work_values &&
           "prepare was told the largest K, which is at least the heads together");
    context.pool->run(std::int64_t{step.seqs} * args.n_v, [&](const LoopPart& part) {
        for (std::int64_t i = part.begin; i < part.end; ++i)
            run_head(context, args, static_cast<std::int32_t>(i / args.n_v),
                     static_cast<std::int32_t>(i % args.n_v), context.thread(part).work_double);
    });
    store_convolution_state(context, args);
}

}  // namespace kernels::cpu

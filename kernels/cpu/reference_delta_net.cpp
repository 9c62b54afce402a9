// The gated delta net in double, line by line as the recurrence is written. f32 are only what lies
// in memory between steps: the state, rounded once per row, so that a split prompt still equals a
// whole one; and unit keys, deltas and decays, so that a replayed row equals a committed one.
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

/// S_c <- decay S_c + delta key. Products of two f32 are exact in double, so this is one rounding
/// to double and one to f32, with a fused instruction or without.
double advanced(float old, float decay, float delta, float key) {
    return double{decay} * old + double{key} * delta;
}

/// The memory of one value head, and what a row does to it.
struct HeadState {
    float* s;  // [size (value), size (key)]
    std::int64_t size;

    void replay(const float* key, const float* delta, float decay) const {
        for (std::int64_t c = 0; c < size; ++c)
            for (std::int64_t i = 0; i < size; ++i)
                s[c * size + i] =
                    static_cast<float>(advanced(s[c * size + i], decay, delta[c], key[i]));
    }

    /// o = what the updated state returns for q; `delta` = what it was updated with.
    void update(const double* q, const float* k, const double* v, float decay, double beta,
                float* delta, double* o) const {
        for (std::int64_t c = 0; c < size; ++c) {
            float* row = s + c * size;
            double recalled = 0.0;
            for (std::int64_t i = 0; i < size; ++i)
                recalled += double{decay} * row[i] * k[i];
            delta[c] = static_cast<float>(beta * (v[c] - recalled));
            o[c] = 0.0;
            for (std::int64_t i = 0; i < size; ++i) {
                const double now = advanced(row[i], decay, delta[c], k[i]);
                row[i] = static_cast<float>(now);
                o[c] += now * q[i];
            }
        }
    }
};

void write_output(const DeltaNetArgs& args, std::int64_t m, std::int32_t head, const double* o) {
    const std::int64_t size = args.state_size;
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

void run_head(const Context& context, const DeltaNetArgs& args, std::int32_t s, std::int32_t head,
              const ThreadScratch& scratch) {
    const StepDescriptor& step = *context.step;
    const auto seq = static_cast<std::size_t>(s);
    const std::int64_t size = args.state_size;
    const std::int64_t key_head = key_head_of(args, head);
    double* q = scratch.work_double;
    double* v = q + size;
    double* k = v + size;
    double* o = k + size;
    float* key = scratch.work;
    float* delta = key + size;
    HeadState state{args.state.row<float>(step.state_slot[seq]) + head * size * size, size};
    if (step.kv_len_before[seq] == 0) std::fill(state.s, state.s + size * size, 0.0F);
    for (int j = 0; j < replay_rows_of(step, s); ++j) {
        const ReplayRow from = replay_row(step, args, s, j);
        state.replay(from.keys + key_head * size, from.deltas + head * size, from.decays[head]);
    }
    const bool is_kept = commits(step, s);
    if (!is_kept) state.s = std::copy_n(state.s, size * size, delta + size) - size * size;
    const std::int64_t begin = step.row_begin[seq];
    for (std::int64_t m = begin; m < step.row_begin[seq + 1]; ++m) {
        const float* taps[kConvKernelMax];
        convolution_taps(step, args, s, m - begin, taps);
        convolve(args, taps, key_head * size, size, q);
        convolve(args, taps, (args.n_k + key_head) * size, size, k);
        convolve(args, taps, (2 * args.n_k + head) * size, size, v);
        scale_to_unit(q, size, 1.0 / std::sqrt(static_cast<double>(size)));
        scale_to_unit(k, size, 1.0);
        for (std::int64_t i = 0; i < size; ++i)
            key[i] = static_cast<float>(k[i]);
        const double alpha =
            double{args.alpha.row<float>(m)[head]} + args.dt_bias.as<float>()[head];
        const auto decay = static_cast<float>(std::exp(args.a.as<float>()[head] * softplus(alpha)));
        state.update(q, key, v, decay, sigmoid(args.beta.row<float>(m)[head]), delta, o);
        write_output(args, m, head, o);
        if (is_kept) continue;
        const ReplayRow to = replay_row(step, args, s, m - begin);
        std::copy_n(delta, size, to.deltas + head * size);
        to.decays[head] = decay;
        if (is_first_of_key_head(args, head))
            std::copy_n(key, size, unit_keys(context, m) + key_head * size);
    }
}

}  // namespace

void reference_delta_net(const Context& context, const DeltaNetArgs& args) {
    const StepDescriptor& step = *context.step;
    check_delta_net(context, args);
    assert(std::int64_t{args.state_size} * (args.state_size + 2) <= context.scratch->work_values &&
           "a thread's work memory holds the state of a head");
    context.pool->run(std::int64_t{step.seqs} * args.n_v, [&](const LoopPart& part) {
        for (std::int64_t i = part.begin; i < part.end; ++i)
            run_head(context, args, static_cast<std::int32_t>(i / args.n_v),
                     static_cast<std::int32_t>(i % args.n_v), context.thread(part));
    });
    store_step_inputs(context, args);
}

}  // namespace kernels::cpu

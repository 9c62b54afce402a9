// Gated delta net over a step: every (sequence, value head) is a task of its own that walks its
// sequence's rows in order. The state in memory is brought up to date row by row, so it does not
// matter how a prompt was cut into steps.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/cpu/ops.h"

namespace kernels::cpu {
namespace {

float softplus(float x) {
    return x > 20.0F ? x : std::log1p(std::exp(x));
}

/// Rows of a head the work memory of a thread has room for.
int rows_per_call(const Context& context, const DeltaNetArgs& args) {
    const std::int64_t room = context.scratch->work_values / (4 * std::int64_t{args.state_size});
    return static_cast<int>(std::min<std::int64_t>(room, kDeltaRows));
}

void run_head(const Context& context, const DeltaNetArgs& args, std::int32_t s, std::int32_t head,
              float* work) {
    const StepDescriptor& step = *context.step;
    const auto seq = static_cast<std::size_t>(s);
    const std::int64_t size = args.state_size;
    const std::int64_t key_head =
        args.head_order == HeadOrder::kTiled ? head % args.n_k : head / (args.n_v / args.n_k);
    float* state = args.state.row<float>(step.state_slot[seq]) + head * size * size;
    if (step.kv_len_before[seq] == 0) std::fill(state, state + size * size, 0.0F);

    DeltaRow row[kDeltaRows];
    DeltaHead job{.state_size = args.state_size,
                  .conv_kernel = args.conv_kernel,
                  .norm_eps = args.norm_eps,
                  .conv_w = args.conv_w.as<float>(),
                  .q_channel = key_head * size,
                  .k_channel = (args.n_k + key_head) * size,
                  .v_channel = (2 * args.n_k + head) * size,
                  .norm_weight = args.norm_weight.as<float>(),
                  .state = state,
                  .row = row,
                  .work = work};
    const std::int64_t begin = step.row_begin[seq];
    const std::int64_t rows = step.row_begin[seq + 1] - begin;
    const int at_once = rows_per_call(context, args);
    for (std::int64_t t0 = 0; t0 < rows; t0 += at_once) {
        job.rows = static_cast<int>(std::min<std::int64_t>(at_once, rows - t0));
        for (int i = 0; i < job.rows; ++i) {
            const std::int64_t m = begin + t0 + i;
            convolution_taps(step, args, s, t0 + i, row[i].taps);
            const float alpha = args.alpha.row<float>(m)[head] + args.dt_bias.as<float>()[head];
            row[i].decay = std::exp(args.a.as<float>()[head] * softplus(alpha));
            row[i].beta = 1.0F / (1.0F + std::exp(-args.beta.row<float>(m)[head]));
            row[i].z = args.z.row<float>(m) + head * size;
            row[i].y = args.y.row<float>(m) + head * size;
        }
        context.delta.head(job);
    }
}

}  // namespace

void delta_net(const Context& context, const DeltaNetArgs& args) {
    const StepDescriptor& step = *context.step;
    assert(4 * std::int64_t{args.state_size} <= context.scratch->work_values &&
           "prepare was told the largest K, which is at least the heads together");
    const auto body = [&](const LoopPart& part) {
        for (std::int64_t i = part.begin; i < part.end; ++i)
            run_head(context, args, static_cast<std::int32_t>(i / args.n_v),
                     static_cast<std::int32_t>(i % args.n_v), context.thread(part).work);
    };
    const std::int64_t tasks = std::int64_t{step.seqs} * args.n_v;
    const std::int64_t work =
        std::int64_t{step.rows} * args.n_v * args.state_size * args.state_size * 4;
    if (work < kWorkPerWakeUp) {
        context.pool->run_here(tasks, body);
    } else {
        context.pool->run(tasks, body);
    }
    store_convolution_state(context, args);
}

void convolution_taps(const StepDescriptor& step, const DeltaNetArgs& args, std::int32_t s,
                      std::int64_t t, const float** taps) {
    const auto seq = static_cast<std::size_t>(s);
    const std::int64_t history = args.conv_kernel - 1;
    const std::int64_t conv_dim = args.conv_state.shape[2];
    for (std::int64_t j = 0; j <= history; ++j) {
        const std::int64_t time = t - history + j;  // within the step's rows of the sequence
        if (time >= 0) {
            taps[j] = args.u.row<float>(step.row_begin[seq] + time);
        } else if (step.kv_len_before[seq] == 0) {
            taps[j] = nullptr;
        } else {
            taps[j] =
                args.conv_state.row<float>(step.state_slot[seq]) + (history + time) * conv_dim;
        }
    }
}

void store_convolution_state(const Context& context, const DeltaNetArgs& args) {
    const StepDescriptor& step = *context.step;
    const std::int64_t history = args.conv_kernel - 1;
    const std::int64_t conv_dim = args.conv_state.shape[2];
    const auto bytes = static_cast<std::size_t>(conv_dim) * sizeof(float);
    const auto body = [&](const LoopPart& part) {
        for (std::int64_t s = part.begin; s < part.end; ++s) {
            const auto seq = static_cast<std::size_t>(s);
            const std::int64_t begin = step.row_begin[seq];
            const std::int64_t rows = step.row_begin[seq + 1] - begin;
            if (rows == 0) continue;
            float* slot = args.conv_state.row<float>(step.state_slot[seq]);
            for (std::int64_t i = 0; i < history; ++i) {  // ascending: reads lie behind writes
                const std::int64_t time = rows - history + i;
                float* to = slot + i * conv_dim;
                if (time >= 0) {
                    std::memcpy(to, args.u.row<float>(begin + time), bytes);
                } else if (step.kv_len_before[seq] == 0) {
                    std::memset(to, 0, bytes);
                } else {
                    std::memcpy(to, slot + (history + time) * conv_dim, bytes);
                }
            }
        }
    };
    if (std::int64_t{step.seqs} * history * conv_dim < kWorkPerWakeUp) {
        context.pool->run_here(step.seqs, body);
    } else {
        context.pool->run(step.seqs, body);
    }
}

}  // namespace kernels::cpu

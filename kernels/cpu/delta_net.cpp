// Gated delta net over a step: every (sequence, value head) is a task of its own that walks its
// sequence's rows in order. The state in memory is brought up to date row by row, so it does not
// matter how a prompt was cut into steps. What heads share, the convolution's inputs and the unit
// keys of rows that may be taken back, is stored when all are done: until then others read it.
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

void run_head(const Context& context, const DeltaNetArgs& args, std::int32_t s, std::int32_t head,
              float* work) {
    const StepDescriptor& step = *context.step;
    const auto seq = static_cast<std::size_t>(s);
    const std::int64_t size = args.state_size;
    const std::int64_t key_head = key_head_of(args, head);
    float* state = args.state.row<float>(step.state_slot[seq]) + head * size * size;
    if (step.kv_len_before[seq] == 0) std::fill(state, state + size * size, 0.0F);

    DeltaUpdate update[kDeltaRows];
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
                  .update = update,
                  .updates = replay_rows_of(step, s),
                  .row = row,
                  .commits = commits(step, s),
                  .work = work};
    for (int j = 0; j < job.updates; ++j) {
        const ReplayRow from = replay_row(step, args, s, j);
        update[j] = {.key = from.keys + key_head * size,
                     .delta = from.deltas + head * size,
                     .decay = from.decays[head]};
    }
    const std::int64_t begin = step.row_begin[seq];
    const std::int64_t rows = step.row_begin[seq + 1] - begin;
    std::int64_t done = 0;
    do {
        job.rows = static_cast<int>(std::min<std::int64_t>(kDeltaRows, rows - done));
        for (int i = 0; i < job.rows; ++i) {
            const std::int64_t m = begin + done + i;
            convolution_taps(step, args, s, done + i, row[i].taps);
            const float alpha = args.alpha.row<float>(m)[head] + args.dt_bias.as<float>()[head];
            row[i].decay = std::exp(args.a.as<float>()[head] * softplus(alpha));
            row[i].beta = 1.0F / (1.0F + std::exp(-args.beta.row<float>(m)[head]));
            row[i].z = args.z.row<float>(m) + head * size;
            row[i].y = args.y.row<float>(m) + head * size;
            row[i].key_out = row[i].delta_out = nullptr;
            if (job.commits) continue;
            const ReplayRow to = replay_row(step, args, s, i);
            row[i].delta_out = to.deltas + head * size;
            to.decays[head] = row[i].decay;  // `update` holds a copy of the old one
            if (is_first_of_key_head(args, head))
                row[i].key_out = unit_keys(context, m) + key_head * size;
        }
        context.delta.head(job);
        job.updates = 0;
        done += job.rows;
    } while (done < rows);
}

}  // namespace

void delta_net(const Context& context, const DeltaNetArgs& args) {
    check_delta_net(context, args);
    const StepDescriptor& step = *context.step;
    const auto body = [&](const LoopPart& part) {
        for (std::int64_t i = part.begin; i < part.end; ++i)
            run_head(context, args, static_cast<std::int32_t>(i / args.n_v),
                     static_cast<std::int32_t>(i % args.n_v), context.thread(part).work);
    };
    const std::int64_t tasks = std::int64_t{step.seqs} * args.n_v;
    const std::int64_t work =
        std::int64_t{step.rows + step.seqs} * args.n_v * args.state_size * args.state_size * 4;
    if (work < kWorkPerWakeUp) {
        context.pool->run_here(tasks, body);
    } else {
        context.pool->run(tasks, body);
    }
    store_step_inputs(context, args);
}

// ---------------------------------------------------------------------------------------------
// Shared by the fast and the reference form

void check_delta_net(const Context& context, const DeltaNetArgs& args) {
    const StepDescriptor& step = *context.step;
    assert(args.n_k > 0 && args.n_v % args.n_k == 0);
    assert(args.conv_kernel >= 2 && args.conv_kernel <= kConvKernelMax);
    const std::int64_t conv_dim = std::int64_t{2 * args.n_k + args.n_v} * args.state_size;
    assert(args.u.shape[1] == conv_dim && args.conv_ring.shape[2] == conv_dim);
    assert(args.conv_ring.shape[1] >= conv_ring_rows_min(args) && "the ring holds all taps");
    assert(args.state.shape[1] == args.n_v && args.state.shape[2] == args.state_size &&
           args.state.shape[3] == args.state_size);
    assert(std::int64_t{args.n_v} * args.state_size <= context.scratch->inputs_max &&
           "prepare was told the largest K, which is at least the heads together");
    assert(
        args.replay.empty() ||
        (args.replay.shape[1] <= kDeltaRows &&
         args.replay.shape[2] == std::int64_t{args.n_k + args.n_v} * args.state_size + args.n_v));
    const std::int64_t replay_max = args.replay.empty() ? 0 : args.replay.shape[1];
    for (std::int32_t s = 0; s < step.seqs; ++s) {
        const auto seq = static_cast<std::size_t>(s);
        assert(replay_rows_of(step, s) >= 0 && replay_rows_of(step, s) <= replay_max);
        assert(replay_rows_of(step, s) <= step.kv_len_before[seq] &&
               "accepted rows count as tokens of the state");
        assert((commits(step, s) || step.row_begin[seq + 1] - step.row_begin[seq] <= replay_max) &&
               "a verify step has at most 1 + drafts rows");
    }
}

std::int64_t key_head_of(const DeltaNetArgs& args, std::int32_t head) {
    return args.head_order == HeadOrder::kTiled ? head % args.n_k : head / (args.n_v / args.n_k);
}

bool is_first_of_key_head(const DeltaNetArgs& args, std::int32_t head) {
    return args.head_order == HeadOrder::kTiled ? head < args.n_k
                                                : head % (args.n_v / args.n_k) == 0;
}

int replay_rows_of(const StepDescriptor& step, std::int32_t s) {
    return step.replay_rows.empty() ? 0 : step.replay_rows[static_cast<std::size_t>(s)];
}

bool commits(const StepDescriptor& step, std::int32_t s) {
    return step.commit.empty() || step.commit[static_cast<std::size_t>(s)] != 0;
}

ReplayRow replay_row(const StepDescriptor& step, const DeltaNetArgs& args, std::int32_t s,
                     std::int64_t index) {
    float* keys = args.replay.row<float>(step.state_slot[static_cast<std::size_t>(s)]) +
                  index * args.replay.shape[2];
    float* deltas = keys + std::int64_t{args.n_k} * args.state_size;
    return {keys, deltas, deltas + std::int64_t{args.n_v} * args.state_size};
}

float* unit_keys(const Context& context, std::int64_t m) {
    return context.scratch->floats + m * context.scratch->inputs_max;
}

void convolution_taps(const StepDescriptor& step, const DeltaNetArgs& args, std::int32_t s,
                      std::int64_t t, const float** taps) {
    const auto seq = static_cast<std::size_t>(s);
    const std::int64_t before = step.kv_len_before[seq];
    const std::int64_t ring = args.conv_ring.shape[1];
    const float* slot = args.conv_ring.row<float>(step.state_slot[seq]);
    for (std::int64_t j = 0; j < args.conv_kernel; ++j) {
        const std::int64_t position = before + t - (args.conv_kernel - 1) + j;
        if (position < 0) {
            taps[j] = nullptr;
        } else if (position >= before) {
            taps[j] = args.u.row<float>(step.row_begin[seq] + position - before);
        } else {
            taps[j] = slot + position % ring * args.conv_ring.shape[2];
        }
    }
}

void store_step_inputs(const Context& context, const DeltaNetArgs& args) {
    const StepDescriptor& step = *context.step;
    const std::int64_t ring = args.conv_ring.shape[1];
    const std::int64_t conv_dim = args.conv_ring.shape[2];
    const std::int64_t key_dim = std::int64_t{args.n_k} * args.state_size;
    const auto body = [&](const LoopPart& part) {
        for (std::int64_t i = part.begin; i < part.end; ++i) {
            const auto s = static_cast<std::int32_t>(i);
            const auto seq = static_cast<std::size_t>(i);
            const std::int64_t begin = step.row_begin[seq];
            const std::int64_t rows = step.row_begin[seq + 1] - begin;
            float* slot = args.conv_ring.row<float>(step.state_slot[seq]);
            for (std::int64_t t = std::max<std::int64_t>(0, rows - ring); t < rows; ++t)
                std::memcpy(slot + (step.kv_len_before[seq] + t) % ring * conv_dim,
                            args.u.row<float>(begin + t),
                            static_cast<std::size_t>(conv_dim) * sizeof(float));
            if (commits(step, s)) continue;
            for (std::int64_t t = 0; t < rows; ++t)
                std::memcpy(replay_row(step, args, s, t).keys, unit_keys(context, begin + t),
                            static_cast<std::size_t>(key_dim) * sizeof(float));
        }
    };
    if (std::min<std::int64_t>(step.rows, step.seqs * ring) * conv_dim < kWorkPerWakeUp) {
        context.pool->run_here(step.seqs, body);
    } else {
        context.pool->run(step.seqs, body);
    }
}

}  // namespace kernels::cpu

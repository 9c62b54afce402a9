#include "kernels/cuda/delta_net.h"

#include <cassert>

#include "kernels/cuda/delta_step.h"

namespace kernels::cuda {
namespace {

constexpr int kWarpLanes = 32;
constexpr int kColumnsPerWarp = 8;
constexpr int kStoreThreads = 256;

void check_replay(const StepDescriptor& step, const DeltaNetArgs& args) {
    const std::int64_t rows_max = args.replay.empty() ? 0 : args.replay.shape[1];
    assert(args.replay.empty() ||
           args.replay.shape[2] == std::int64_t{args.n_k + args.n_v} * args.state_size + args.n_v);
    for (std::size_t s = 0; s < static_cast<std::size_t>(step.seqs); ++s) {
        const std::int32_t replays = step.replay_rows.empty() ? 0 : step.replay_rows[s];
        assert(replays >= 0 && replays <= rows_max);
        assert(replays <= step.kv_len_before[s] && "accepted rows count as tokens of the state");
        const bool commits = step.commit.empty() || step.commit[s] != 0;
        assert((commits || step.row_begin[s + 1] - step.row_begin[s] <= rows_max) &&
               "a verify step has at most 1 + drafts rows");
    }
}

/// The plain kernel, for sequences of more than `rows_above` rows.
void launch_plain(const OpContext& context, const DeltaNetArgs& args, std::int32_t rows_above) {
    DeltaNetParams p = delta_net_params(context, args);
    p.rows_above = rows_above;
    const std::int64_t seqs = context.step->seqs;
    const std::int64_t conv_dim = std::int64_t{2 * args.n_k + args.n_v} * args.state_size;
    const int warps = (args.state_size + kColumnsPerWarp - 1) / kColumnsPerWarp;
    context.kernels->launch(delta_net_kernel(args.state_size),
                            {.x = seqs, .y = args.n_v, .threads = warps * kWarpLanes},
                            context.stream, p);
    context.kernels->launch(
        KernelId::kStepInputsStore,
        {.x = (conv_dim + kStoreThreads - 1) / kStoreThreads, .y = seqs, .threads = kStoreThreads},
        context.stream, p);
}

/// What a step's sequences ask for.
struct StepShape {
    bool has_short = false;  // sequences of at most kDeltaStepRows rows, or none but replays
    bool has_long = false;
    bool replays_long = false;  // a long one has rows to replay first
};
StepShape shape_of(const StepDescriptor& step) {
    StepShape shape;
    for (std::size_t s = 0; s < static_cast<std::size_t>(step.seqs); ++s) {
        const bool is_long = step.row_begin[s + 1] - step.row_begin[s] > kDeltaStepRows;
        (is_long ? shape.has_long : shape.has_short) = true;
        if (is_long && !step.replay_rows.empty() && step.replay_rows[s] > 0)
            shape.replays_long = true;
    }
    return shape;
}

}  // namespace

DeltaNetParams delta_net_params(const OpContext& context, const DeltaNetArgs& args) {
    DeltaNetParams p{};
    p.step = context.view;
    p.n_k = args.n_k;
    p.n_v = args.n_v;
    p.state_size = args.state_size;
    p.conv_kernel = args.conv_kernel;
    p.is_grouped = args.head_order == HeadOrder::kGrouped;
    p.norm_eps = args.norm_eps;
    p.u = args.u.as<float>();
    p.u_stride = args.u.row_stride;
    p.z = args.z.as<float>();
    p.z_stride = args.z.row_stride;
    p.beta = args.beta.as<float>();
    p.beta_stride = args.beta.row_stride;
    p.alpha = args.alpha.as<float>();
    p.alpha_stride = args.alpha.row_stride;
    p.conv_w = args.conv_w.as<float>();
    p.dt_bias = args.dt_bias.as<float>();
    p.a = args.a.as<float>();
    p.norm_weight = args.norm_weight.as<float>();
    p.state = args.state.as<float>();
    p.state_stride = args.state.row_stride;
    p.conv_ring = args.conv_ring.as<float>();
    p.conv_ring_stride = args.conv_ring.row_stride;
    p.ring = static_cast<std::int32_t>(args.conv_ring.shape[1]);
    p.replay = args.replay.as<float>();
    p.replay_stride = args.replay.row_stride;
    p.replay_row = args.replay.shape[2];
    p.keys = context.scratch;
    p.keys_stride = context.scratch_stride;
    p.y = args.y.as<float>();
    p.y_stride = args.y.row_stride;
    p.rows_above = -1;
    return p;
}

void launch_delta_net(const OpContext& context, const DeltaNetArgs& args) {
    const std::int64_t seqs = context.step->seqs;
    if (seqs == 0) return;
    assert(args.n_k > 0 && args.n_v % args.n_k == 0);
    assert(args.state_size > 0 && args.state_size <= kStateSizeMax &&
           "state sizes up to 128 have a kernel");
    assert(args.conv_kernel >= 2 && args.conv_kernel <= kConvKernelMax);
    const std::int64_t conv_dim = std::int64_t{2 * args.n_k + args.n_v} * args.state_size;
    assert(args.u.shape[1] == conv_dim);
    assert(args.conv_ring.shape[1] >= conv_ring_rows_min(args) &&
           args.conv_ring.shape[2] == conv_dim);
    assert(args.n_k * args.state_size <= context.scratch_stride &&
           "prepare was told the largest K, which is at least the heads together");
    check_replay(*context.step, args);
    assert(args.state.dtype == DType::kF32 && args.state.shape[1] == args.n_v);
    DeltaNetRegistry& registry = *context.delta_net;
    const StepShape shape = shape_of(*context.step);
    const bool has_step = registry.is_step_armed() && delta_step_fits(args);
    const bool has_chunk = registry.is_chunk_armed() && delta_chunk_fits(args);
    if (shape.has_short && delta_step_fits(args) && !has_step) registry.count_step_fallback();
    if (shape.has_long && delta_chunk_fits(args) && !has_chunk) registry.count_chunk_fallback();
    if (!has_step) {
        launch_plain(context, args, -1);
        return;
    }
    const bool replays_long = has_chunk && shape.replays_long;
    if (shape.has_short || replays_long)
        launch_delta_step(context, args, {.replays_long = replays_long});
    if (!shape.has_long) return;
    if (has_chunk) {
        launch_delta_chunk(context, args);
    } else {
        launch_plain(context, args, kDeltaStepRows);
    }
}

}  // namespace kernels::cuda

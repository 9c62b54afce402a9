#include "kernels/cuda/delta_step.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "kernels/cuda/delta_net.h"

namespace kernels::cuda {
namespace {

constexpr int kWarpLanes = 32;
constexpr std::int64_t kSharedBytesPlain = 48 << 10;  // what a kernel gets without asking
static_assert(delta_step_shared_bytes(kDeltaStepHeads, kDeltaStepRows, kDeltaStepRows) <=
              kSharedBytesPlain);

constexpr std::array kKernels = {KernelId::kDeltaStep1, KernelId::kDeltaStep2,
                                 KernelId::kDeltaStep3, KernelId::kDeltaStep4};
static_assert(kKernels.size() == kDeltaStepHeads);

}  // namespace

bool delta_step_fits(const DeltaNetArgs& args) {
    const auto is_aligned = [](const TensorView& view) {
        return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.row_stride % 4 == 0;
    };
    return args.state_size == kDeltaStepSize && args.conv_kernel == kDeltaTaps &&
           args.n_v / args.n_k <= kDeltaStepHeads && is_aligned(args.state) &&
           is_aligned(args.conv_w) &&
           (args.replay.empty() || args.replay.shape[1] <= kDeltaStepRows);
}

void launch_delta_step(const OpContext& context, const DeltaNetArgs& args,
                       const DeltaStepOptions& options) {
    DeltaStepParams p{};
    p.net = delta_net_params(context, args);
    const std::int64_t rows = context.step->rows;
    p.rows_max = static_cast<std::int32_t>(std::min<std::int64_t>(rows, kDeltaStepRows));
    p.replays_max = args.replay.empty() ? 0 : static_cast<std::int32_t>(args.replay.shape[1]);
    p.y_rows = static_cast<std::int32_t>(rows);
    p.replays_long = options.replays_long;
    const int heads = args.n_v / args.n_k;
    context.kernels->launch(
        kKernels[static_cast<std::size_t>(heads - 1)],
        {.x = std::int64_t{kDeltaStepBlocks} * args.n_k,
         .y = context.step->seqs,
         .threads = heads * kDeltaStepSize / kDeltaStepBlocks / kDeltaStepColumns * kWarpLanes,
         .shared_bytes =
             static_cast<int>(delta_step_shared_bytes(heads, p.rows_max, p.replays_max)),
         .overlaps_previous = true},
        context.stream, p);
}

}  // namespace kernels::cuda

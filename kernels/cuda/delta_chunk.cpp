#include "kernels/cuda/delta_chunk.h"

#include <algorithm>
#include <cassert>

#include "kernels/cuda/delta_net.h"
#include "kernels/cuda/delta_step.h"

namespace kernels::cuda {

std::int64_t delta_chunk_scratch_bytes(const StepLimits& limits) {
    // A long sequence has one row more than delta_step takes, at least.
    const std::int64_t slots =
        std::min<std::int64_t>(kChunkSlots, limits.rows / (kDeltaStepRows + 1));
    return slots * chunk_slot_bytes(limits.delta_key_heads, limits.delta_value_heads);
}

bool delta_chunk_fits(const DeltaNetArgs& args) {
    static_assert(kChunkHeads == kDeltaStepHeads && kChunkSize == kDeltaStepSize);
    return delta_step_fits(args);
}

void launch_delta_chunk(const OpContext& context, const DeltaNetArgs& args) {
    DeltaChunkParams p{};
    p.net = delta_net_params(context, args);
    p.scratch = context.delta_chunk.scratch;
    p.slot_bytes = chunk_slot_bytes(args.n_k, args.n_v);
    const std::int64_t slots =
        std::min<std::int64_t>(kChunkSlots, context.delta_chunk.bytes / p.slot_bytes);
    assert(slots > 0 && "prepare was told the heads of the largest delta net");
    const auto seqs = static_cast<std::size_t>(context.step->seqs);
    ChunkWalk walk(context.step->row_begin.first(seqs + 1), kDeltaStepRows,
                   static_cast<std::int32_t>(slots));
    while (walk.next(p.batch)) {
        context.kernels->launch(KernelId::kDeltaChunkPrepare,
                                {.x = args.n_k,
                                 .y = p.batch.slots,
                                 .threads = kChunkPrepareThreads,
                                 .shared_bytes = kChunkPrepareBytes,
                                 .overlaps_previous = true},
                                context.stream, p);
        context.kernels->launch(KernelId::kDeltaChunkScan,
                                {.x = 2 * std::int64_t{args.n_v},
                                 .y = p.batch.pieces,
                                 .threads = kChunkScanThreads,
                                 .shared_bytes = kChunkScanBytes,
                                 .overlaps_previous = true},
                                context.stream, p);
    }
}

}  // namespace kernels::cuda

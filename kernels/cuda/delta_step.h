// What delta_step's kernel and its launcher agree on.
#pragma once

#include <cstdint>

#include "kernels/cuda/params.h"

namespace kernels::cuda {

inline constexpr int kDeltaTaps = 4;         // of the convolution
inline constexpr int kDeltaStepSize = 128;   // of a state
inline constexpr int kDeltaStepBlocks = 8;   // of a cluster: they share a key head of a sequence
inline constexpr int kDeltaStepRows = 16;    // of a sequence at most; delta_chunk takes longer ones
inline constexpr int kDeltaStepHeads = 4;    // value heads of a key head at most
inline constexpr int kDeltaStepColumns = 8;  // of a warp
inline constexpr int kDeltaStepBarrierWords = 4;  // in front of the block's shared memory

struct DeltaStepParams {
    DeltaNetParams net;
    std::int32_t rows_max;     // of a sequence, in shared memory
    std::int32_t replays_max;  // rows of the replay buffer, in shared memory
    std::int32_t y_rows;       // rows of y: those past the live ones become zeros
    bool replays_long;         // also of sequences with more rows, which others compute
};

/// Dynamic shared memory of a block, as the kernel carves it.
constexpr std::int64_t delta_step_shared_bytes(std::int64_t heads, std::int64_t rows_max,
                                               std::int64_t replays_max) {
    const std::int64_t columns = heads * kDeltaStepSize / kDeltaStepBlocks;
    const std::int64_t row =
        2 * kDeltaStepSize + columns + heads * kDeltaStepSize / kDeltaStepColumns + 2 * heads;
    const std::int64_t replay = kDeltaStepSize + columns + heads;
    return (kDeltaStepBarrierWords + rows_max * row + replays_max * replay) * 4;
}

}  // namespace kernels::cuda

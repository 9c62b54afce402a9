// Inputs of delta_chunk_prepare: rows of a chunk and those in front of it, 128 channels at a time,
// and their convolution.
#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/cluster_copies.cuh"
#include "kernels/cuda/delta_chunk.h"
#include "kernels/cuda/delta_input.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace kernels::cuda {

inline constexpr int kPrepareWarps = kChunkPrepareThreads / kWarpLanes;
inline constexpr int kWarpRows = kChunkRows / kPrepareWarps;
inline constexpr int kLaneChannels = kChunkSize / kWarpLanes;

/// Channel `i` of a lane.
__device__ inline int lane_channel(int lane, int i) {
    return lane + i * kWarpLanes;
}

/// The chunk's rows of the sequence: rows [first, first + count).
struct ChunkRowsOf {
    DeltaSequence s;
    int first, count;
};

/// The convolution's inputs of 128 channels, on their way through shared memory: rows of the chunk
/// and those in front of it. By asynchronous copies, since the compiler puts most loads into
/// registers behind the first use, where each waits for itself.
inline constexpr int kInputRows = kChunkRows + kTaps - 1;
using Inputs = float[kInputRows][kChunkSize];
static_assert(sizeof(Inputs) <= 2 * kChunkSquareBytes, "they lie where K K^T and Q K^T will");

/// Row `t` of the sequence in the step: is there one, or one that the ring holds?
__device__ inline bool has_input(const ChunkRowsOf& chunk, int t) {
    return t < chunk.first + chunk.count && chunk.s.before + t >= 0;
}

/// Starts the copies of the 128 channels from `first_channel` on.
__device__ inline void fetch_inputs(const DeltaNetParams& p, const ChunkRowsOf& chunk,
                                    int first_channel, Inputs& inputs) {
#pragma unroll 1
    for (int row = warp_index(); row < kInputRows; row += kPrepareWarps) {
        const int t = chunk.first - (kTaps - 1) + row;
        if (!has_input(chunk, t)) continue;
        const float* from = t >= 0 ? p.u + (chunk.s.begin + t) * p.u_stride
                                   : ring_row(p, chunk.s, chunk.s.before + t);
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i) {
            const int channel = lane_channel(lane_index(), i);
            copy_word_async(&inputs[row][channel], from + first_channel + channel);
        }
    }
}

/// silu(convolution) of the warp's rows; zeros past the end. `release` is called when the inputs
/// have been read.
using WarpRows = float[kWarpRows][kLaneChannels];
template <class Release>
__device__ inline void convolve(const DeltaNetParams& p, const ChunkRowsOf& chunk,
                                int first_channel, const Inputs& inputs, WarpRows& rows,
                                Release release) {
    const int lane = anew(lane_index());
    const int row0 = warp_index() * kWarpRows;
    float4 taps[kLaneChannels];
    float old[kTaps - 1][kLaneChannels];
#pragma unroll
    for (int i = 0; i < kLaneChannels; ++i) {
        taps[i] = taps_of(p, first_channel + lane_channel(lane, i));
#pragma unroll
        for (int j = 0; j < kWarpRows + kTaps - 1; ++j) {
            const bool is_there = has_input(chunk, chunk.first - (kTaps - 1) + row0 + j);
            const float value = is_there ? inputs[row0 + j][lane_channel(lane, i)] : 0.0F;
            if (j < kTaps - 1)
                old[j][i] = value;
            else
                rows[j - (kTaps - 1)][i] = value;
        }
    }
    release();
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r)
#pragma unroll
        for (int i = 0; i < kLaneChannels; ++i) {
            float sum = 0.0F;
#pragma unroll
            for (int j = 0; j < kTaps - 1; ++j)
                sum = fmaf(tap(taps[i], j), old[j][i], sum);
            sum = fmaf(taps[i].w, rows[r][i], sum);
#pragma unroll
            for (int j = 0; j + 1 < kTaps - 1; ++j)
                old[j][i] = old[j + 1][i];
            old[kTaps - 2][i] = rows[r][i];
            rows[r][i] = silu(row0 + r < chunk.count ? sum : 0.0F);
        }
}

}  // namespace kernels::cuda

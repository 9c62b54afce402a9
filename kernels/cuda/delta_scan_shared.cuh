// Shared memory of a block of delta_chunk_scan, and the barriers that its three warpgroups and the
// other block of its cluster meet at:
//
//     third, one thread     fetches K, Q, P and gates of a chunk into a stage, T and V beside
//     first                 multiplies; releases what it has read; puts outputs
//     second                ends rows; releases the outputs; sends sums of squares
#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/cluster_copies.cuh"
#include "kernels/cuda/delta_chunk.h"

namespace kernels::cuda {

inline constexpr int kScanWarps = kChunkScanGroup / kWarpLanes;  // of a warpgroup
inline constexpr int kScanBlocks = 2;                            // of a cluster
static_assert(kScanWarps * 16 == kChunkHalf);

/// Where a block and a thread stand: `warp` in its warpgroup.
struct ScanBlock {
    int head, key_head, half, lane, warp;
};

/// Shared memory, by addresses: first tiles, whose places are multiples of kTileAlignment.
struct ScanShared {
    std::uint8_t* at;
    std::uint32_t address;
    __device__ ScanShared() {
        auto* start = reinterpret_cast<std::uint8_t*>(shared_memory());
        const std::uint32_t begin = shared_address(start);
        address = (begin + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
        at = start + (address - begin);
    }
    static constexpr int kSingle = 2 * kChunkStageBytes;
    static constexpr int kValues = kSingle + 2 * kSquareTileBytes;
    static constexpr int kGates = kSingle + kChunkSingleBytes;
    static constexpr int kOutputs = kGates + 2 * kChunkGateBytes;
    static constexpr int kSums = kOutputs + kChunkSquareBytes;
    static constexpr int kBarriers = kSums + kChunkSumBytes;

    __device__ std::uint32_t keys(int chunk) const {
        return address + chunk % 2 * kChunkStageBytes;
    }
    __device__ std::uint32_t queries(int chunk) const { return keys(chunk) + 2 * kWideTileBytes; }
    __device__ std::uint32_t answers(int chunk) const { return keys(chunk) + 4 * kWideTileBytes; }
    __device__ std::uint32_t inverse() const { return address + kSingle; }
    __device__ const float* values() const { return reinterpret_cast<float*>(at + kValues); }
    __device__ const float* gates(int chunk) const {
        return reinterpret_cast<float*>(at + kGates + chunk % 2 * kChunkGateBytes);
    }
    /// [rows, stride]
    __device__ float* outputs() const { return reinterpret_cast<float*>(at + kOutputs); }
    /// [halves, rows] sums of squares
    __device__ float* sums(int chunk) const {
        return reinterpret_cast<float*>(at + kSums) + chunk % 2 * kScanBlocks * kChunkRows;
    }

    // Barriers. A stage, and T and V, are there; have been read by both blocks. Outputs are there;
    // have been read. A warp's sums of squares of the
    // other block are here.
    __device__ std::uint32_t barrier(int index) const { return address + kBarriers + 8 * index; }
    __device__ std::uint32_t stage_full(int chunk) const { return barrier(chunk % 2); }
    __device__ std::uint32_t stage_free(int chunk) const { return barrier(2 + chunk % 2); }
    __device__ std::uint32_t single_full() const { return barrier(4); }
    __device__ std::uint32_t single_free() const { return barrier(5); }
    __device__ std::uint32_t outputs_full() const { return barrier(6); }
    __device__ std::uint32_t outputs_free() const { return barrier(7); }
    __device__ std::uint32_t sums_here(int chunk, int warp) const {
        return barrier(8 + chunk % 2 * kScanWarps + warp);
    }
    static_assert((8 + 2 * kScanWarps) * 8 <= kChunkBarrierBytes);

    __device__ void init() const {
        for (int i = 0; i < 2; ++i) {
            barrier_init(stage_full(i), 1);
            barrier_init(stage_free(i), kScanBlocks * kScanWarps);
            for (int warp = 0; warp < kScanWarps; ++warp)
                barrier_init(sums_here(i, warp), 1);
        }
        barrier_init(single_full(), 1);
        barrier_init(single_free(), kScanBlocks * kScanWarps);
        barrier_init(outputs_full(), kChunkScanGroup);
        barrier_init(outputs_free(), kChunkScanGroup);
        publish_barriers();
    }
};
/// Of the use of one of two buffers, and of the only one.
__device__ inline int parity_of_two(int chunk) {
    return chunk / 2 & 1;
}
__device__ inline int parity_of_one(int chunk) {
    return chunk & 1;
}

/// By each warp that multiplies, in both blocks: each of them copies to both.
__device__ inline void release(std::uint32_t barrier) {
    __syncwarp();
    if (lane_index() < kScanBlocks) barrier_arrive_in_block(barrier, lane_index());
}

}  // namespace kernels::cuda

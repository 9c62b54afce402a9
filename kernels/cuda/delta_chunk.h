// What delta_chunk's kernels and their launcher agree on: the scratch between them. A slot holds
//
//     per key head     K, Q as high and low bfloat16            4 tiles [64, 128]   64 KiB
//     per value head   T = (I + A)^-1, P likewise               4 tiles [64, 64]    32 KiB
//                      V in f32, by column halves (value_place) [2, 64, 64]         32 KiB
//                      strength b, exp(G), exp(G_end - G)       [3, 64] f32, padded  1 KiB
//
// A tile is cut into panels of 64 columns, a row of a panel (128 bytes) into pieces of 16 bytes:
// piece c of row r lies at c xor (r mod 8), so that eight rows of one piece meet all banks.
#pragma once

#include <cstdint>

#include "kernels/cuda/delta_chunk_cut.h"
#include "kernels/cuda/params.h"

namespace kernels::cuda {

inline constexpr int kChunkSize = 128;  // of a state
inline constexpr int kChunkHeads = 4;   // value heads of a key head at most
inline constexpr int kChunkHalf = 64;   // value columns of a block of the scan
inline constexpr int kChunkPrepareThreads = 256;

inline constexpr int kPanelBytes = kChunkRows * 128;
inline constexpr int kWideTileBytes = kChunkRows * kChunkSize * 2;    // of K, Q
inline constexpr int kSquareTileBytes = kChunkRows * kChunkRows * 2;  // of T, P
inline constexpr int kChunkValueBytes = kChunkRows * kChunkHalf * 4;  // of a half of V
inline constexpr int kChunkGateBytes = 1024;
inline constexpr int kChunkKeyHeadBytes = 4 * kWideTileBytes;
inline constexpr int kChunkValueHeadBytes =
    4 * kSquareTileBytes + 2 * kChunkValueBytes + kChunkGateBytes;

/// Of one slot.
constexpr std::int64_t chunk_slot_bytes(std::int64_t n_k, std::int64_t n_v) {
    return n_k * kChunkKeyHeadBytes + n_v * kChunkValueHeadBytes;
}

struct DeltaChunkParams {
    DeltaNetParams net;
    std::uint8_t* scratch;  // [slots] of slot_bytes
    std::int64_t slot_bytes;
    ChunkBatch batch;
};

// Shared memory. Prepare: tiles of K and Q, later A of each value head; K K^T and Q K^T; gates.
inline constexpr int kChunkStride =
    kChunkRows + 4;  // floats of a row of a square, spread over banks
inline constexpr int kChunkSquareBytes = kChunkRows * kChunkStride * 4;
inline constexpr int kChunkTilesBytes = kChunkHeads * kChunkSquareBytes > kChunkKeyHeadBytes
                                            ? kChunkHeads* kChunkSquareBytes
                                            : kChunkKeyHeadBytes;
inline constexpr int kChunkPrepareBytes =
    kChunkTilesBytes + 2 * kChunkSquareBytes + kChunkHeads * 2 * kChunkRows * 4;
static_assert(2 * (kChunkPrepareBytes + 1024) <= 228 * 1024, "two blocks a multiprocessor");
static_assert(kChunkPrepareThreads >= kChunkHeads * kChunkRows, "a thread per column of A");

// Scan: two stages of K, Q, P and gates; one of T and V, which are free early; the outputs; sums of
// squares; barriers.
inline constexpr int kChunkScanGroup = 128;  // threads of a warpgroup
inline constexpr int kChunkScanThreads = 3 * kChunkScanGroup;  // multiply, end rows, fetch
inline constexpr int kChunkStageBytes = 4 * kWideTileBytes + 2 * kSquareTileBytes;
inline constexpr int kChunkSingleBytes = 2 * kSquareTileBytes + kChunkValueBytes;
inline constexpr int kChunkSumBytes = 2 * 2 * kChunkRows * 4;  // of halves, twice
inline constexpr int kChunkBarrierBytes = 128;
inline constexpr int kTileAlignment = 1024;
inline constexpr int kChunkScanBytes = kTileAlignment + 2 * kChunkStageBytes + kChunkSingleBytes +
                                       2 * kChunkGateBytes + kChunkSquareBytes + kChunkSumBytes +
                                       kChunkBarrierBytes;
static_assert(kChunkScanBytes <= 227 * 1024);

}  // namespace kernels::cuda

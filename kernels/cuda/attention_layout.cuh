// What attention_decode keeps in shared memory, and the heads it makes there.
#pragma once

#include "kernels/cuda/attention_state.cuh"
#include "kernels/cuda/attention_walk.cuh"

namespace kernels::cuda {

inline constexpr int kTilesMax = 4;  // of 8 columns

/// The next half to fetch.
struct Ahead {
    AttentionPlace at;
    int slot = 0;  // of the ring
    bool is_value = false;

    __device__ void advance(const AttentionDecodeParams& p, const AttentionRun& run, int ring) {
        slot = slot + 1 == ring ? 0 : slot + 1;
        if (is_value) at.advance(p, run.seqs, run.grain);
        is_value = !is_value;
    }
};

/// What all threads know alike, out of their registers, which are short. A barrier of the block
/// lies between two fetches: one reads a copy of `ahead` and thread 0 leaves the next in the other.
struct SharedRun {
    AttentionRun run;
    Ahead ahead[2];
};

/// Shared memory, in bytes: ring of halves, queries, probabilities (before them a head a warp),
/// maxima, sums, a barrier for each half of the ring.
template <int kDim>
struct Layout {
    static constexpr int kDataBytes = 2 * kDim;  // of a row
    static constexpr int kRowBytes = attention_row_bytes(kDim);
    static constexpr int kChunks = kDataBytes / 16;  // of 16 bytes
    static constexpr int kHalfBytes = kAttentionUnitTokens * kRowBytes;
    static constexpr int kRing = attention_ring_halves(kDim);
    static constexpr int kQueries = kRing * kHalfBytes;
    static constexpr int kProbabilities = kQueries + 8 * kTilesMax * kRowBytes;
    static constexpr int kHeads = kProbabilities;  // there while queries and new rows are made
    static constexpr int kMaxima = kProbabilities + kTilesMax * kAttentionUnitTokens * 16;
    static constexpr int kSums = kMaxima + kAttentionWarps * 8 * kTilesMax * 4;
    static constexpr int kFull = kSums + kAttentionWarps * 8 * kTilesMax * 4;
    static_assert(kHeads + kAttentionWarps * kDim * 4 <= kMaxima);
    static constexpr int kRun = kFull + 8 * kRing;
    static_assert(sizeof(SharedRun) <= kAttentionRunBytes && kRun % alignof(SharedRun) == 0);
    static_assert(kRun + kAttentionRunBytes == attention_shared_bytes(kDim));
    static constexpr int kRowTiles = kDim == 256 ? 2 : 1;
    static constexpr int kOutputWarps = kDim / (16 * kRowTiles);  // warps that own dimensions

    static __device__ std::uint32_t at(int row, int chunk) {
        return static_cast<std::uint32_t>(row * kRowBytes + chunk * 16);
    }
};

/// Heads that a unit needs in shared memory before its products: queries, the step's own keys and
/// values, zeros for padded columns, in this order. A warp takes every eighth.
struct HeadTasks {
    int queries = 0, keys = 0, values = 0, all = 0;  // each the end of its kind
    int first_row = 0;                               // of the sequence's rows that are new here
};

}  // namespace kernels::cuda

// What a warp keeps of a softmax in progress: its share of the outputs and, per column, maximum and
// sum; how two of them fold; how they lie in memory between blocks.
//
// A tile is 8 columns. Lane (g, t) holds outputs of dimensions 16 i + g (+ 8), columns 2t (+ 1).
// Maxima and sums are the same in all warps and all g.
#pragma once

#include "kernels/cuda/attention_cut.h"
#include "kernels/cuda/tensor_core.cuh"

namespace kernels::cuda {

inline constexpr int kAttentionThreads = 256;
inline constexpr int kAttentionWarps = kAttentionThreads / kWarpLanes;

template <int kRowTiles>
struct AttentionTile {
    float o[kRowTiles][4];
    float largest[2];  // of scores, in powers of two
    float sum[2];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                o[i][j] = 0.0F;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            largest[j] = -INFINITY;
            sum[j] = 0.0F;
        }
    }

    /// Takes over what comes after in order of tokens.
    __device__ void fold(const AttentionTile& next) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float both = fmaxf(largest[j], next.largest[j]);
            const float base = both == -INFINITY ? 0.0F : both;  // nothing seen on either side
            const float keep = exp2_of(largest[j] - base);
            const float take = exp2_of(next.largest[j] - base);
            largest[j] = both;
            sum[j] = fmaf(next.sum[j], take, sum[j] * keep);
#pragma unroll
            for (int i = 0; i < kRowTiles; ++i) {
                o[i][j] = fmaf(next.o[i][j], take, o[i][j] * keep);
                o[i][j + 2] = fmaf(next.o[i][j + 2], take, o[i][j + 2] * keep);
            }
        }
    }

    // A slot: [tiles][kRowTiles][threads] float4, then [tiles][warps][4] float4.
    __device__ void store(float* slot, int tile, int tiles) const {
        auto* words = reinterpret_cast<float4*>(slot);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i)
            __stcg(words + (tile * kRowTiles + i) * kAttentionThreads + threadIdx.x,
                   make_float4(o[i][0], o[i][1], o[i][2], o[i][3]));
        if (lane_index() < 4)
            __stcg(statistics(words, tile, tiles),
                   make_float4(largest[0], largest[1], sum[0], sum[1]));
    }
    __device__ void load(float* slot, int tile, int tiles) {
        auto* words = reinterpret_cast<float4*>(slot);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
            const float4 v =
                __ldcg(words + (tile * kRowTiles + i) * kAttentionThreads + threadIdx.x);
            o[i][0] = v.x;
            o[i][1] = v.y;
            o[i][2] = v.z;
            o[i][3] = v.w;
        }
        const float4 v = __ldcg(statistics(words, tile, tiles));
        largest[0] = v.x;
        largest[1] = v.y;
        sum[0] = v.z;
        sum[1] = v.w;
    }

private:
    static __device__ float4* statistics(float4* words, int tile, int tiles) {
        return words + tiles * kRowTiles * kAttentionThreads +
               (tile * kAttentionWarps + warp_index()) * 4 + lane_index() % 4;
    }
};

/// Loads `count` parts of column tile `n`, slot_of(0) first, several on their way together, and
/// shows each to visit(index, part). A lane finds out where one lies and tells the others.
template <int kBatch, int kRowTiles, class SlotOf, class Visit>
__device__ void for_each_part(int count, int n, int tiles, SlotOf slot_of, Visit visit) {
#pragma unroll 1
    for (int first = 0; first < count; first += kWarpLanes) {
        const auto mine =
            reinterpret_cast<unsigned long long>(slot_of(min(first + lane_index(), count - 1)));
        const int here = min(count - first, kWarpLanes);
#pragma unroll 1
        for (int begin = 0; begin < here; begin += kBatch) {
            AttentionTile<kRowTiles> parts[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                parts[i].load(
                    reinterpret_cast<float*>(__shfl_sync(~0U, mine, min(begin + i, here - 1))), n,
                    tiles);
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                if (begin + i < here) visit(first + begin + i, parts[i]);
        }
    }
}

template <int kRowTiles>
__device__ void take(AttentionTile<kRowTiles>& to, const AttentionTile<kRowTiles>& next,
                     bool is_first) {
    if (is_first)
        to = next;
    else
        to.fold(next);
}

template <int kTiles>
inline constexpr int kPartsOnTheirWay = kTiles == 1 ? 8 : 4;

/// The fold of a group's parts: `of_quad` of them, 1 or 4, to quads, these to all.
template <int kTiles, int kRowTiles, class SlotOf>
__device__ void fold_parts(AttentionTile<kRowTiles>* state, int count, int of_quad,
                           SlotOf slot_of) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
        AttentionTile<kRowTiles> all, quad;
        for_each_part<kPartsOnTheirWay<kTiles>, kRowTiles>(
            count, n, kTiles, slot_of, [&](int i, const AttentionTile<kRowTiles>& part) {
                take(quad, part, i % of_quad == 0);
                if ((i + 1) % of_quad == 0 || i + 1 == count) take(all, quad, i < of_quad);
            });
        state[n] = all;
    }
}

/// The fold of results of groups.
template <int kTiles, int kRowTiles, class SlotOf>
__device__ void fold_groups(AttentionTile<kRowTiles>* state, int count, SlotOf slot_of) {
    fold_parts<kTiles>(state, count, 1, slot_of);
}

}  // namespace kernels::cuda

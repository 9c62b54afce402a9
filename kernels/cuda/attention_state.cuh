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

/// The fold of `count` slots, slot_of(0) first; several are on their way together.
template <int kTiles, int kRowTiles, class SlotOf>
__device__ void fold_slots(AttentionTile<kRowTiles>* state, int count, SlotOf slot_of) {
    constexpr int kBatch = kTiles == 4 ? 2 : 4;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
        AttentionTile<kRowTiles> all;
        all.clear();
#pragma unroll 1
        for (int begin = 0; begin < count; begin += kBatch) {
            AttentionTile<kRowTiles> parts[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                parts[i].load(slot_of(min(begin + i, count - 1)), n, kTiles);
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                if (begin + i < count) all.fold(parts[i]);
        }
        state[n] = all;
    }
}

}  // namespace kernels::cuda

// Putting sums of matmul_mma together: tiles that several blocks share, and a block's place on its
// run of units.
#pragma once

#include "kernels/cuda/matmul_parts.cuh"

namespace kernels::cuda {

/// Partial sums of a tile that several blocks share: [block][ends of its run][tiles of a unit].
template <int kTiles>
__device__ float* partial_of(const MatmulParams& p, int block, bool is_last_group, int tile) {
    const int slot =
        (2 * block + (is_last_group ? 1 : 0)) * kMatmulUnitTiles + tile % kMatmulUnitTiles;
    return p.partials + static_cast<std::int64_t>(slot) * kTiles * 4 * kWarpLanes;
}

/// Leaves this block's part. The last to arrive gets the sum of all parts, in order of k, and true.
template <int kTiles>
__device__ bool join_tile(const MatmulParams& p, const MatmulCut& cut, int group, int tile,
                          Sums<kTiles>& sums) {
    constexpr int kBatch = 4;  // parts on their way together
    const int block = static_cast<int>(blockIdx.x);
    const int lane = lane_index();
    float* mine = partial_of<kTiles>(p, block, group != cut.first_group(block), tile);
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            __stcg(mine + (4 * n + i) * kWarpLanes + lane, sums.v[n][i]);
    const int first = cut.first_block(group);
    const int last = cut.last_block(group);
    if (arrive(p.arrivals + tile) != static_cast<unsigned>(last - first)) return false;
    if (lane == 0) p.arrivals[tile] = 0;  // for the next launch
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
        float(&sum)[4] = sums.v[n];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            sum[i] = 0.0F;
        for (int begin = first; begin <= last; begin += kBatch) {
            float parts[kBatch][4];
#pragma unroll
            for (int b = 0; b < kBatch; ++b) {
                const int other = min(begin + b, last);
                const float* part =
                    partial_of<kTiles>(p, other, group != cut.first_group(other), tile);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    parts[b][i] = __ldcg(part + (4 * n + i) * kWarpLanes + lane);
            }
#pragma unroll
            for (int b = 0; b < kBatch; ++b) {
                if (begin + b > last) break;
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    sum[i] += parts[b][i];
            }
        }
    }
    return true;
}

/// A place on a block's run, as one warp sees it.
struct MatmulPosition {
    const std::uint8_t* source;  // its tile's record
    int unit, k_record, tile;

    template <int kBytes>
    __device__ void advance(int k_records) {
        ++unit;
        source += kBytes;
        if (++k_record < k_records) return;
        k_record = 0;
        tile += kMatmulUnitTiles;
        source += static_cast<std::int64_t>(kMatmulUnitTiles - 1) * k_records * kBytes;
    }
};

}  // namespace kernels::cuda

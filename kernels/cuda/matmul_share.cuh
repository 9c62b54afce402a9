// Tiles that several blocks share, put together by all of them: each adds up some of the columns.
//
//     leave_part     where a block's run holds a part of a tile: its sums to global memory
//     finish_shared  at the end of the run: of the S blocks that share a tile each takes every S-th
//                    eight columns of all parts, adds them in order of k and stores the result
//
// Between launches every word of a part is kNoPart, a number that no sum has. Who adds a part polls
// the words themselves and puts kNoPart back: data and its arrival are one, so that there is
// neither fence nor counter between a store and the load that waits for it. Each word has one
// writer and one reader. All blocks of a launch run at once (there are no more than
// multiprocessors), so that one may wait for the other.
#pragma once

#include "kernels/cuda/matmul_parts.cuh"

namespace kernels::cuda {

/// A NaN that arithmetic does not make: its results have the sign off.
inline constexpr std::uint32_t kNoPart = 0xFFFFFFFFU;

/// Seconds: a part that is missing then never comes, and the device is lost.
inline constexpr int kTriesMax = 1 << 23;

/// Numbers computed where they are used: what is derived from them would otherwise be kept in
/// registers along the run.
__device__ inline int thread_anew() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}
__device__ inline int block_anew() {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}
__device__ inline int lane_anew() {
    return thread_anew() % kWarpLanes;
}

/// The tile's values of columns 8 n .. 8 n + 7, finished: `sums` as a tile of its own.
__device__ inline void store_columns(const MatmulParams& p, std::uint32_t factors, int tile, int n,
                                     int columns, const Sums<1>& sums, const Sums<1>& before) {
    MatmulParams at = p;
    at.first_row += 8 * n;
    store_tile_over(
        at, factors + 32 * n, tile, columns - 8 * n, sums,
        [&](int, int i, const float*) { return before.v[0][i]; }, lane_anew());
}
__device__ inline Sums<1> load_columns(const MatmulParams& p, int tile, int n, int columns) {
    MatmulParams at = p;
    at.first_row += 8 * n;
    return load_outputs<1>(at, tile, columns - 8 * n, lane_anew());
}

/// A tile that nobody shares.
template <int kTiles>
__device__ void store_own(const MatmulParams& p, std::uint32_t factors, int tile, int columns,
                          const Sums<kTiles>& sums) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
        Sums<1> one;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            one.v[0][i] = sums.v[n][i];
        store_columns(p, factors, tile, n, columns, one, load_columns(p, tile, n, columns));
    }
}

/// A lane's four words of a part of a tile, columns 8 n on: [block][ends of its run][tiles of a
/// unit][columns / 8][lanes].
template <int kTiles>
__device__ uint4* part_of(const MatmulParams& p, int block, bool is_later_group, int tile, int n) {
    const int slot =
        (2 * block + (is_later_group ? 1 : 0)) * kMatmulUnitTiles + tile % kMatmulUnitTiles;
    return reinterpret_cast<uint4*>(p.partials) + (slot * kTiles + n) * kWarpLanes + lane_anew();
}

template <int kTiles>
__device__ void leave_part(const MatmulParams& p, bool is_later_group, int tile, int columns,
                           const Sums<kTiles>& sums) {
    const auto word = [](float value) {
        const std::uint32_t bits = __float_as_uint(value);
        return bits == kNoPart ? bits >> 1 : bits;
    };
    uint4* part = part_of<kTiles>(p, block_anew(), is_later_group, tile, 0);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
        if (8 * n >= columns) break;  // nobody takes them
        store_global16(part + n * kWarpLanes, {word(sums.v[n][0]), word(sums.v[n][1]),
                                               word(sums.v[n][2]), word(sums.v[n][3])});
    }
}

__device__ inline uint4 look_at_part(const uint4* from) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}
__device__ inline bool is_there(const uint4& v) {
    return v.x != kNoPart && v.y != kNoPart && v.z != kNoPart && v.w != kNoPart;
}

/// This block's share of a tile of group `group`, of which it left a part.
template <int kTiles>
__device__ void finish_shared(const MatmulParams& p, const MatmulCut& cut, int group, int tile,
                              std::uint32_t factors, int columns) {
    constexpr int kBatch = 4;  // parts on their way together
    const int first = cut.first_block(group);
    const int count = cut.last_block(group) - first + 1;
    // Only the first of the sharers can have begun in a group before.
    const bool began_before = cut.begin(first) < group * p.k_records;
    for (int n = block_anew() - first; 8 * n < columns; n += count) {
        const Sums<1> before = load_columns(p, tile, n, columns);
        Sums<1> sums;
        sums.clear();
        for (int begin = 0; begin < count; begin += kBatch) {
            uint4* from[kBatch];
            uint4 parts[kBatch];
#pragma unroll
            for (int b = 0; b < kBatch; ++b) {
                const int other = min(begin + b, count - 1);
                from[b] = part_of<kTiles>(p, first + other, other == 0 && began_before, tile, n);
            }
            bool all_there = false;
            for (int tries = 0; !all_there; ++tries) {
                if (tries == kTriesMax) __trap();
                all_there = true;
#pragma unroll
                for (int b = 0; b < kBatch; ++b)
                    parts[b] = look_at_part(from[b]);
#pragma unroll
                for (int b = 0; b < kBatch; ++b)
                    all_there = all_there && is_there(parts[b]);
            }
#pragma unroll
            for (int b = 0; b < kBatch; ++b) {
                if (begin + b >= count) break;
                store_global16(from[b], {kNoPart, kNoPart, kNoPart, kNoPart});
                sums.v[0][0] += __uint_as_float(parts[b].x);
                sums.v[0][1] += __uint_as_float(parts[b].y);
                sums.v[0][2] += __uint_as_float(parts[b].z);
                sums.v[0][3] += __uint_as_float(parts[b].w);
            }
        }
        store_columns(p, factors, tile, n, columns, sums, before);
    }
}

}  // namespace kernels::cuda

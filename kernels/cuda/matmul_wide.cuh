// matmul_wide: as matmul_mma, for 9 to 64 tokens: x' comes from prepare_wide and passes through a
// ring in shared memory.
//
// Math      y[m, n] = factor[m] sum_k w[n, k] x'[m, k]; x' binary16 with one power of two per row,
//           w binary16, code times scale with one power of two per matrix, which puts the largest
//           weight below 2^15: what is 2^-29 of it still has a bit. Sums in f32, in order of k.
//           matmul_mma keeps codes exact and scales sums: that takes an fmaf per column and group,
//           which 16 columns and more cannot afford
// Shapes    W records [tiles, k_records] of 16 x 256; x' [k_records] stages (matmul_cut.h); y f32
// Moves     the packed matrix once for all columns; a stage of x' for every 16 row tiles
// Floor     bandwidth up to 32 columns, then L2 and shared memory: x' is as large as the weights at
// 64 Achieved  kernels/README.md Plan      the units and the cut of matmul_mma. kRowTiles tiles a
// warp, so that a fragment of x'
//           serves both; the next records are on their way into registers. One thread feeds the
//           ring: a bulk copy a stage, a full and an empty mbarrier, so that no warp waits for
//           another inside the loop unless it is two units ahead.
// Laws      a row's bits depend on neither the other rows nor kColumns
// Overlap   weights and the table are fetched before the wait for the kernel in front
#pragma once

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/matmul_join.cuh"
#include "kernels/cuda/matmul_parts.cuh"

namespace kernels::cuda {

/// Shared memory: table │ kStages stages │ factors [columns] │ full, empty barriers.
template <class Format, int kColumns>
struct WideMemory {
    static constexpr int kStages = wide_stages(kColumns);
    static constexpr int kStageBytes = wide_stage_bytes(kColumns);
    std::uint32_t table, stages, factors, full, empty;

    __device__ explicit WideMemory(std::uint32_t base)
        : table(base),
          stages(base + (Format::kHasTable ? kTableBytes : 0)),
          factors(stages + kStages * kStageBytes),
          full(factors + 4 * kColumns),
          empty(full + 8 * kStages) {}
};

__device__ inline std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}
__device__ inline std::uint32_t multiply_add_pairs(std::uint32_t a, std::uint32_t b,
                                                   std::uint32_t c) {
    std::uint32_t sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}
/// Twice the same binary16.
__device__ inline std::uint32_t twice(float value) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(value));
    return pair;
}

/// A operand of step `step` as weights: codes times scales, less minima, in binary16. `unit` is the
/// matrix's power of two.
template <class Format>
__device__ inline Fragment weights_of(const Format& record, const LaneTable& table, int step,
                                      float unit) {
    Fragment f = record.fragment(table, step);
    const int group = step / Format::kGroupSteps;
    const ScalePair scale = record.scale(group);
    const std::uint32_t scales[2] = {twice(scale.low * unit), twice(scale.high * unit)};
    std::uint32_t minima[2]{};
    if constexpr (Format::kHasMinimum) {
        const ScalePair minimum = record.minimum(group);
        minima[0] = twice(-minimum.low * unit);
        minima[1] = twice(-minimum.high * unit);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)  // rows g, g + 8, g, g + 8
        f.a[i] = Format::kHasMinimum ? multiply_add_pairs(f.a[i], scales[i % 2], minima[i % 2])
                                     : multiply_pairs(f.a[i], scales[i % 2]);
    return f;
}

/// One record of each of the warp's row tiles times a stage, while the next come in.
template <class Format, int kTiles, int kRowTiles>
__device__ inline void multiply_stage(Format (&records)[kRowTiles],
                                      const RecordSource (&next)[kRowTiles], const LaneTable& table,
                                      float unit, std::uint32_t stage,
                                      Sums<kTiles> (&sums)[kRowTiles]) {
    const int lane = lane_index();
    // Odd columns hold the halves of 128 bytes swapped: no two lanes meet in a bank.
    const std::uint32_t odd = 64 * (lane / 4 % 2);
    const std::uint32_t column = stage + 512 * (lane / 4) + 16 * (lane % 4);
    typename Format::Side side[kRowTiles]{};
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
        side[r].load(next[r], lane);
#pragma unroll
    for (int pair = 0; pair < kRecordPairs; ++pair) {
        Fragment first[kRowTiles], second[kRowTiles];
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
            first[r] = weights_of(records[r], table, 2 * pair, unit);
            second[r] = weights_of(records[r], table, 2 * pair + 1, unit);
            records[r].reload(next[r], lane, pair);
        }
        const std::uint32_t at = (pair % 2 == 0 ? column + odd : column - odd) + 64 * pair;
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
            const uint4 b = load_shared16(at + 4096 * n);
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r)
                mma(sums[r].v[n], first[r].a, b.x, b.y);
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r)
                mma(sums[r].v[n], second[r].a, b.z, b.w);
        }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
        records[r].side = side[r];
}

/// Asks for the stage of unit `index` of the run, whose record is `record`; one thread's. A stage
/// is asked for again kSlack units after its last use, so that a warp may fall behind by that much
/// before anyone waits.
inline constexpr int kSlack = 2;
template <class Format, int kColumns>
__device__ inline void feed_ring(const MatmulParams& p, const WideMemory<Format, kColumns>& memory,
                                 int index, int record, int columns) {
    constexpr int kStages = WideMemory<Format, kColumns>::kStages;
    constexpr int kBytes = WideMemory<Format, kColumns>::kStageBytes;
    const int stage = index % kStages;
    const std::uint32_t full = memory.full + 8 * stage;
    const std::uint32_t to = memory.stages + kBytes * stage;
    const std::uint8_t* from = p.x + static_cast<std::int64_t>(record) * kBytes;
    if (index >= kStages) barrier_wait(memory.empty + 8 * stage, (index / kStages - 1) & 1);
    barrier_expect(full, 512 * columns);
    bulk_copy(to, from, 512 * columns, full);
}

template <class Format, int kColumns>
__device__ void matmul_wide(const MatmulParams& p) {
    constexpr int kRowTiles = kWideRowTiles;
    using Layout = RecordLayout<typename Format::Packed>;
    constexpr int kTiles = kColumns / 8;
    constexpr int kWarps = kMatmulUnitTiles / kRowTiles;
    extern __shared__ uint4 shared[];
    const int block = static_cast<int>(blockIdx.x);
    const int lane = lane_index();
    const MatmulCut cut{.groups = p.groups, .k_records = p.k_records, .blocks = p.blocks};
    const int begin = cut.begin(block);
    const int end = cut.begin(block + 1);
    const std::uint32_t base = shared_address(shared);
    const WideMemory<Format, kColumns> memory(base);
    const bool feeds = threadIdx.x == 0;

    MatmulPosition at{.source = p.records,
                      .unit = begin,
                      .k_record = begin % p.k_records,
                      .tile = begin / p.k_records * kMatmulUnitTiles + warp_index()};
    at.source += (static_cast<std::int64_t>(at.tile) * p.k_records + at.k_record) * Layout::kBytes;
    const std::int64_t next_tile_bytes =
        static_cast<std::int64_t>(kWarps) * p.k_records * Layout::kBytes;  // of this warp
    Format records[kRowTiles]{};
    RecordSource sources[kRowTiles];
    const auto find_sources = [&] {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
            sources[r] = {at.source + r * next_tile_bytes,
                          at.unit < end && at.tile + r * kWarps < p.tiles ? 1 : 0};
    };
    find_sources();
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
        load_record(records[r], sources[r], lane);

    if (feeds) {
        for (int stage = 0; stage < memory.kStages; ++stage) {
            barrier_init(memory.full + 8 * stage, 1);
            barrier_init(memory.empty + 8 * stage, kWarps);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if constexpr (Format::kHasTable) fill_table<Format>(base);
    let_next_kernel_start();
    // The step was written by a copy in front of all kernels, so that it may be read before the
    // wait.
    const int columns = min(kColumns, *p.rows - p.first_row);
    wait_for_previous_kernel();
    if (columns <= 0) return;
    if (const int own = static_cast<int>(threadIdx.x); own < columns)
        store_shared(memory.factors + 4 * own, p.x_factors[own] / p.weight_unit);
    __syncthreads();  // table, factors and barriers
    constexpr int kAhead = WideMemory<Format, kColumns>::kStages - kSlack;
    if (feeds) {
        // What prepare_wide stored, the copy engine reads.
        asm volatile("fence.proxy.async.global;" ::: "memory");
        for (int i = 0; i < min(kAhead, end - begin); ++i)
            feed_ring(p, memory, i, (begin + i) % p.k_records, columns);
    }

    const LaneTable table{.base = base, .offset = static_cast<std::uint32_t>(4 * lane)};
    Sums<kTiles> sums[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
        sums[r].clear();
    bool is_whole = at.k_record == 0;  // the run holds the tiles from their first record on
    while (at.unit < end) {
        const int index = at.unit - begin;
        if (feeds && at.unit + kAhead < end)
            feed_ring(p, memory, index + kAhead, (at.unit + kAhead) % p.k_records, columns);
        __syncwarp();
        const int tile = at.tile;
        at.advance<Layout::kBytes>(p.k_records);
        find_sources();
        const int stage = index % memory.kStages;
        barrier_wait(memory.full + 8 * stage, index / memory.kStages & 1);
        // Tiles past the last one multiply what was never loaded and store nothing; so do columns.
        multiply_stage(records, sources, table, p.weight_unit,
                       memory.stages + memory.kStageBytes * stage, sums);
        __syncwarp();  // all lanes have read the stage
        if (lane == 0) barrier_arrive(memory.empty + 8 * stage);
        const bool ends_group = at.k_record == 0;
        if (!ends_group && at.unit < end) continue;
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
            const int mine = tile + r * kWarps;
            if (mine < p.tiles && ((ends_group && is_whole) ||
                                   join_tile(p, cut, tile / kMatmulUnitTiles, mine, sums[r])))
                store_tile(p, memory.factors, mine, columns, sums[r]);
            sums[r].clear();
        }
        is_whole = true;
    }
}

}  // namespace kernels::cuda

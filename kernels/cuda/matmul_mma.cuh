// matmul_mma: y = epilogue(W x) for up to kColumns tokens, W in the packed order, by tensor cores.
//
// Math      y[m, n] = factor[m] sum_r scale[m, r] sum_k W[n, k] x'[m, k], r the records of 256
// inputs;
//           x' binary16 with a power of two per record (x_record.cuh), codes exact binary16
//           integers, products summed in f32 over a group of 16 or 32 inputs, times the group's
//           scale in f32, groups in order of k
// Shapes    W records [tiles, k_records] of 16 x 256; x [*, k] f32; y [rows, outputs] f32
// Moves     the packed matrix once for all columns; x once per block and window
// Floor     bandwidth: 27B gate/up (34816 x 5120, IQ4_XS) moves 96.1 MB, 22.7 us measured
// Achieved  kernels/README.md
// Plan      one block of 16 warps per multiprocessor. Units of work are (16 row tiles x 256
// inputs);
//           the grid cuts all units, in order of tile then of k, into equal runs. A warp owns one
//           tile of each unit, or two, holds its sums in registers along the run and loads the next
//           record while it multiplies this one. x' of the run lies in shared memory; nobody waits
//           for anybody inside a window. A tile cut between blocks is put together by the block
//           that arrives last, in order of k.
// Laws      a row's bits depend on neither the other rows nor kColumns: the cut depends on the
//           matrix and the grid alone
// Overlap   weights and the table depend on nobody: they are fetched before the wait for the
//           kernel in front (programmatic dependent launch)
// Source    fragment layouts: PTX ISA, mma.m16n8k16; checked by kernel-gate
#pragma once

#include "kernels/cuda/matmul_parts.cuh"

namespace kernels::cuda {

/// Row tiles a warp owns: with two, a fragment of x serves both and there are half as many warps.
constexpr int matmul_threads(int row_tiles) {
    return kMatmulUnitTiles / row_tiles * kWarpLanes;
}

/// Partial sums of a tile that several blocks share: [block][ends of its run][tiles of a unit].
template <int kTiles>
__device__ float* partial_of(const MatmulParams& p, int block, bool is_last_group, int tile) {
    const int slot =
        (2 * block + (is_last_group ? 1 : 0)) * kMatmulUnitTiles + tile % kMatmulUnitTiles;
    return p.partials + static_cast<std::int64_t>(slot) * kTiles * 4 * kWarpLanes;
}

/// One more arrival at a tile; the number of those before. What the warp has written is seen by who
/// sees the arrival, and the other way round: the release is cumulative over the warp's barrier.
__device__ inline unsigned arrive(std::uint32_t* arrivals) {
    unsigned before = 0;
    __syncwarp();
    if (lane_index() == 0)
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(arrivals)
                     : "memory");
    return __shfl_sync(~0U, before, 0);
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

/// `kLoadsAhead`: the next record is on its way into registers while one is multiplied; without,
/// other warps alone hide the time it takes. For types whose records fill the registers.
template <class Format, int kColumns, int kRowTiles, bool kLoadsAhead = true>
__device__ void matmul_mma(const MatmulParams& p) {
    using Layout = RecordLayout<typename Format::Packed>;
    constexpr int kTiles = kColumns / 8;
    constexpr int kWarps = kMatmulUnitTiles / kRowTiles;
    extern __shared__ uint4 shared[];
    const int block = static_cast<int>(blockIdx.x);
    const int lane = lane_index();
    const MatmulCut cut{.groups = p.groups, .k_records = p.k_records, .blocks = p.blocks};
    const int begin = cut.begin(block);
    const int end = cut.begin(block + 1);
    const std::int64_t next_tile_bytes =
        static_cast<std::int64_t>(kWarps) * p.k_records * Layout::kBytes;  // of this warp

    MatmulPosition at{.source = p.records,
                      .unit = begin,
                      .k_record = begin % p.k_records,
                      .tile = begin / p.k_records * kMatmulUnitTiles + warp_index()};
    at.source += (static_cast<std::int64_t>(at.tile) * p.k_records + at.k_record) * Layout::kBytes;
    Format next[kRowTiles];
    const auto load = [&](const MatmulPosition& from) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
            if (from.unit < end && from.tile + r * kWarps < p.tiles)
                next[r].load(from.source + r * next_tile_bytes, lane);
    };
    load(at);

    const std::uint32_t base = shared_address(shared);
    const LaneTable table{.base = base, .offset = static_cast<std::uint32_t>(4 * lane)};
    if constexpr (Format::kHasTable) fill_table<Format>(base);
    const WindowView window = window_at<Format, kColumns>(p, base);
    asm volatile("griddepcontrol.launch_dependents;");
    // The step was written by a copy in front of all kernels, so that it may be read before the
    // wait.
    const int columns = min(kColumns, *p.rows - p.first_row);
    wait_for_previous_kernel();
    if (columns <= 0) return;
    std::uint32_t column_address[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
        // Columns past the last read the last one again: their sums are never stored.
        const int column = min(8 * n + lane / 4, columns - 1);
        column_address[n] = window.x + column * window.column_bytes + 16 * (lane % 4);
    }

    Sums<kTiles> sums[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
        sums[r].clear();
    bool is_whole = at.k_record == 0;  // the run holds the tiles from their first record on
    const bool holds_all = p.window_slots >= p.k_records;  // slot = record, staged once
    while (at.unit < end) {
        const int window_end = holds_all ? end : min(end, at.unit + p.window_slots);
        if (at.unit != begin) __syncthreads();  // all have read the window before
        const WindowPart part{.columns = columns,
                              .first = holds_all ? 0 : at.k_record,
                              .slots = holds_all ? p.k_records : window_end - at.unit,
                              .is_first = at.unit == begin};
        if constexpr (matmul_makes_x(kColumns))
            make_window<Format, kTiles>(p, window, part);
        else
            copy_window<Format, kTiles>(p, window, part);
        __syncthreads();
        int slot = holds_all ? at.k_record : 0;
        while (at.unit < window_end) {
            if (!kLoadsAhead && at.unit != begin) load(at);
            Format current[kRowTiles];
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r)
                current[r] = next[r];
            const int tile = at.tile;
            at.advance<Layout::kBytes>(p.k_records);
            if constexpr (kLoadsAhead) load(at);
            // Tiles past the last one multiply what was never loaded and store nothing.
            multiply_records(current, table, window, column_address, slot, sums);
            ++slot;
            const bool ends_group = at.k_record == 0;
            if (!ends_group && at.unit < end) continue;
#pragma unroll
            for (int r = 0; r < kRowTiles; ++r) {
                const int mine = tile + r * kWarps;
                if (mine < p.tiles && ((ends_group && is_whole) ||
                                       join_tile(p, cut, tile / kMatmulUnitTiles, mine, sums[r])))
                    store_tile(p, window, mine, columns, sums[r]);
                sums[r].clear();
            }
            if (holds_all) slot = 0;
            is_whole = true;
        }
    }
}

}  // namespace kernels::cuda

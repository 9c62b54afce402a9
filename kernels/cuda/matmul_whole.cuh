// matmul_whole: matmul_mma for up to eight tokens whose x' fits into shared memory whole: a block
// owns whole row tiles, so that no sum crosses blocks.
//
// Math      as matmul_mma.cuh; parts of a tile are added in order of k
// Moves     the packed matrix once; x once per block
// Floor     bandwidth, as there; blocks differ by one tile: 3 % at 16.5 tiles a block
// Achieved  kernels/README.md
// Plan      the records of a block's tiles, one after the other in memory, are cut into 16 equal
//           runs, one per warp. A tile inside a run is stored by its warp; one that is cut leaves
//           parts in shared memory, and after the only barrier a warp adds them up. Joining tiles
//           between blocks, as matmul_mma does, costs 3 us at the end of each launch
// Laws      a row's bits depend on neither the other rows nor the columns in use
#pragma once

#include "kernels/cuda/matmul_parts.cuh"

namespace kernels::cuda {

inline constexpr int kWholeWarps = 16;
inline constexpr int kWholeThreads = kWholeWarps * kWarpLanes;
static_assert(2 * 4 * kWholeWarps == kMatmulPartRows, "two parts of four registers a warp");

/// Leaves this warp's sums of a tile that others work on too.
__device__ inline void store_part(const WindowView& window, bool is_first, const Sums<1>& sums) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
        store_shared(window.part((2 * warp_index() + (is_first ? 0 : 1)) * 4 + i), sums.v[0][i]);
}

template <class Format>
__device__ void matmul_whole(const MatmulParams& p) {
    using Layout = RecordLayout<typename Format::Packed>;
    extern __shared__ uint4 shared[];
    const int block = static_cast<int>(blockIdx.x);
    const int lane = lane_index();
    const MatmulCut tiles{.groups = p.tiles, .k_records = 1, .blocks = p.blocks};
    const int first_tile = tiles.begin(block);
    const MatmulCut cut{.groups = tiles.begin(block + 1) - first_tile,
                        .k_records = p.k_records,
                        .blocks = kWholeWarps};
    const int begin = cut.begin(warp_index());
    const int end = cut.begin(warp_index() + 1);
    const std::uint8_t* source =
        p.records + (static_cast<std::int64_t>(first_tile) * p.k_records + begin) * Layout::kBytes;
    Format record{};
    load_record(record, {source, begin < end ? 1 : 0}, lane);

    const std::uint32_t base = shared_address(shared);
    const LaneTable table{.base = base, .offset = static_cast<std::uint32_t>(4 * lane)};
    if constexpr (Format::kHasTable) fill_table<Format>(base);
    const WindowView window = window_at<Format, 8>(p, base);
    let_next_kernel_start();
    const int columns = p.window_columns;
    wait_for_previous_kernel();
    make_window<Format, 1>(p, window, columns, 0, p.k_records, true);
    __syncthreads();

    // Columns past the last read the last one again: their sums are never stored.
    const std::uint32_t column_address =
        window.x + min(lane / 4, columns - 1) * window.column_bytes + 16 * (lane % 4);
    Sums<1> sums;
    sums.clear();
    int k_record = begin % p.k_records;
    int tile = begin / p.k_records;
    const int run_tile = tile;
    bool is_whole = k_record == 0;  // the run holds the tile from its first record on
    for (int unit = begin; unit < end; ++unit) {
        source += Layout::kBytes;
        multiply_record<true>(record, {source, unit + 1 < end ? 1 : 0}, table, window,
                              column_address, k_record, sums);
        ++k_record;
        const bool ends_tile = k_record == p.k_records;
        if (!ends_tile && unit + 1 < end) continue;
        if (ends_tile && is_whole)
            store_tile(p, window.factors, first_tile + tile, columns, sums);
        else
            store_part(window, tile == run_tile, sums);
        sums.clear();
        k_record = 0;
        ++tile;
        is_whole = true;
    }
    __syncthreads();  // all parts before their sums
    for (int cut_tile = warp_index(); cut_tile < cut.groups; cut_tile += kWholeWarps) {
        const int first = cut.first_block(cut_tile);
        const int last = cut.last_block(cut_tile);
        if (first == last) continue;  // its warp has stored it
        for (int other = first; other <= last; ++other) {
            if (cut.begin(other) == cut.begin(other + 1)) continue;  // fewer records than warps
            const int row = (2 * other + (cut_tile == cut.first_group(other) ? 0 : 1)) * 4;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sums.v[0][i] += load_shared(window.part(row + i));
        }
        store_tile(p, window.factors, first_tile + cut_tile, columns, sums);
        sums.clear();
    }
}

}  // namespace kernels::cuda

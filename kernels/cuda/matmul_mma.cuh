// matmul_mma: y = epilogue(W x) for up to eight tokens, W in the packed order, by tensor cores.
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
//           tile of each unit, holds its sums in registers along the run and loads the next
//           record while it multiplies this one. x' of the run lies in shared memory; nobody waits
//           for anybody inside a window. A tile cut between blocks is put together by the block
//           that arrives last, in order of k.
// Laws      a row's bits depend on neither the other rows nor their number: the cut depends on the
//           matrix and the grid alone
// Overlap   weights and the table depend on nobody: they are fetched before the wait for the
//           kernel in front (programmatic dependent launch)
// Source    fragment layouts: PTX ISA, mma.m16n8k16; checked by kernel-gate
#pragma once

#include "kernels/cuda/matmul_join.cuh"
#include "kernels/cuda/matmul_parts.cuh"

namespace kernels::cuda {

template <class Format>
__device__ void matmul_mma(const MatmulParams& p) {
    using Layout = RecordLayout<typename Format::Packed>;
    extern __shared__ uint4 shared[];
    const int block = static_cast<int>(blockIdx.x);
    const int lane = lane_index();
    const MatmulCut cut{.groups = p.groups, .k_records = p.k_records, .blocks = p.blocks};
    const int begin = cut.begin(block);
    const int end = cut.begin(block + 1);
    MatmulPosition at{.source = p.records,
                      .unit = begin,
                      .k_record = begin % p.k_records,
                      .tile = begin / p.k_records * kMatmulUnitTiles + warp_index()};
    at.source += (static_cast<std::int64_t>(at.tile) * p.k_records + at.k_record) * Layout::kBytes;
    Format record{};
    const auto source = [&] {
        return RecordSource{at.source, at.unit < end && at.tile < p.tiles ? 1 : 0};
    };
    load_record(record, source(), lane);

    const std::uint32_t base = shared_address(shared);
    const LaneTable table{.base = base, .offset = static_cast<std::uint32_t>(4 * lane)};
    if constexpr (Format::kHasTable) fill_table<Format>(base);
    const WindowView window = window_at<Format, kMatmulFewColumns>(p, base);
    let_next_kernel_start();
    const int columns = p.window_columns;
    wait_for_previous_kernel();
    // Columns past the last read the last one again: their sums are never stored.
    const std::uint32_t column_address =
        window.x + min(lane / 4, columns - 1) * window.column_bytes + 16 * (lane % 4);
    Sums<1> sums;
    sums.clear();
    bool is_whole = at.k_record == 0;  // the run holds the tiles from their first record on
    const bool holds_all = p.window_slots >= p.k_records;  // slot = record, staged once
    while (at.unit < end) {
        const int window_end = holds_all ? end : min(end, at.unit + p.window_slots);
        if (at.unit != begin) __syncthreads();  // all have read the window before
        make_window<Format, 1>(p, window, columns, holds_all ? 0 : at.k_record,
                               holds_all ? p.k_records : window_end - at.unit, at.unit == begin);
        __syncthreads();
        int slot = holds_all ? at.k_record : 0;
        while (at.unit < window_end) {
            const int tile = at.tile;
            at.advance<Layout::kBytes>(p.k_records);
            // Tiles past the last one multiply what was never loaded and store nothing.
            if constexpr (Format::kHasTwoSets) {
                Format current = record;
                load_record(record, source(), lane);
                multiply_record<false>(current, {}, table, window, column_address, slot, sums);
            } else {
                multiply_record<true>(record, source(), table, window, column_address, slot, sums);
            }
            ++slot;
            const bool ends_group = at.k_record == 0;
            if (!ends_group && at.unit < end) continue;
            if (tile < p.tiles && ((ends_group && is_whole) ||
                                   join_tile(p, cut, tile / kMatmulUnitTiles, tile, sums)))
                store_tile(p, window.factors, tile, columns, sums);
            sums.clear();
            if (holds_all) slot = 0;
            is_whole = true;
        }
    }
}

}  // namespace kernels::cuda

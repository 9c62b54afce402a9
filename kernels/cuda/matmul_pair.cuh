// matmul_pair: matmul_mma for up to eight tokens where two blocks share whole row tiles, so that no
// sum leaves a pair of neighbouring multiprocessors.
//
// Math      as matmul_mma.cuh; parts of a tile are added in order of k
// Moves     the packed matrix once; half of x once per block
// Floor     bandwidth; pairs differ by one tile: 3 % at 10 tiles a pair
// Achieved  kernels/README.md
// Plan      a cluster of two blocks owns row tiles; each block takes one half of K and makes x' of
//           that half alone. The records of its half, tile after tile, are cut into 16 equal runs,
//           one per warp. Every run leaves its parts in the shared memory of the block that stores
//           the tile (they take turns), half of them through distributed shared memory; behind the
//           cluster's only barrier a warp adds them up. Joining through global memory, as
//           matmul_mma does, costs 3 to 4 us at the end of each launch
// Overlap   before the wait for the kernel in front: the first record of each run to registers, the
//           norm's weights to the L2 (asking it for more records cost 1 us a launch)
// Laws      a row's bits depend on neither the other rows nor the columns in use
#pragma once

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/matmul_parts.cuh"

namespace kernels::cuda {

inline constexpr int kPairWarps = kMatmulThreads / kWarpLanes;

/// What a pair adds to a window: see WindowView for the rest.
///     norms    [2][kMatmulFewColumns] f32: sums of squares of each block's half
///     factors  [warps][kMatmulFewColumns] f32
///     parts  [2 blocks][pair_slots][4][32] f32; in the gaps of the table where they fit
struct PairView {
    WindowView window;
    std::uint32_t norms, factors, parts;
    std::uint32_t part_stride;  // bytes between rows of 32 floats
    int slots;

    __device__ std::uint32_t part(int rank, int slot, int i) const {
        return parts + part_stride * ((rank * slots + slot) * 4 + i) +
               4 * static_cast<std::uint32_t>(lane_index());
    }
};
template <class Format>
__device__ PairView pair_at(const MatmulParams& p, std::uint32_t base) {
    PairView v{};
    v.window = window_at<Format, kMatmulFewColumns>(p, base);
    v.window.table = 0;  // squares lie behind the factors: the gaps belong to parts
    v.norms = v.window.squares + p.window_columns * p.k_records * 4;
    v.factors = v.norms + 2 * kMatmulFewColumns * 4;
    v.slots = p.pair_slots;
    const bool in_gaps = Format::kHasTable && 2 * 4 * p.pair_slots <= kTableBytes / kTableStride;
    v.parts = in_gaps ? base + kTableStride / 2 : v.factors + kPairWarps * kMatmulFewColumns * 4;
    v.part_stride = in_gaps ? kTableStride : 4 * kWarpLanes;
    return v;
}

/// Sums of the squares of this block's half of K, a column a warp, to both blocks.
__device__ inline void send_norms(const MatmulParams& p, const PairView& view, int rank,
                                  int k_first, int k_count) {
    for (int column = warp_index(); column < p.window_columns; column += kPairWarps) {
        float sum = 0.0F;
        for (int i = lane_index(); i < k_count; i += kWarpLanes)
            sum += load_shared(view.window.square(column * p.k_records + k_first + i));
        sum = warp_sum(sum);
        const std::uint32_t at = view.norms + 4 * (rank * kMatmulFewColumns + column);
        if (lane_index() == 0) store_shared(at, sum);
        if (lane_index() == 1) store_shared_in_block(at, 1 - rank, sum);
    }
}

/// The work of pair `pair` of p.blocks / 2.
template <class Format>
__device__ void matmul_pair(const MatmulParams& p, int pair) {
    using Layout = RecordLayout<typename Format::Packed>;
    extern __shared__ uint4 shared[];
    const int lane = lane_index();
    const int warp = warp_index();
    const int rank = static_cast<int>(blockIdx.x) % 2;
    const MatmulCut tiles{.groups = p.tiles, .k_records = 1, .blocks = p.blocks / 2};
    const int first_tile = tiles.begin(pair);
    const int tile_count = tiles.begin(pair + 1) - first_tile;
    const int k_first = rank == 0 ? 0 : p.k_records / 2;
    const int k_count = rank == 0 ? p.k_records / 2 : p.k_records - p.k_records / 2;
    const MatmulCut cut{.groups = tile_count, .k_records = k_count, .blocks = kPairWarps};
    const int begin = cut.begin(warp);
    const int end = cut.begin(warp + 1);
    int tile = begin / k_count;
    int k_record = begin - tile * k_count;
    const std::uint8_t* source =
        p.records +
        (static_cast<std::int64_t>(first_tile + tile) * p.k_records + k_first + k_record) *
            Layout::kBytes;
    Format record{};
    load_record(record, {source, begin < end ? 1 : 0}, lane);
    if (p.input.weight != nullptr && warp < k_count && lane < 8) {
        // 256 floats of a record: eight lines.
        for (int i = warp; i < k_count; i += kPairWarps)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(
                p.input.weight + min((k_first + i) * kRecordInputs + 32 * lane, p.input.k - 1)));
    }

    const std::uint32_t base = shared_address(shared);
    const LaneTable table{.base = base, .offset = static_cast<std::uint32_t>(4 * lane)};
    if constexpr (Format::kHasTable) fill_table<Format>(base);
    const PairView view = pair_at<Format>(p, base);
    cluster_arrive_bare();  // the other block is there before its memory is written
    let_next_kernel_start();
    const int columns = p.window_columns;
    wait_for_previous_kernel();
    make_records<Format, 1>(p, view.window,
                            {.columns = columns,
                             .first = k_first,
                             .slots = k_count,
                             .count = k_count,
                             .needs_squares = p.input.weight != nullptr});
    cluster_wait();
    __syncthreads();
    if (p.input.weight != nullptr) send_norms(p, view, rank, k_first, k_count);

    // Columns past the last read the last one again: their sums are never stored.
    const std::uint32_t column_address =
        view.window.x + min(lane / 4, columns - 1) * view.window.column_bytes + 16 * (lane % 4);
    Sums<1> sums;
    sums.clear();
    for (int unit = begin; unit < end; ++unit) {
        const int slot = k_record;
        const bool ends_tile = k_record + 1 == k_count;
        source += ends_tile ? (p.k_records - k_count + 1) * Layout::kBytes : Layout::kBytes;
        multiply_record<true>(record, {source, unit + 1 < end ? 1 : 0}, table, view.window,
                              column_address, slot, sums);
        ++k_record;
        if (!ends_tile && unit + 1 < end) continue;
        const int owner = tile % 2;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const std::uint32_t at = view.part(rank, tile + warp, i);
            if (owner == rank)
                store_shared(at, sums.v[0][i]);
            else
                store_shared_in_block(at, owner, sums.v[0][i]);
        }
        sums.clear();
        k_record = 0;
        ++tile;
    }
    // What the end needs and does not depend on the other block.
    const int first_own = rank + 2 * warp;
    Sums<1> before;
    before.clear();
    if (first_own < tile_count) before = load_outputs<1>(p, first_tile + first_own, columns);
    cluster_arrive();
    cluster_wait();
    const std::uint32_t factors = view.factors + 4 * kMatmulFewColumns * warp;
    if (lane < columns) {
        float factor = 1.0F;
        if (p.input.weight != nullptr) {
            const float squares = load_shared(view.norms + 4 * lane) +
                                  load_shared(view.norms + 4 * (kMatmulFewColumns + lane));
            factor = 1.0F / sqrtf(squares / static_cast<float>(p.input.k) + p.input.eps);
        }
        store_shared(factors + 4 * lane, factor);
    }
    __syncwarp();
    for (int own = first_own; own < tile_count; own += 2 * kPairWarps) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const MatmulCut other{
                .groups = tile_count,
                .k_records = half == 0 ? p.k_records / 2 : p.k_records - p.k_records / 2,
                .blocks = kPairWarps};
            const int last = other.last_block(own);
            for (int w = other.first_block(own); w <= last; ++w) {
                if (other.begin(w) == other.begin(w + 1)) continue;  // fewer records than warps
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    sums.v[0][i] += load_shared(view.part(half, own + w, i));
            }
        }
        if (own != first_own) before = load_outputs<1>(p, first_tile + own, columns);
        store_tile_over(p, factors, first_tile + own, columns, sums,
                        [&](int n, int i, const float*) { return before.v[n][i]; });
        sums.clear();
    }
}

}  // namespace kernels::cuda

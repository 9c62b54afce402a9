// matmul_wide: as matmul_mma, for 9 to 64 tokens: x' comes from prepare_wide and passes through a
// ring in shared memory, where the tensor cores read it (wgmma).
//
// Math      y[m, n] = factor[m] sum_k w[n, k] x'[m, k]; x' binary16 with one power of two per row,
//           w binary16, code times scale with one power of two per matrix, which puts the largest
//           weight below 2^15: what is 2^-29 of it still has a bit. Sums in f32, in order of k.
//           matmul_mma keeps codes exact and scales sums: that takes an fmaf per column and group,
//           which 16 columns and more cannot afford
// Shapes    W records [tiles, k_records] of 16 x 256; x' [k_records] stages (matmul_cut.h); y f32
// Moves     the packed matrix once for all columns; a stage of x' for every 16 row tiles
// Floor     bandwidth; at 64 columns the tensor cores take as long: 27B gate/up 24 of 23 us
// Achieved  kernels/README.md
// Plan      the units and the cut of matmul_mma. Four warpgroups, each four row tiles of a unit:
//           a warp turns codes into weights, two steps at a time, while the products of the two
//           steps before run; the next record is on its way into registers. Columns of x' are read
//           once for four tiles, by the tensor cores. The warpgroups feed the ring in turn: a bulk
//           copy a stage, a full and an empty barrier, so that no warp waits for another inside
//           the loop unless it is kSlack units ahead. Tiles that blocks share: matmul_share.cuh
// Laws      a row's bits depend on neither the other rows nor kColumns
// Overlap   weights and the table are fetched before the wait for the kernel in front
// Source    PTX ISA: wgmma, mbarrier, cp.async.bulk; checked by kernel-gate
#pragma once

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/matmul_half.cuh"
#include "kernels/cuda/matmul_share.cuh"
#include "kernels/cuda/matmul_wgmma.cuh"

namespace kernels::cuda {

inline constexpr int kWideWarps = kWideThreads / kWarpLanes;
inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kGroups = kWideThreads / kGroupThreads;
static_assert(kWideWarps == kMatmulUnitTiles);

/// Dynamic shared memory begins here where a kernel has no other: behind what the system keeps.
/// Known in advance, addresses are parts of instructions; a table entry's takes one of four away.
inline constexpr std::uint32_t kSharedBegin = 1024;
static_assert(kSharedBegin % kWideAtomBytes == 0);

/// Shared memory: table │ kStages stages │ factors [columns] │ full, empty barriers.
template <class Format, int kColumns>
struct WideMemory {
    static constexpr int kStages = wide_stages(kColumns);
    static constexpr int kStageBytes = wide_stage_bytes(kColumns);
    /// A stage is asked for again so many units after its last use: a warp may fall behind by that
    /// much before anyone waits.
    static constexpr int kSlack = kStages > 5 ? 4 : 2;
    static constexpr std::uint32_t kTable = kSharedBegin;
    static constexpr std::uint32_t kStage = kTable + (Format::kHasTable ? kTableBytes : 0);
    static constexpr std::uint32_t kFactors = kStage + kStages * kStageBytes;
    static constexpr std::uint32_t kFull = kFactors + 4 * kColumns;
    static constexpr std::uint32_t kEmpty = kFull + 8 * kStages;
};

/// The place of a unit in the ring: its stage, and how often the ring was around before, as the
/// parity that barriers go by.
template <class Memory>
struct RingPlace {
    int stage = 0;
    int parity = 0;
    __device__ void advance(int count = 1) {
        stage += count;
        if (stage < Memory::kStages) return;
        stage -= Memory::kStages;
        parity ^= 1;
    }
    __device__ std::uint32_t full() const { return Memory::kFull + 8 * stage; }
    __device__ std::uint32_t empty() const { return Memory::kEmpty + 8 * stage; }
    __device__ std::uint32_t empty_before() const {
        return Memory::kEmpty + 8 * (stage == 0 ? Memory::kStages - 1 : stage - 1);
    }
};

/// A place on a block's run, as one warp sees it.
template <int kRecordBytes>
struct WidePlace {
    const std::uint8_t* source;  // its tile's record
    int left;                    // units, this one too
    int k_record, tile;

    __device__ WidePlace(const MatmulParams& p, int unit, int units)
        : left(units),
          k_record(unit % p.k_records),
          tile(unit / p.k_records * kMatmulUnitTiles + warp_index()) {
        source =
            p.records + (static_cast<std::int64_t>(tile) * p.k_records + k_record) * kRecordBytes;
    }
    __device__ RecordSource record(const MatmulParams& p) const {
        return {source, left > 0 && tile < p.tiles ? 1 : 0};
    }
    __device__ int k_record_after(const MatmulParams& p, int units) const {
        int record = k_record + units;
        while (record >= p.k_records)
            record -= p.k_records;
        return record;
    }
    __device__ void advance(const MatmulParams& p) {
        --left;
        source += kRecordBytes;
        if (++k_record < p.k_records) return;
        k_record = 0;
        tile += kMatmulUnitTiles;
        source += static_cast<std::int64_t>(kMatmulUnitTiles - 1) * p.k_records * kRecordBytes;
    }
};

/// Asks for the stage at `place`, record `record` of x'; one thread's. `is_reused`: the ring was
/// there before.
template <class Memory>
__device__ inline void feed_ring(const MatmulParams& p, const RingPlace<Memory>& place, int record,
                                 int bytes, bool is_reused) {
    if (is_reused) barrier_wait(place.empty(), place.parity ^ 1);
    barrier_expect(place.full(), bytes);
    bulk_copy(Memory::kStage + Memory::kStageBytes * place.stage,
              p.x + static_cast<std::int64_t>(record) * Memory::kStageBytes, bytes, place.full());
}

/// What fits the registers of a thread, by trial: beyond it they spill.
template <class Format, int kTiles>
struct WideShape {
    using Side = typename Format::Side;
    static constexpr std::size_t kBytes = sizeof(Format) + sizeof(Side) + sizeof(Sums<kTiles>);
    /// Steps of a record whose products are issued together.
    static constexpr int kSteps =
        kTiles == 8 && (sizeof(Format) >= 160 || sizeof(Side) >= 64) ? 1 : 2;
    /// Batches of weights, of which all but one may be under way.
    static constexpr int kBuffers = 2;
    /// Codes are looked up one batch of steps ahead, so that they are on their way while products
    /// are issued.
    static constexpr bool kLooksAhead =
        Format::kHasTable && (kTiles < 8 || sizeof(Format) <= 96) && sizeof(Side) <= 64;
    /// Scales have registers for the next record's, beside those in use.
    static constexpr bool kHasTwoSides = kBytes <= (Format::kHasTable ? 256 : 224);
};

/// What a warp holds of the matrix: a record, the next one on its way into it; codes that have been
/// looked up ahead; weights of the steps that are multiplied and of those before, which the tensor
/// cores may still read.
template <class Format, class Shape>
struct WideWeights {
    static constexpr int kSteps = Shape::kSteps;
    Format record;
    Fragment codes[kSteps];
    Fragment weights[Shape::kBuffers][kSteps];

    __device__ void look_up(Fragment (&to)[kSteps], const LaneTable& table, int first) const {
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            to[i] = record.fragment(table, first + i);
    }
    /// Behind a look-up of the same steps.
    __device__ void reload(const RecordSource& next, int first) {
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            if ((first + i) % 2 == 1) record.reload(next, lane_index(), (first + i) / 2);
    }
};

/// The record times the stage at `place`, while the next record comes in. The products of the last
/// batch stay under way.
template <class Memory, class Shape, class Format, int kTiles>
__device__ inline void multiply_unit(WideWeights<Format, Shape>& held, const RecordSource& next,
                                     const LaneTable& table, float weight_unit,
                                     const RingPlace<Memory>& place, bool is_first,
                                     Sums<kTiles>& sums) {
    constexpr int kSteps = Shape::kSteps;
    constexpr int kStepsOfRecord = 2 * kRecordPairs;
    const int lane = lane_index();
    Format& record = held.record;
    const ColumnsDescriptor columns(Memory::kStage + Memory::kStageBytes * place.stage);
    const HalfScales<Format> scales(record, weight_unit);
    typename Format::Side side{};
    if constexpr (Shape::kHasTwoSides) side.load(next, lane);
    if constexpr (Shape::kLooksAhead) held.reload(next, 0);  // looked up in the unit before
#pragma unroll
    for (int first = 0; first < kStepsOfRecord; first += kSteps) {
        const int after = first + kSteps;
        Fragment(&f)[kSteps] = held.weights[first / kSteps % Shape::kBuffers];
        if constexpr (Shape::kLooksAhead) {
#pragma unroll
            for (int i = 0; i < kSteps; ++i)
                f[i] = held.codes[i];
        } else {
            held.look_up(f, table, first);
            held.reload(next, first);
        }
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            scale_codes(f[i], record, scales, first + i);
        if constexpr (!Shape::kHasTwoSides)
            if (after % (2 * kHalfPairs) == 0)
                reload_half(record.side, next, lane, after / (2 * kHalfPairs) - 1);
        if (Shape::kHasTwoSides && after == kStepsOfRecord) record.side = side;
        if constexpr (Shape::kLooksAhead) {
            held.look_up(held.codes, table, after % kStepsOfRecord);
            if (after < kStepsOfRecord) held.reload(next, after);
        }
        if (first == 0) barrier_wait(place.full(), place.parity);
        warpgroup_fence();
#pragma unroll
        for (int i = 0; i < kSteps; ++i)
            multiply_step(sums, f[i], columns.of_step(first + i),
                          first + i > 0 || !is_first ? 1 : 0);
        warpgroup_commit();
        warpgroup_wait<Shape::kBuffers - 1>();  // the oldest weights are free
        if (first == kSteps * (Shape::kBuffers - 2) && !is_first && lane == 0)
            barrier_arrive(place.empty_before());  // so is the stage before
    }
}

template <class Format, int kColumns>
__device__ void matmul_wide(const MatmulParams& p) {
    using Layout = RecordLayout<typename Format::Packed>;
    using Memory = WideMemory<Format, kColumns>;
    extern __shared__ uint4 shared[];
    if ((shared_address(shared) & 0xFFFFFFU) != kSharedBegin) __trap();
    const int block = static_cast<int>(blockIdx.x);
    const int lane = lane_index();
    const MatmulCut cut{.groups = p.groups, .k_records = p.k_records, .blocks = p.blocks};
    const int begin = cut.begin(block);
    WidePlace<Layout::kBytes> at(p, begin, cut.begin(block + 1) - begin);
    using Shape = WideShape<Format, kColumns / 8>;
    WideWeights<Format, Shape> held{};
    load_record(held.record, at.record(p), lane);

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Memory::kStages; ++stage) {
            barrier_init(Memory::kFull + 8 * stage, 1);
            barrier_init(Memory::kEmpty + 8 * stage, kWideWarps);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if constexpr (Format::kHasTable) fill_table<Format>(Memory::kTable);
    let_next_kernel_start();
    // The step was written by a copy in front of all kernels, so that it may be read before the
    // wait.
    const int columns = min(kColumns, *p.rows - p.first_row);
    wait_for_previous_kernel();
    if (columns <= 0) return;
    constexpr int kAhead = Memory::kStages - Memory::kSlack;
    const int bytes = wide_stage_bytes(columns + 7);  // of the groups of columns that live
    RingPlace<Memory> place;
    if (threadIdx.x == 0) {
        // What prepare_wide stored, the copy engine reads.
        asm volatile("fence.proxy.async.global;" ::: "memory");
        RingPlace<Memory> to;
        for (int i = 0; i < min(kAhead, at.left); ++i) {
            feed_ring(p, to, at.k_record_after(p, i), bytes, false);
            to.advance();
        }
    }
    // By other warps than the one that feeds, which would wait for its factor first.
    if (const int own = kWideThreads - 1 - static_cast<int>(threadIdx.x); own < columns)
        store_shared(Memory::kFactors + 4 * own, p.x_factors[own] / p.weight_unit);
    __syncthreads();  // table, factors and barriers

    const LaneTable table{.base = Memory::kTable, .offset = static_cast<std::uint32_t>(4 * lane)};
    if constexpr (Shape::kLooksAhead) held.look_up(held.codes, table, 0);
    Sums<kColumns / 8> sums;
    sums.clear();
    bool is_whole = at.k_record == 0;  // the run holds the tiles from their first record on
    bool is_later_group = false;
    bool is_reused = false;  // stages that are asked for were in use before
    while (at.left > 0) {
        const int tile = at.tile;
        bool is_first = true;
        do {
            is_reused = is_reused || place.stage == Memory::kSlack;
            // The warpgroups feed in turn: it costs the one that does some time.
            if (static_cast<int>(threadIdx.x) == kGroupThreads * (at.left % kGroups) &&
                at.left > kAhead) {
                RingPlace<Memory> to = place;
                to.advance(kAhead);
                feed_ring(p, to, at.k_record_after(p, kAhead), bytes, is_reused);
            }
            __syncwarp();
            at.advance(p);
            // Tiles past the last one multiply what was never loaded and store nothing; so do
            // columns.
            multiply_unit<Memory>(held, at.record(p), table, p.weight_unit, place, is_first, sums);
            place.advance();
            is_first = false;
        } while (at.left > 0 && at.k_record != 0);
        warpgroup_wait<0>();
        pin(sums);
        if (lane == 0) barrier_arrive(place.empty_before());
        const bool ends_group = at.k_record == 0;
        if (tile < p.tiles) {
            if (ends_group && is_whole)
                store_own(p, Memory::kFactors, tile, columns, sums);
            else
                leave_part(p, is_later_group, tile, columns, sums);
        }
        is_whole = true;
        is_later_group = true;
    }
    // Tiles of the first group and of the last, where others have a part.
    const int first_group = cut.first_group(block_anew());
    const int last_group = (cut.begin(block_anew() + 1) - 1) / p.k_records;
    for (int group = first_group; group <= last_group; group += max(1, last_group - first_group)) {
        const int tile = group * kMatmulUnitTiles + thread_anew() / kWarpLanes;
        if (tile < p.tiles && cut.first_block(group) != cut.last_block(group))
            finish_shared<kColumns / 8>(p, cut, group, tile, Memory::kFactors, columns);
    }
}

}  // namespace kernels::cuda

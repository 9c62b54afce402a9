// matmul_hmma: y = epilogue(W x) for more than a dozen tokens on sm_70, by mma.m8n8k4.
//
// Math      per group of inputs that share a scale: sums of exact integer codes, as binary16, times
// x
//           in binary16, in f32; then scaled in f32 and added in order of k. x carries a power of
//           two per row (halve_lanes), minima meet the sums of x over 32 inputs
// Shapes    W [tiles, k_records] records (lane_order.h); x [slabs][columns] 64 bytes; up to 64
// columns Moves     the records once per 64 tokens; x, 2 bytes an input, once per 128 rows Floor
// the tensor cores from about 32 tokens on: eight mma a slab and eight columns (of 32 rows x
//           32 inputs x 8 tokens), beside 1 instruction a weight to decode and 8 to scale sums
// Plan      four warps, a tile of 32 rows each: a lane's row is a row of A as it lies in registers,
// so
//           weights never pass through shared memory. x does, 64 inputs a stage, two stages and a
//           third on its way in registers; its 16-byte words are swizzled so that eight columns lie
//           in different banks. K is split until 160 blocks are there; finish_lanes adds the parts
// Laws      a row's bits depend on the matrix alone: not on the other rows
#pragma once

#include "kernels/cuda/lane_format.cuh"
#include "kernels/cuda/lane_output.cuh"
#include "kernels/cuda/lane_plan.h"

namespace kernels::cuda {

inline constexpr int kHmmaTileColumns = 8;
inline constexpr int kHmmaColumnTiles = kHmmaColumnsMax / kHmmaTileColumns;
inline constexpr int kHmmaStageSlabs = 2;
inline constexpr int kHmmaSlabColumnWords = kLaneSlabInputs * 2 / 16;  // words of 16 bytes
inline constexpr int kHmmaStageWords = kHmmaStageSlabs * kHmmaColumnsMax * kHmmaSlabColumnWords;
inline constexpr int kHmmaWordsPerThread = kHmmaStageWords / (kHmmaWarps * kWarpLanes);
static_assert(2 * kHmmaStageWords * 16 == kHmmaSharedBytes);

/// Four codes as two pairs of binary16: 0x6400 | byte is 1024 + byte.
template <class Format>
__device__ inline void halves_of(std::uint32_t word, std::uint32_t& first, std::uint32_t& last) {
    constexpr std::uint32_t kExponent = 0x64646464U;
    // -(1024 + 128) for signed bytes, else -(1024 + offset).
    constexpr std::uint32_t kShift = Format::kIsSigned ? 128 : Format::kOffset;
    constexpr std::uint32_t kMinus = 0xE400E400U | kShift | kShift << 16;
    if constexpr (Format::kIsSigned) word ^= 0x80808080U;
    first = add_half_pairs(__byte_perm(word, kExponent, 0x4140U), kMinus);
    last = add_half_pairs(__byte_perm(word, kExponent, 0x4342U), kMinus);
}

/// x on its way to shared memory, a stage at a time.
struct HmmaStages {
    const uint4* x;
    int words;  // of a stage
    int count;  // of stages
    uint4 on_way[kHmmaWordsPerThread];

    // Past the end the last word comes again, which nobody stores: no branch.
    __device__ void fetch(int stage) {
        const uint4* from = x + std::int64_t{min(stage, count - 1)} * words;
#pragma unroll
        for (int i = 0; i < kHmmaWordsPerThread; ++i)
            on_way[i] = load_x16(from + min(word_of_thread(i), words - 1));
    }
    __device__ void put(int stage) const {
        auto* memory = reinterpret_cast<uint4*>(block_memory()) + stage % 2 * kHmmaStageWords;
#pragma unroll
        for (int i = 0; i < kHmmaWordsPerThread; ++i)
            if (stage < count && word_of_thread(i) < words)
                store_shared16(memory + word_of_thread(i), on_way[i]);
    }
    __device__ static int word_of_thread(int i) {
        return i * kHmmaWarps * kWarpLanes + static_cast<int>(threadIdx.x);
    }
};

/// What scales this lane's sums: of the rows of c[i] with (i and 2) zero, and of the others.
struct HmmaScales {
    float low, high;
};
__device__ inline HmmaScales scales_of(float own) {
    const int lane = lane_index() & ~2;
    return {__shfl_sync(~0U, own, lane), __shfl_sync(~0U, own, lane | 2)};
}

__device__ inline void fold(float (&sums)[8], const float (&part)[8], const HmmaScales& scales) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
        sums[i] = fmaf((i & 2) == 0 ? scales.low : scales.high, part[i], sums[i]);
}

/// A slab times eight columns, whose words begin at `x` for this lane's column.
template <class Format>
__device__ inline void multiply_tile(float (&sums)[8], const std::uint32_t (&a)[2 * kSlabWords],
                                     const uint4* x, int swizzle,
                                     const HmmaScales (&scales)[kSlabWords / Format::kGroupWords]) {
    constexpr int kGroups = kSlabWords / Format::kGroupWords;
    constexpr int kWords = kHmmaSlabColumnWords / kGroups;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
        float part[8] = {};
#pragma unroll
        for (int i = group * kWords; i < (group + 1) * kWords; ++i) {
            const uint4 b = x[i ^ swizzle];
            mma_m8n8k4(part, a[4 * i], a[4 * i + 1], b.x, b.y);
            mma_m8n8k4(part, a[4 * i + 2], a[4 * i + 3], b.z, b.w);
        }
        fold(sums, part, scales[group]);
    }
}

/// Minima meet the sums of x over the slab; `x_sums` are those of eight columns.
__device__ inline void subtract_minimum(float (&sums)[8], const HmmaScales& minimum,
                                        const float* x_sums) {
    const int first = lane_index() & 2;
#pragma unroll
    for (int i = 0; i < 8; ++i)
        sums[i] = fmaf((i & 2) == 0 ? -minimum.low : -minimum.high,
                       x_sums[first + (i & 4) + (i & 1)], sums[i]);
}

/// One slab of the warp's tile times all columns.
template <class Format>
__device__ inline void multiply_slab(float (&sums)[kHmmaColumnTiles][8], const Format& format,
                                     const uint4* x, const float* x_sums, int columns) {
    constexpr int kGroups = kSlabWords / Format::kGroupWords;
    const int lane = lane_index();
    const int column = lane % 4 + 4 * (lane / 16);  // of B
    std::uint32_t w[kSlabWords];
    format.words(w);
    std::uint32_t a[2 * kSlabWords];
#pragma unroll
    for (int i = 0; i < kSlabWords; ++i)
        halves_of<Format>(w[i], a[2 * i], a[2 * i + 1]);
    HmmaScales scales[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
        scales[group] = scales_of(format.scale(group));
    HmmaScales minimum{};
    if constexpr (Format::kHasMinimum) minimum = scales_of(format.minimum());
#pragma unroll
    for (int tile = 0; tile < kHmmaColumnTiles; ++tile) {
        // Columns come in sixteens: two tiles are independent of each other.
        if (tile % 2 == 0 && tile * kHmmaTileColumns >= columns) break;
        const int first = tile * kHmmaTileColumns;
        multiply_tile<Format>(sums[tile], a, x + (first + column) * kHmmaSlabColumnWords,
                              column / 2, scales);
        if constexpr (Format::kHasMinimum) subtract_minimum(sums[tile], minimum, x_sums + first);
    }
}

/// To the parts of a split K, or to y.
__device__ inline void finish_tiles(const LaneMatmulParams& p, int tile,
                                    const float (&sums)[kHmmaColumnTiles][8]) {
    const int lane = lane_index();
    const int live = min(*p.rows - p.first_row, p.columns);
    const int rows = p.tiles * kLaneRows;
    float* parts = p.partials + std::int64_t{blockIdx.y} * p.columns * rows;
#pragma unroll
    for (int t = 0; t < kHmmaColumnTiles; ++t) {
        if (t * kHmmaTileColumns >= live) break;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int n = tile * kLaneRows + (lane & ~3) % 16 + (lane & 1) + (i & 2) + (lane & 16);
            const int column = t * kHmmaTileColumns + (i & 4) + (lane & 2) + (i & 1);
            if (column >= live) continue;
            if (p.splits > 1)
                parts[std::int64_t{column} * rows + n] = sums[t][i];
            else
                store_lane_output(p, n, column, sums[t][i] * p.factors[column]);
        }
    }
}

template <DType kType>
__device__ inline void matmul_hmma(const LaneMatmulParams& p) {
    using Format = LaneFormat<kType>;
    if (*p.rows <= p.first_row) return;
    const int tile = static_cast<int>(blockIdx.x) * kHmmaWarps + warp_index();
    const int split = static_cast<int>(blockIdx.y);
    const int begin = p.stretches * split / p.splits;
    const int end = p.stretches * (split + 1) / p.splits;
    // Warps past the last tile meet the others at barriers with a tile of theirs.
    const std::uint8_t* records =
        p.records + std::int64_t{min(tile, p.tiles - 1)} * p.k_records * Format::Layout::kBytes;
    const auto load = [&](Format& format, int stretch) {
        format.load({records + std::int64_t{stretch / kRecordStretches} * Format::Layout::kBytes,
                     lane_index(), stretch % kRecordStretches});
    };
    const int slab_words = p.columns * kHmmaSlabColumnWords;
    HmmaStages stages;
    stages.x = static_cast<const uint4*>(p.x) + std::int64_t{begin} * kStretchSlabs * slab_words;
    stages.words = kHmmaStageSlabs * slab_words;
    stages.count = (end - begin) * kStretchSlabs / kHmmaStageSlabs;
    const float* x_sums =
        static_cast<const float*>(p.sides) + std::int64_t{begin} * kStretchSlabs * p.columns;
    float sums[kHmmaColumnTiles][8] = {};
    Format next;
    if (begin < end) load(next, begin);
    stages.fetch(0);
    stages.put(0);
    stages.fetch(1);
    __syncthreads();  // stage 0 is there
    int stage = 0;
    for (int stretch = begin; stretch < end; ++stretch) {
        Format now = next;
        if (stretch + 1 < end) load(next, stretch + 1);
#pragma unroll 1
        for (int part = 0; part < kStretchSlabs / kHmmaStageSlabs; ++part) {
            const uint4* x =
                reinterpret_cast<const uint4*>(block_memory()) + stage % 2 * kHmmaStageWords;
#pragma unroll 1
            for (int slab = 0; slab < kHmmaStageSlabs; ++slab) {
                multiply_slab(sums, now, x + slab * slab_words, x_sums, p.columns);
                now.next_slab();
                x_sums += p.columns;
            }
            // The other half was read before the last barrier.
            stages.put(stage + 1);
            stages.fetch(stage + 2);
            __syncthreads();  // this stage has been read, the next one is there
            ++stage;
        }
    }
    if (tile < p.tiles) finish_tiles(p, tile, sums);
}

}  // namespace kernels::cuda

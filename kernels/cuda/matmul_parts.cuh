// What the products of packed matrices are made of: fragments and mma, x' in shared memory, a
// record times a window, epilogues. matmul_mma.cuh and matmul_whole.cuh cut the work and put sums
// together.
#pragma once

#include "kernels/cuda/matmul_cut.h"
#include "kernels/cuda/matmul_format.cuh"
#include "kernels/cuda/params.h"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/cuda/x_record.cuh"

namespace kernels::cuda {

__device__ inline uint4 load_shared16(std::uint32_t address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address));
    return v;
}
__device__ inline float2 load_shared_pair(std::uint32_t address) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
    return v;
}
/// An entry a warp and turn, one store that meets no other in a bank.
template <class Format>
__device__ void fill_table(std::uint32_t table) {
    const int warps = static_cast<int>(blockDim.x) / kWarpLanes;
    for (int entry = warp_index(); entry < 256; entry += warps)
        asm volatile(
            "st.shared.u32 [%0], %1;" ::"r"(table + kTableStride * entry + 4 * lane_index()),
            "r"(pair_of(Format::level(entry & 15), Format::level(entry >> 4)))
            : "memory");
}

/// Addresses in shared memory. x' of a window and what goes with it:
///     x        [window_columns][slots * 512 + 64] bytes: two columns lie in different banks
///     scales   [slots][kColumns] f32
///     sums     [slots * 8][kColumns] f32, for types with minima
///     factors  [kColumns] f32
///     squares  [window_columns][k_records] f32, until the factors are known
///     parts    [kPartRows][32] f32, of matmul_whole, once the squares are read
/// Where there is a table, squares and parts lie in the 128 bytes that its entries leave free.
struct WindowView {
    std::uint32_t x, scales, sums, factors, squares;
    std::uint32_t column_bytes;
    std::uint32_t table;  // 0 = none
    __device__ std::uint32_t square(int index) const {
        if (table == 0) return squares + 4 * index;
        return table + kTableStride * (index / kWarpLanes) + kTableStride / 2 +
               4 * (index % kWarpLanes);
    }
    /// Of this lane; squares of 8 columns and 128 records end before kPartRows rows do.
    __device__ std::uint32_t part(int row) const {
        const std::uint32_t lane = 4 * static_cast<std::uint32_t>(lane_index());
        if (table == 0) return squares + 4 * kWarpLanes * row + lane;
        return table + kTableStride * row + kTableStride / 2 + lane;
    }
};
template <class Format, int kColumns>
__device__ WindowView window_at(const MatmulParams& p, std::uint32_t base) {
    WindowView w{};
    if constexpr (Format::kHasTable) {
        w.table = base;
        base += kTableBytes;
    }
    w.column_bytes = p.window_slots * 512 + 64;
    w.x = base;
    w.scales = w.x + p.window_columns * w.column_bytes;
    w.sums = w.scales + p.window_slots * kColumns * 4;
    w.factors = w.sums + (Format::kHasMinimum ? p.window_slots * 8 * kColumns * 4 : 0);
    w.squares = w.factors + kColumns * 4;
    return w;
}
__device__ inline void store_shared(std::uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
__device__ inline float load_shared(std::uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
    return value;
}
/// Columns of an output value this lane holds: 8 tile + 2 t, + 1.
template <int kTiles>
struct Sums {
    float v[kTiles][4];  // rows g: columns 0, 1; rows g + 8: columns 0, 1
    __device__ void clear() {
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                v[n][i] = 0.0F;
    }
};

template <int kTiles>
__device__ inline void add_scaled(Sums<kTiles>& sums, int n, const ScalePair& scale,
                                  const float (&c)[4]) {
    sums.v[n][0] = fmaf(scale.low, c[0], sums.v[n][0]);
    sums.v[n][1] = fmaf(scale.low, c[1], sums.v[n][1]);
    sums.v[n][2] = fmaf(scale.high, c[2], sums.v[n][2]);
    sums.v[n][3] = fmaf(scale.high, c[3], sums.v[n][3]);
}

/// One pair of steps of a row tile times eight columns (`b` as two B operands), scaled.
template <class Format, int kTiles>
__device__ inline void multiply_pair(const Format& record, int pair, const Fragment& first,
                                     const Fragment& second, const uint4& b, int n,
                                     Sums<kTiles>& sums) {
    float c[4] = {};
    mma(c, first.a, b.x, b.y);
    if constexpr (Format::kGroupSteps == 2) {  // both steps share a scale
        mma(c, second.a, b.z, b.w);
        add_scaled(sums, n, record.scale(pair), c);
    } else {
        float e[4] = {};
        mma(e, second.a, b.z, b.w);
        add_scaled(sums, n, record.scale(2 * pair), c);
        add_scaled(sums, n, record.scale(2 * pair + 1), e);
    }
}
/// And what the minima of the group take away: `x_sum` of the columns' 32 inputs.
template <class Format, int kTiles>
__device__ inline void subtract_minimum(const Format& record, int pair, const float2& x_sum, int n,
                                        Sums<kTiles>& sums) {
    const ScalePair minimum = record.minimum(pair);
    const float x[4] = {x_sum.x, x_sum.y, x_sum.x, x_sum.y};
    add_scaled(sums, n, {-minimum.low, -minimum.high}, x);
}

/// A record times a slot of the window, while `next` comes in, if `kReloads`.
template <bool kReloads, class Format>
__device__ inline void multiply_record(Format& record, const RecordSource& next,
                                       const LaneTable& table, const WindowView& window,
                                       std::uint32_t column_address, int slot, Sums<1>& sums) {
    const int lane = lane_index();
    constexpr bool kHasTwoSides = Format::kSidePair < kRecordPairs;
    typename Format::Side side{};
    Sums<1> own;  // of this record
    own.clear();
#pragma unroll
    for (int pair = 0; pair < kRecordPairs; ++pair) {
        const Fragment first = record.fragment(table, 2 * pair);
        const Fragment second = record.fragment(table, 2 * pair + 1);
        const uint4 b = load_shared16(column_address + 512 * slot + 64 * pair);
        multiply_pair(record, pair, first, second, b, 0, own);
        if constexpr (kReloads) record.reload(next, lane, pair);
        if (kReloads && kHasTwoSides && pair == Format::kSidePair) side.load(next, lane);
        if constexpr (Format::kHasMinimum)
            subtract_minimum(
                record, pair,
                load_shared_pair(window.sums + ((8 * slot + pair) * 8 + 2 * (lane % 4)) * 4), 0,
                own);
    }
    const float2 scale = load_shared_pair(window.scales + (slot * 8 + 2 * (lane % 4)) * 4);
    sums.v[0][0] = fmaf(scale.x, own.v[0][0], sums.v[0][0]);
    sums.v[0][1] = fmaf(scale.y, own.v[0][1], sums.v[0][1]);
    sums.v[0][2] = fmaf(scale.x, own.v[0][2], sums.v[0][2]);
    sums.v[0][3] = fmaf(scale.y, own.v[0][3], sums.v[0][3]);
    if constexpr (kReloads && kHasTwoSides) record.side = side;
    if constexpr (kReloads && !kHasTwoSides) record.side.load(next, lane);
}

/// What a window holds: `slots` records from record `first` on, around the end of K.
struct WindowPart {
    int columns;
    int first;
    int slots;
    int count;  // of records that are read, for their squares; at least `slots`
    bool needs_squares;
};

/// Makes x' of a window from x: a warp makes a few records at a time, so that their loads are on
/// the way together.
template <class Format, int kTiles>
__device__ void make_records(const MatmulParams& p, const WindowView& window,
                             const WindowPart& part) {
    constexpr int kColumns = 8 * kTiles;
    constexpr int kBatch = 2;
    const int count = part.count;
    const int warps = static_cast<int>(blockDim.x) / kWarpLanes;
    const int lane = lane_index();
    int column = warp_index() / count;
    int slot = warp_index() % count;
    while (column < part.columns) {
        XRow row{
            .x = nullptr, .weight = p.input.weight, .k = p.input.k, .is_paired = p.input.is_paired};
        float v[kBatch][kChunkInputs];
        int columns[kBatch], slots[kBatch];
        const auto record_of = [&](int i) {
            const int record = part.first + i;
            return record < p.k_records ? record : record - p.k_records;
        };
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
            columns[b] = column;
            slots[b] = slot;
            if (column < part.columns) {
                const int m = p.first_row + column;
                row.x = p.input.x +
                        (p.input.row_map != nullptr ? p.input.row_map[m] : m) * p.input.x_stride;
                load_x(row, record_of(slot), v[b]);
            }
            for (slot += warps; slot >= count; slot -= count)
                ++column;
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
            if (columns[b] >= part.columns) break;
            const int record = record_of(slots[b]);
            const XRecord made = make_x_record<Format::kHasMinimum>(row, record, v[b]);
            if (part.needs_squares && lane == 0)
                store_shared(window.square(columns[b] * p.k_records + record), made.squares);
            if (slots[b] >= part.slots) continue;
            asm volatile(
                "st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(
                    window.x + columns[b] * window.column_bytes + 512 * slots[b] + 16 * lane),
                "r"(made.halves.x), "r"(made.halves.y), "r"(made.halves.z), "r"(made.halves.w)
                : "memory");
            if (lane == 0)
                store_shared(window.scales + (slots[b] * kColumns + columns[b]) * 4, made.scale);
            if (Format::kHasMinimum && lane % 4 == 0)
                store_shared(window.sums + ((8 * slots[b] + lane / 4) * kColumns + columns[b]) * 4,
                             made.sum);
        }
    }
}

/// x' of a window, and with the first of a run the factors: with a norm it reads every record, for
/// the squares.
template <class Format, int kTiles>
__device__ void make_window(const MatmulParams& p, const WindowView& window, int columns, int first,
                            int slots, bool is_first) {
    const bool needs_squares = is_first && p.input.weight != nullptr;
    make_records<Format, kTiles>(p, window,
                                 {.columns = columns,
                                  .first = first,
                                  .slots = slots,
                                  .count = needs_squares ? p.k_records : slots,
                                  .needs_squares = needs_squares});
    if (!is_first) return;
    if (needs_squares) __syncthreads();  // all squares before the factors
    if (const int own = static_cast<int>(threadIdx.x); own < columns) {
        const float factor =
            !needs_squares ? 1.0F
                           : norm_factor(p.k_records, p.input.k, p.input.eps, [&](int record) {
                                 return load_shared(window.square(own * p.k_records + record));
                             });
        store_shared(window.factors + 4 * own, factor);
    }
}

/// The outputs of a segment that a lane holds of a tile: those of rows g and g + 8.
struct LaneOutputs {
    int low, high;
    bool has_low, has_high;
};
__device__ inline LaneOutputs lane_outputs(const MatmulParams& p, int tile,
                                           int lane = lane_index()) {
    const int g = lane / 4;
    // Interleaved: row g is output 8 tile + g of the first half, row g + 8 the same of the second.
    const int low = p.half > 0 ? kTileRows / 2 * tile + g : kTileRows * tile + g;
    const int high = p.half > 0 ? low + p.half : low + kTileRows / 2;
    return {low, high, p.half > 0 ? low < p.half : low < p.outputs, high < p.outputs};
}

/// What y holds where a tile's sums go, with kAdd and kSiluTimes; read early, its latency is spent
/// beside other work.
template <int kTiles>
__device__ Sums<kTiles> load_outputs(const MatmulParams& p, int tile, int columns,
                                     int lane = lane_index()) {
    Sums<kTiles> before;
    before.clear();
    if (p.epilogue != LinearEpilogue::kAdd && p.epilogue != LinearEpilogue::kSiluTimes)
        return before;
    const LaneOutputs at = lane_outputs(p, tile, lane);
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const int column = 8 * n + 2 * (lane % 4) + c;
            if (column >= columns) continue;
            const float* y = p.y + (p.first_row + column) * p.y_stride;
            const auto get = [&](int output) {
                return output < p.begin || output >= p.end ? 0.0F : y[output - p.begin];
            };
            if (at.has_low) before.v[n][c] = get(p.first_output + at.low);
            if (at.has_high) before.v[n][2 + c] = get(p.first_output + at.high);
        }
    return before;
}

/// Stores the finished sums of a tile; `before(n, i, from)` is what y held, at `from`, where value
/// i of tile n goes.
template <int kTiles, class Before>
__device__ void store_tile_over(const MatmulParams& p, std::uint32_t factors, int tile, int columns,
                                const Sums<kTiles>& sums, const Before& before,
                                int lane = lane_index()) {
    const auto [low, high, has_low, has_high] = lane_outputs(p, tile, lane);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const int column = 8 * n + 2 * (lane % 4) + c;
            if (column >= columns) continue;
            const int m = p.first_row + column;
            const float scale = load_shared(factors + 4 * column);
            float a = sums.v[n][c] * scale;
            float b = sums.v[n][2 + c] * scale;
            if (p.bias != nullptr) {
                if (has_low) a += p.bias[p.first_output + low];
                if (has_high) b += p.bias[p.first_output + high];
            }
            float* y = p.y + m * p.y_stride;
            if (p.epilogue == LinearEpilogue::kSwiGlu) {
                if (has_low) y[p.first_output + low] = a * sigmoid(a) * b;
                continue;
            }
            const auto put = [&](int output, float value, int i) {
                if (output < p.begin || output >= p.end) return;
                float* to = y + (output - p.begin);
                if (p.epilogue == LinearEpilogue::kStore) {
                    *to = value;
                    return;
                }
                const float old = before(n, i, to);
                *to = p.epilogue == LinearEpilogue::kAdd ? old + value : old * sigmoid(old) * value;
            };
            if (has_low) put(p.first_output + low, a, c);
            if (has_high) put(p.first_output + high, b, 2 + c);
        }
    }
}
template <int kTiles>
__device__ void store_tile(const MatmulParams& p, std::uint32_t factors, int tile, int columns,
                           const Sums<kTiles>& sums) {
    store_tile_over(p, factors, tile, columns, sums,
                    [](int, int, const float* from) { return *from; });
}

}  // namespace kernels::cuda

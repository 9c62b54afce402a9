// How a packed record becomes A operands of mma.m16n8k16 and scales: one struct per type.
//
// A record is consumed in eight pairs of steps. Codes are `reload`ed in place: as soon as a pair is
// done with its registers, the next record's codes are on their way into them, so that a whole
// record is in flight without a second set of registers. Scales and the like (`Side`) are needed
// until the end and have two sets.
//
// Codes turn into exact binary16 integers; scales multiply after the mma, in f32, so that weights
// are never rounded. Nibble types look a byte up in a table of binary16 pairs in shared memory that
// is repeated for every bank: entry b of lane l lies at 256 b + 4 l, so that one byte permute makes
// the address and no two lanes meet in a bank. Types with more bits add them: the table then holds
// n - 1024 - offset, and 0x6400 + (high bits << 4) is 1024 + 16 h.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/packed.h"

namespace kernels::cuda {

inline constexpr int kTableStride = 256;  // bytes per entry; the lanes use the first 128
inline constexpr int kTableBytes = 256 * kTableStride;

/// Weights are read once: past the L1, which belongs to others. A load that is off leaves what was
/// there; it is a predicate, not a branch, so that the compiler sees one straight line.
__device__ inline void load_weights(uint4& v, const std::uint8_t* from, int is_on) {
    asm volatile(
        "{\n.reg .pred on;\nsetp.ne.s32 on, %5, 0;\n"
        "@on ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(from), "r"(is_on));
}
__device__ inline void load_weights(uint2& v, const std::uint8_t* from, int is_on) {
    asm volatile(
        "{\n.reg .pred on;\nsetp.ne.s32 on, %3, 0;\n"
        "@on ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];\n}"
        : "+r"(v.x), "+r"(v.y)
        : "l"(from), "r"(is_on));
}
__device__ inline void load_weights(std::uint32_t& v, const std::uint8_t* from, int is_on) {
    asm volatile(
        "{\n.reg .pred on;\nsetp.ne.s32 on, %2, 0;\n"
        "@on ld.global.nc.L1::no_allocate.u32 %0, [%1];\n}"
        : "+r"(v)
        : "l"(from), "r"(is_on));
}

/// Where a lane finds a record, if there is one.
struct RecordSource {
    const std::uint8_t* record;
    int is_there;
};

template <int kIndex>
__device__ inline std::uint32_t word_of(const uint4& v) {
    if constexpr (kIndex == 0) return v.x;
    if constexpr (kIndex == 1) return v.y;
    if constexpr (kIndex == 2) return v.z;
    return v.w;
}
__device__ inline std::uint32_t word_of(const uint4& v, int index) {  // index known when unrolled
    return index == 0 ? v.x : index == 1 ? v.y : index == 2 ? v.z : v.w;
}

__device__ inline float low_half_to_float(std::uint32_t pair) {
    return half_to_float(static_cast<std::uint16_t>(pair & 0xFFFFU));
}
__device__ inline float high_half_to_float(std::uint32_t pair) {
    return half_to_float(static_cast<std::uint16_t>(pair >> 16));
}
/// Byte `index` as a signed number.
__device__ inline float signed_byte(std::uint32_t word, int index) {
    return static_cast<float>(static_cast<std::int8_t>(word >> (8 * index) & 255U));
}
__device__ inline float unsigned_byte(std::uint32_t word, int index) {
    return static_cast<float>(word >> (8 * index) & 255U);
}
__device__ inline std::uint32_t add_pairs(std::uint32_t a, std::uint32_t b) {
    std::uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}
__device__ inline std::uint32_t pair_of(float low, float high) {
    return float_to_half(low) | static_cast<std::uint32_t>(float_to_half(high)) << 16;
}

/// The table as a lane sees it: address in shared memory of the first entry.
struct LaneTable {
    std::uint32_t base;    // of entry 0, lane 0; a multiple of 256
    std::uint32_t offset;  // 4 * lane

    template <int kByte>
    __device__ std::uint32_t look_up(std::uint32_t word) const {
        // Bytes from low to high: offset, the code, zero, zero.
        const std::uint32_t address = __byte_perm(word, offset, 0x5504U | kByte << 4);
        std::uint32_t pair;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(pair) : "r"(base + address));
        return pair;
    }
};

/// A operand of one step, and what multiplies its sums.
struct Fragment {
    std::uint32_t a[4];
};
/// Of rows g and g + 8.
struct ScalePair {
    float low, high;
};

template <DType>
struct MatmulFormat;

/// Four slabs of nibbles, each of two pairs of steps; the levels differ.
struct NibbleCodes {
    uint4 slabs[4];
    __device__ void load_slab(const RecordSource& from, int lane, int slab) {
        load_weights(slabs[slab], from.record + kSlabBytes * slab + 16 * lane, from.is_there);
    }
    __device__ void reload(const RecordSource& from, int lane, int pair) {
        if (pair % 2 == 1) load_slab(from, lane, pair / 2);
    }
    __device__ Fragment look_up(const LaneTable& table, int step) const {
        const std::uint32_t word = word_of(slabs[step / 4], step % 4);
        return {{table.look_up<0>(word), table.look_up<1>(word), table.look_up<2>(word),
                 table.look_up<3>(word)}};
    }
};

__device__ inline float iq4_table_level(int n) {
    const std::uint32_t low =
        __byte_perm(kIq4Levels[0], kIq4Levels[1], static_cast<unsigned>(n & 7));
    const std::uint32_t high =
        __byte_perm(kIq4Levels[2], kIq4Levels[3], static_cast<unsigned>(n & 7));
    return static_cast<float>(static_cast<std::int8_t>((n < 8 ? low : high) & 255U));
}

/// What types without further code planes share.
template <class SideType>
struct NibbleFormat {
    using Side = SideType;
    static constexpr bool kHasTable = true;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupSteps = 2;
    static constexpr int kSidePair = 0;  // when the next side is asked for, up to eight columns
    // matmul_mma asks for all of the next record before it multiplies one: a second set of
    // registers, 2 us less where runs are short (kernels/README.md).
    static constexpr bool kHasTwoSets = false;

    NibbleCodes codes;
    Side side;

    __device__ void reload(const RecordSource& from, int lane, int pair) {
        codes.reload(from, lane, pair);
    }
    __device__ Fragment fragment(const LaneTable& table, int step) const {
        return codes.look_up(table, step);
    }
    __device__ ScalePair scale(int group) const { return side.scale(group); }
};

struct Iq4XsSide {
    using Layout = RecordLayout<PackedFormat<DType::kIQ4_XS>>;
    uint4 scales;     // 8 of row g, 8 of row g + 8
    std::uint32_t d;  // of both
    __device__ void load(const RecordSource& from, int lane) {
        load_weights(scales, from.record + Layout::kScales + 16 * (lane / 4), from.is_there);
        load_weights(d, from.record + Layout::kD + 4 * (lane / 4), from.is_there);
    }
    __device__ ScalePair scale(int group) const {
        return {low_half_to_float(d) * signed_byte(word_of(scales, group / 4), group % 4),
                high_half_to_float(d) * signed_byte(word_of(scales, 2 + group / 4), group % 4)};
    }
};

template <>
struct MatmulFormat<DType::kIQ4_XS> : NibbleFormat<Iq4XsSide> {
    using Packed = PackedFormat<DType::kIQ4_XS>;
    static constexpr bool kHasTwoSets = true;
    __device__ static float level(int n) { return iq4_table_level(n); }
};

struct Q6KSide {
    using Layout = RecordLayout<PackedFormat<DType::kQ6_K>>;
    uint4 scales[2];  // 16 of row g, 16 of row g + 8
    std::uint32_t d;
    __device__ void load(const RecordSource& from, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            load_weights(scales[i], from.record + Layout::kScales + 32 * (lane / 4) + 16 * i,
                         from.is_there);
        load_weights(d, from.record + Layout::kD + 4 * (lane / 4), from.is_there);
    }
};

template <>
struct MatmulFormat<DType::kQ6_K> {
    using Packed = PackedFormat<DType::kQ6_K>;
    using Side = Q6KSide;
    static constexpr bool kHasTable = true;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupSteps = 1;
    static constexpr int kSidePair = 0;
    static constexpr bool kHasTwoSets = false;

    NibbleCodes codes;
    uint4 high[2];  // two slabs each
    Side side;

    __device__ static float level(int n) { return static_cast<float>(n - 32 - 1024); }
    __device__ void reload(const RecordSource& from, int lane, int pair) {
        codes.reload(from, lane, pair);
        if (pair % 4 == 3)
            load_weights(high[pair / 4],
                         from.record + RecordLayout<Packed>::kHigh + 512 * (pair / 4) + 16 * lane,
                         from.is_there);
    }
    __device__ Fragment fragment(const LaneTable& table, int step) const {
        Fragment f = codes.look_up(table, step);
        const std::uint32_t word = word_of(high[step / 8], step / 2 % 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int shift = 2 * (4 * (step % 2) + i) - 4;
            const std::uint32_t bits = shift < 0 ? word << -shift : word >> shift;
            f.a[i] = add_pairs(f.a[i], (bits & 0x00300030U) | 0x64006400U);
        }
        return f;
    }
    __device__ ScalePair scale(int group) const {
        return {
            low_half_to_float(side.d) * signed_byte(word_of(side.scales[0], group / 4), group % 4),
            high_half_to_float(side.d) *
                signed_byte(word_of(side.scales[1], group / 4), group % 4)};
    }
};

/// Scales and minima of rows g and g + 8.
template <DType kType>
struct K4Side {
    using Layout = RecordLayout<PackedFormat<kType>>;
    uint4 scales[2];  // of a row: 8 scales, 8 minima
    uint2 d;          // d of both, dmin of both
    __device__ void load(const RecordSource& from, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            load_weights(scales[i], from.record + Layout::kScales + 32 * (lane / 4) + 16 * i,
                         from.is_there);
        load_weights(d, from.record + Layout::kD + 8 * (lane / 4), from.is_there);
    }
    __device__ ScalePair scale(int group) const {
        return {low_half_to_float(d.x) * unsigned_byte(word_of(scales[0], group / 4), group % 4),
                high_half_to_float(d.x) * unsigned_byte(word_of(scales[1], group / 4), group % 4)};
    }
    __device__ ScalePair minimum(int group) const {
        return {
            low_half_to_float(d.y) * unsigned_byte(word_of(scales[0], 2 + group / 4), group % 4),
            high_half_to_float(d.y) * unsigned_byte(word_of(scales[1], 2 + group / 4), group % 4)};
    }
};

template <>
struct MatmulFormat<DType::kQ4_K> : NibbleFormat<K4Side<DType::kQ4_K>> {
    using Packed = PackedFormat<DType::kQ4_K>;
    static constexpr bool kHasMinimum = true;
    static constexpr int kSidePair = 8;  // in place: there are no registers for two
    __device__ static float level(int n) { return static_cast<float>(n); }
    __device__ ScalePair minimum(int group) const { return side.minimum(group); }
};

struct Q5KSide : K4Side<DType::kQ5_K> {
    uint4 high;  // a word per slab
    __device__ void load(const RecordSource& from, int lane) {
        K4Side<DType::kQ5_K>::load(from, lane);
        load_weights(high, from.record + Layout::kHigh + 16 * lane, from.is_there);
    }
};

template <>
struct MatmulFormat<DType::kQ5_K> : NibbleFormat<Q5KSide> {
    using Packed = PackedFormat<DType::kQ5_K>;
    static constexpr bool kHasMinimum = true;
    __device__ static float level(int n) { return static_cast<float>(n - 1024); }
    __device__ Fragment fragment(const LaneTable& table, int step) const {
        Fragment f = codes.look_up(table, step);
        const std::uint32_t word = word_of(side.high, step / 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int shift = 4 * (step % 4) + i - 4;
            const std::uint32_t bits = shift < 0 ? word << -shift : word >> shift;
            f.a[i] = add_pairs(f.a[i], (bits & 0x00100010U) | 0x64006400U);
        }
        return f;
    }
    __device__ ScalePair minimum(int group) const {
        return side.minimum(group);
    }
};

/// Eight binary16 scales of rows g and g + 8.
template <DType kType>
struct HalfSide {
    uint4 scales[2];
    __device__ void load(const RecordSource& from, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            load_weights(
                scales[i],
                from.record + RecordLayout<PackedFormat<kType>>::kScales + 32 * (lane / 4) + 16 * i,
                from.is_there);
    }
    __device__ ScalePair scale(int group) const {
        const std::uint32_t low = word_of(scales[0], group / 2);
        const std::uint32_t high = word_of(scales[1], group / 2);
        if (group % 2 == 0) return {low_half_to_float(low), low_half_to_float(high)};
        return {high_half_to_float(low), high_half_to_float(high)};
    }
};

template <>
struct MatmulFormat<DType::kQ4_0> : NibbleFormat<HalfSide<DType::kQ4_0>> {
    using Packed = PackedFormat<DType::kQ4_0>;
    static constexpr bool kHasTwoSets = true;
    __device__ static float level(int n) { return static_cast<float>(n - 8); }
};
template <>
struct MatmulFormat<DType::kIQ4_NL> : NibbleFormat<HalfSide<DType::kIQ4_NL>> {
    using Packed = PackedFormat<DType::kIQ4_NL>;
    static constexpr bool kHasTwoSets = true;
    __device__ static float level(int n) { return iq4_table_level(n); }
};

template <>
struct MatmulFormat<DType::kQ8_0> {
    using Packed = PackedFormat<DType::kQ8_0>;
    using Side = HalfSide<DType::kQ8_0>;
    static constexpr bool kHasTable = false;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupSteps = 2;
    static constexpr int kSidePair = 0;
    static constexpr bool kHasTwoSets = false;

    uint4 codes[8];  // a pair of steps each
    Side side;

    __device__ void reload(const RecordSource& from, int lane, int pair) {
        load_weights(codes[pair], from.record + 512 * pair + 16 * lane, from.is_there);
    }
    /// 0x6400 | (q + 128) is 1152 + q.
    __device__ Fragment fragment(const LaneTable&, int step) const {
        const std::uint32_t first = word_of(codes[step / 2], 2 * (step % 2)) ^ 0x80808080U;
        const std::uint32_t second = word_of(codes[step / 2], 2 * (step % 2) + 1) ^ 0x80808080U;
        constexpr std::uint32_t kExponent = 0x64646464U;
        constexpr std::uint32_t kMinus1152 = 0xe480e480U;
        return {{add_pairs(__byte_perm(first, kExponent, 0x4140U), kMinus1152),
                 add_pairs(__byte_perm(first, kExponent, 0x4342U), kMinus1152),
                 add_pairs(__byte_perm(second, kExponent, 0x4140U), kMinus1152),
                 add_pairs(__byte_perm(second, kExponent, 0x4342U), kMinus1152)}};
    }
    __device__ ScalePair scale(int group) const { return side.scale(group); }
};

inline constexpr int kRecordPairs = kRecordInputs / kStepInputs / 2;

/// A whole record, at the start of a run.
template <class Format>
__device__ inline void load_record(Format& format, const RecordSource& from, int lane) {
    format.side.load(from, lane);
#pragma unroll
    for (int pair = 0; pair < kRecordPairs; ++pair)
        format.reload(from, lane, pair);
}

}  // namespace kernels::cuda

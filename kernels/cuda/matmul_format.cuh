// How a packed record becomes A operands of mma.m16n8k16 and scales: one struct per type.
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

/// Weights are read once: past the L1, which belongs to others.
__device__ inline uint4 load_weights16(const std::uint8_t* from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}
__device__ inline uint2 load_weights8(const std::uint8_t* from) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(from));
    return v;
}
__device__ inline std::uint32_t load_weights4(const std::uint8_t* from) {
    std::uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}

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

/// Four slabs of nibbles; the levels differ.
struct NibbleCodes {
    uint4 slabs[4];
    __device__ void load(const std::uint8_t* record, int lane) {
#pragma unroll
        for (int slab = 0; slab < 4; ++slab)
            slabs[slab] = load_weights16(record + kSlabBytes * slab + 16 * lane);
    }
    __device__ Fragment look_up(const LaneTable& table, int step) const {
        const std::uint32_t word = word_of(slabs[step / 4], step % 4);
        return {{table.look_up<0>(word), table.look_up<1>(word), table.look_up<2>(word),
                 table.look_up<3>(word)}};
    }
};

__device__ inline float iq4_table_level(int n) {
    constexpr std::uint32_t kLevels[4] = {0xbfad9881U, 0xf6eaddcfU, 0x26190d01U, 0x71594535U};
    const std::uint32_t low = __byte_perm(kLevels[0], kLevels[1], static_cast<unsigned>(n & 7));
    const std::uint32_t high = __byte_perm(kLevels[2], kLevels[3], static_cast<unsigned>(n & 7));
    return static_cast<float>(static_cast<std::int8_t>((n < 8 ? low : high) & 255U));
}

template <>
struct MatmulFormat<DType::kIQ4_XS> {
    using Packed = PackedFormat<DType::kIQ4_XS>;
    static constexpr bool kHasTable = true;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupSteps = 2;

    NibbleCodes codes;
    uint4 scales;     // 8 of row g, 8 of row g + 8
    std::uint32_t d;  // of both

    __device__ static float level(int n) { return iq4_table_level(n); }
    __device__ void load(const std::uint8_t* record, int lane) {
        using Layout = RecordLayout<Packed>;
        codes.load(record, lane);
        scales = load_weights16(record + Layout::kScales + 16 * (lane / 4));
        d = load_weights4(record + Layout::kD + 4 * (lane / 4));
    }
    __device__ Fragment fragment(const LaneTable& table, int step) const {
        return codes.look_up(table, step);
    }
    __device__ ScalePair scale(int group) const {
        return {low_half_to_float(d) * signed_byte(word_of(scales, group / 4), group % 4),
                high_half_to_float(d) * signed_byte(word_of(scales, 2 + group / 4), group % 4)};
    }
};

template <>
struct MatmulFormat<DType::kQ6_K> {
    using Packed = PackedFormat<DType::kQ6_K>;
    static constexpr bool kHasTable = true;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupSteps = 1;

    NibbleCodes codes;
    uint4 high[2];    // two slabs each
    uint4 scales[2];  // 16 of row g, 16 of row g + 8
    std::uint32_t d;

    __device__ static float level(int n) { return static_cast<float>(n - 32 - 1024); }
    __device__ void load(const std::uint8_t* record, int lane) {
        using Layout = RecordLayout<Packed>;
        codes.load(record, lane);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            high[i] = load_weights16(record + Layout::kHigh + 512 * i + 16 * lane);
            scales[i] = load_weights16(record + Layout::kScales + 32 * (lane / 4) + 16 * i);
        }
        d = load_weights4(record + Layout::kD + 4 * (lane / 4));
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
        return {low_half_to_float(d) * signed_byte(word_of(scales[0], group / 4), group % 4),
                high_half_to_float(d) * signed_byte(word_of(scales[1], group / 4), group % 4)};
    }
};

/// Scales and minima of rows g and g + 8.
struct K4Scales {
    uint4 scales[2];  // of a row: 8 scales, 8 minima
    uint2 d;          // d of both, dmin of both
    template <class Packed>
    __device__ void load(const std::uint8_t* record, int lane) {
        using Layout = RecordLayout<Packed>;
#pragma unroll
        for (int i = 0; i < 2; ++i)
            scales[i] = load_weights16(record + Layout::kScales + 32 * (lane / 4) + 16 * i);
        d = load_weights8(record + Layout::kD + 8 * (lane / 4));
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
struct MatmulFormat<DType::kQ4_K> {
    using Packed = PackedFormat<DType::kQ4_K>;
    static constexpr bool kHasTable = true;
    static constexpr bool kHasMinimum = true;
    static constexpr int kGroupSteps = 2;

    NibbleCodes codes;
    K4Scales scales;

    __device__ static float level(int n) { return static_cast<float>(n); }
    __device__ void load(const std::uint8_t* record, int lane) {
        codes.load(record, lane);
        scales.load<Packed>(record, lane);
    }
    __device__ Fragment fragment(const LaneTable& table, int step) const {
        return codes.look_up(table, step);
    }
    __device__ ScalePair scale(int group) const { return scales.scale(group); }
    __device__ ScalePair minimum(int group) const { return scales.minimum(group); }
};

template <>
struct MatmulFormat<DType::kQ5_K> {
    using Packed = PackedFormat<DType::kQ5_K>;
    static constexpr bool kHasTable = true;
    static constexpr bool kHasMinimum = true;
    static constexpr int kGroupSteps = 2;

    NibbleCodes codes;
    uint4 high;  // a word per slab
    K4Scales scales;

    __device__ static float level(int n) { return static_cast<float>(n - 1024); }
    __device__ void load(const std::uint8_t* record, int lane) {
        codes.load(record, lane);
        high = load_weights16(record + RecordLayout<Packed>::kHigh + 16 * lane);
        scales.load<Packed>(record, lane);
    }
    __device__ Fragment fragment(const LaneTable& table, int step) const {
        Fragment f = codes.look_up(table, step);
        const std::uint32_t word = word_of(high, step / 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int shift = 4 * (step % 4) + i - 4;
            const std::uint32_t bits = shift < 0 ? word << -shift : word >> shift;
            f.a[i] = add_pairs(f.a[i], (bits & 0x00100010U) | 0x64006400U);
        }
        return f;
    }
    __device__ ScalePair scale(int group) const {
        return scales.scale(group);
    }
    __device__ ScalePair minimum(int group) const {
        return scales.minimum(group);
    }
};

/// Eight binary16 scales of rows g and g + 8.
struct HalfScales {
    uint4 scales[2];
    template <class Packed>
    __device__ void load(const std::uint8_t* record, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            scales[i] =
                load_weights16(record + RecordLayout<Packed>::kScales + 32 * (lane / 4) + 16 * i);
    }
    __device__ ScalePair scale(int group) const {
        const std::uint32_t low = word_of(scales[0], group / 2);
        const std::uint32_t high = word_of(scales[1], group / 2);
        if (group % 2 == 0) return {low_half_to_float(low), low_half_to_float(high)};
        return {high_half_to_float(low), high_half_to_float(high)};
    }
};

template <DType kType>
struct NibbleBlocks32 {
    using Packed = PackedFormat<kType>;
    static constexpr bool kHasTable = true;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupSteps = 2;

    NibbleCodes codes;
    HalfScales scales;

    __device__ static float level(int n) {
        return kType == DType::kQ4_0 ? static_cast<float>(n - 8) : iq4_table_level(n);
    }
    __device__ void load(const std::uint8_t* record, int lane) {
        codes.load(record, lane);
        scales.load<Packed>(record, lane);
    }
    __device__ Fragment fragment(const LaneTable& table, int step) const {
        return codes.look_up(table, step);
    }
    __device__ ScalePair scale(int group) const { return scales.scale(group); }
};
template <>
struct MatmulFormat<DType::kQ4_0> : NibbleBlocks32<DType::kQ4_0> {};
template <>
struct MatmulFormat<DType::kIQ4_NL> : NibbleBlocks32<DType::kIQ4_NL> {};

template <>
struct MatmulFormat<DType::kQ8_0> {
    using Packed = PackedFormat<DType::kQ8_0>;
    static constexpr bool kHasTable = false;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupSteps = 2;

    uint4 codes[8];  // two steps each
    HalfScales scales;

    __device__ void load(const std::uint8_t* record, int lane) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            codes[i] = load_weights16(record + 512 * i + 16 * lane);
        scales.load<Packed>(record, lane);
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
    __device__ ScalePair scale(int group) const {
        return scales.scale(group);
    }
};

}  // namespace kernels::cuda

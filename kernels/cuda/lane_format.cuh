// How a stretch of a packed row (lane_order.h) becomes words of four signed bytes and scales: one
// struct per type, for matmul_dp4a and matmul_hmma.
//
//     weight = scale(half) * (byte - kOffset) - minimum()
//
// A lane holds 128 inputs of its row and consumes them slab by slab: everything speaks of the slab
// in front, `next_slab` brings the next one there. Registers are never indexed at run time, and a
// loop over slabs need not be unrolled.
//
// Instructions of a slab of 32 weights before any product: nibbles 12, with a table 52, a fifth bit
// 16 more, fifth and sixth 24 more, bytes none; then 4 to 8 for a scale, and 12 moves where the
// loop over slabs is not unrolled.
#pragma once

#include "kernels/cuda/lane_order.h"
#include "kernels/cuda/volta_core.cuh"

namespace kernels::cuda {

inline constexpr int kSlabWords = 8;  // of four inputs each

__device__ inline float half_word_to_float(std::uint32_t word) {
    return half_to_float(static_cast<std::uint16_t>(word & 0xFFFFU));
}
__device__ inline float signed_low_byte(std::uint32_t word) {
    return static_cast<float>(static_cast<std::int8_t>(word & 255U));
}
__device__ inline float unsigned_low_byte(std::uint32_t word) {
    return static_cast<float>(word & 255U);
}

/// Where a lane's share of a record lies.
struct LaneRecord {
    const std::uint8_t* record;
    int lane;
    int stretch;  // of the record
};

/// Four slabs of nibbles.
template <class Layout>
struct LaneNibbles {
    uint4 slabs[kStretchSlabs];
    __device__ void load(const LaneRecord& from) {
#pragma unroll
        for (int i = 0; i < kStretchSlabs; ++i)
            slabs[i] = load_weights16(from.record +
                                      Layout::kSlabBytes * (kStretchSlabs * from.stretch + i) +
                                      16 * from.lane);
    }
    __device__ void next_slab() {
#pragma unroll
        for (int i = 0; i + 1 < kStretchSlabs; ++i)
            slabs[i] = slabs[i + 1];
    }
    __device__ void words(std::uint32_t (&w)[kSlabWords]) const {
        const std::uint32_t q[4] = {slabs[0].x, slabs[0].y, slabs[0].z, slabs[0].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            w[i] = q[i] & 0x0F0F0F0FU;
            w[4 + i] = q[i] >> 4 & 0x0F0F0F0FU;
        }
    }
    /// Through the table of levels: nibbles select bytes of one half of it, bit 3 the half.
    __device__ void levels(std::uint32_t (&w)[kSlabWords]) const {
        const std::uint32_t q[4] = {slabs[0].x, slabs[0].y, slabs[0].z, slabs[0].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const std::uint32_t place = q[i] & 0x77777777U;
            const std::uint32_t half = 0x32103210U | (q[i] >> 1 & 0x44444444U);
            // Of four nibbles each, in the order of the bits: inputs j and 16 + j take turns.
            const std::uint32_t first =
                __byte_perm(__byte_perm(kIq4Levels[0], kIq4Levels[1], place),
                            __byte_perm(kIq4Levels[2], kIq4Levels[3], place), half);
            const std::uint32_t second =
                __byte_perm(__byte_perm(kIq4Levels[0], kIq4Levels[1], place >> 16),
                            __byte_perm(kIq4Levels[2], kIq4Levels[3], place >> 16), half >> 16);
            w[i] = __byte_perm(first, second, 0x6420U);
            w[4 + i] = __byte_perm(first, second, 0x7531U);
        }
    }
};

/// One binary16 scale per slab, four in two words.
template <class Layout>
struct LaneHalfScales {
    uint2 scales;
    __device__ void load(const LaneRecord& from) {
        scales = load_weights8(from.record + Layout::kScales +
                               kLaneRows * Layout::kStretchScaleBytes * from.stretch +
                               Layout::kStretchScaleBytes * from.lane);
    }
    __device__ void next_slab() {
        scales.x = scales.x >> 16 | scales.y << 16;
        scales.y >>= 16;
    }
    __device__ float scale(int) const { return half_word_to_float(scales.x); }
};

template <DType>
struct LaneFormat;

template <>
struct LaneFormat<DType::kIQ4_XS> {
    using Layout = LaneLayout<PackedFormat<DType::kIQ4_XS>>;
    static constexpr bool kIsSigned = true;  // bytes above 127 are negative
    static constexpr int kOffset = 0;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupWords = 8;  // that share a scale

    LaneNibbles<Layout> codes;
    std::uint32_t scales;
    float d;

    __device__ void load(const LaneRecord& from) {
        codes.load(from);
        scales = load_weights4(from.record + Layout::kScales + 4 * kLaneRows * from.stretch +
                               4 * from.lane);
        d = half_word_to_float(
            *reinterpret_cast<const std::uint16_t*>(from.record + Layout::kD + 2 * from.lane));
    }
    __device__ void next_slab() {
        codes.next_slab();
        scales >>= 8;
    }
    __device__ void words(std::uint32_t (&w)[kSlabWords]) const { codes.levels(w); }
    __device__ float scale(int) const { return d * signed_low_byte(scales); }
};

template <>
struct LaneFormat<DType::kQ6_K> {
    using Layout = LaneLayout<PackedFormat<DType::kQ6_K>>;
    static constexpr bool kIsSigned = false;
    static constexpr int kOffset = 32;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupWords = 4;

    LaneNibbles<Layout> codes;
    uint4 high[2];
    uint2 scales;
    float d;

    __device__ void load(const LaneRecord& from) {
        codes.load(from);
#pragma unroll
        for (int i = 0; i < 2; ++i)
            high[i] = load_weights16(from.record + Layout::kHigh +
                                     16 * kLaneRows * (2 * from.stretch + i) + 16 * from.lane);
        scales = load_weights8(from.record + Layout::kScales + 8 * kLaneRows * from.stretch +
                               8 * from.lane);
        d = half_word_to_float(
            *reinterpret_cast<const std::uint16_t*>(from.record + Layout::kD + 2 * from.lane));
    }
    __device__ void next_slab() {
        codes.next_slab();
        high[0] = {high[0].z, high[0].w, high[1].x, high[1].y};
        high[1].x = high[1].z;
        high[1].y = high[1].w;
        scales.x = scales.x >> 16 | scales.y << 16;
        scales.y >>= 16;
    }
    __device__ void words(std::uint32_t (&w)[kSlabWords]) const {
        codes.words(w);
#pragma unroll
        for (int i = 0; i < kSlabWords; ++i) {
            const std::uint32_t bits = i < 4 ? high[0].x : high[0].y;
            const int shift = 2 * (i % 4) - 4;
            w[i] |= (shift < 0 ? bits << -shift : bits >> shift) & 0x30303030U;
        }
    }
    __device__ float scale(int half) const {
        return d * signed_low_byte(scales.x >> (8 * half));
    }
};

/// Scales and minima, a word each.
template <DType kType>
struct LaneK4 {
    using Layout = LaneLayout<PackedFormat<kType>>;
    static constexpr bool kIsSigned = false;
    static constexpr int kOffset = 0;
    static constexpr bool kHasMinimum = true;
    static constexpr int kGroupWords = 8;

    LaneNibbles<Layout> codes;
    uint2 scales;
    std::uint32_t d;

    __device__ void load(const LaneRecord& from) {
        codes.load(from);
        scales = load_weights8(from.record + Layout::kScales + 8 * kLaneRows * from.stretch +
                               8 * from.lane);
        d = load_weights4(from.record + Layout::kD + 4 * from.lane);
    }
    __device__ void next_slab() {
        codes.next_slab();
        scales.x >>= 8;
        scales.y >>= 8;
    }
    __device__ void words(std::uint32_t (&w)[kSlabWords]) const { codes.words(w); }
    __device__ float scale(int) const {
        return half_word_to_float(d) * unsigned_low_byte(scales.x);
    }
    __device__ float minimum() const {
        return half_word_to_float(d >> 16) * unsigned_low_byte(scales.y);
    }
};

template <>
struct LaneFormat<DType::kQ4_K> : LaneK4<DType::kQ4_K> {};

template <>
struct LaneFormat<DType::kQ5_K> : LaneK4<DType::kQ5_K> {
    uint4 high;  // a word per slab

    __device__ void load(const LaneRecord& from) {
        LaneK4<DType::kQ5_K>::load(from);
        high = load_weights16(from.record + Layout::kHigh + 16 * kLaneRows * from.stretch +
                              16 * from.lane);
    }
    __device__ void next_slab() {
        LaneK4<DType::kQ5_K>::next_slab();
        high = {high.y, high.z, high.w, high.w};
    }
    __device__ void words(std::uint32_t (&w)[kSlabWords]) const {
        codes.words(w);
#pragma unroll
        for (int i = 0; i < kSlabWords; ++i)
            w[i] |= (i < 4 ? high.x << (4 - i) : high.x >> (i - 4)) & 0x10101010U;
    }
};

template <DType kType>
struct LaneNibbles32 {
    using Layout = LaneLayout<PackedFormat<kType>>;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupWords = 8;

    LaneNibbles<Layout> codes;
    LaneHalfScales<Layout> side;

    __device__ void load(const LaneRecord& from) {
        codes.load(from);
        side.load(from);
    }
    __device__ void next_slab() {
        codes.next_slab();
        side.next_slab();
    }
    __device__ float scale(int half) const { return side.scale(half); }
};

template <>
struct LaneFormat<DType::kQ4_0> : LaneNibbles32<DType::kQ4_0> {
    static constexpr bool kIsSigned = false;
    static constexpr int kOffset = 8;
    __device__ void words(std::uint32_t (&w)[kSlabWords]) const { codes.words(w); }
};

template <>
struct LaneFormat<DType::kIQ4_NL> : LaneNibbles32<DType::kIQ4_NL> {
    static constexpr bool kIsSigned = true;
    static constexpr int kOffset = 0;
    __device__ void words(std::uint32_t (&w)[kSlabWords]) const { codes.levels(w); }
};

template <>
struct LaneFormat<DType::kQ8_0> {
    using Layout = LaneLayout<PackedFormat<DType::kQ8_0>>;
    static constexpr bool kIsSigned = true;
    static constexpr int kOffset = 0;
    static constexpr bool kHasMinimum = false;
    static constexpr int kGroupWords = 8;
    static constexpr int kParts = 2 * kStretchSlabs;

    uint4 parts[kParts];  // of sixteen inputs
    LaneHalfScales<Layout> side;

    __device__ void load(const LaneRecord& from) {
#pragma unroll
        for (int i = 0; i < kParts; ++i)
            parts[i] = load_weights16(from.record + 16 * kLaneRows * (kParts * from.stretch + i) +
                                      16 * from.lane);
        side.load(from);
    }
    __device__ void next_slab() {
#pragma unroll
        for (int i = 0; i + 2 < kParts; ++i)
            parts[i] = parts[i + 2];
        side.next_slab();
    }
    __device__ void words(std::uint32_t (&w)[kSlabWords]) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            w[4 * i] = parts[i].x;
            w[4 * i + 1] = parts[i].y;
            w[4 * i + 2] = parts[i].z;
            w[4 * i + 3] = parts[i].w;
        }
    }
    __device__ float scale(int half) const {
        return side.scale(half);
    }
};

}  // namespace kernels::cuda

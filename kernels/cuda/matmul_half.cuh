// Weights in binary16: codes times scales, less minima, with one power of two per matrix
// (`unit`, which puts the largest weight below 2^15).
//
// Scales of a byte are made without leaving binary16: 0x6400 | n is 1024 + n, and what is taken
// away from it is exact; d times `unit` is made once a record. So a pair of equal scales takes
// three instructions, where the way through f32 takes six.
//
// d times `unit` is held at the largest binary16: a d that exceeds it has scales of zero alone,
// and an infinite one would make them no number.
#pragma once

#include "kernels/cuda/matmul_format.cuh"

namespace kernels::cuda {

__device__ inline std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}
__device__ inline std::uint32_t multiply_add_pairs(std::uint32_t a, std::uint32_t b,
                                                   std::uint32_t c) {
    std::uint32_t sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}
/// Twice the same binary16.
__device__ inline std::uint32_t twice(float value) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(value));
    return pair;
}
__device__ inline std::uint32_t twice_bounded(float value) {
    constexpr float kLargest = 65504.0F;
    return twice(fminf(fmaxf(value, -kLargest), kLargest));
}

/// Byte `index` of a word, twice, plus 1024, in binary16.
__device__ inline std::uint32_t byte_above_1024(std::uint32_t word, int index) {
    constexpr std::uint32_t kExponent = 0x64646464U;
    return __byte_perm(word, kExponent, 0x4040U | static_cast<std::uint32_t>(index) * 0x0101U);
}
__device__ inline std::uint32_t unsigned_byte_pair(std::uint32_t word, int index) {
    constexpr std::uint32_t kMinus1024 = 0xe400e400U;
    return add_pairs(byte_above_1024(word, index), kMinus1024);
}
__device__ inline std::uint32_t signed_byte_pair(std::uint32_t word, int index) {
    constexpr std::uint32_t kMinus1152 = 0xe480e480U;  // the sign bit turned over is 128 more
    return add_pairs(byte_above_1024(word ^ 0x80808080U, index), kMinus1152);
}

/// Of rows g and g + 8, each twice.
struct HalfPair {
    std::uint32_t low, high;
};

/// What a record's groups multiply with; made once a record.
template <class Format>
struct HalfScales {  // types whose scales are binary16 already
    float unit;
    __device__ HalfScales(const Format&, float weight_unit) : unit(weight_unit) {}
    __device__ HalfPair scale(const Format& record, int group) const {
        const ScalePair s = record.scale(group);
        return {twice(s.low * unit), twice(s.high * unit)};
    }
};

template <>
struct HalfScales<MatmulFormat<DType::kIQ4_XS>> {
    using Format = MatmulFormat<DType::kIQ4_XS>;
    HalfPair d;
    __device__ HalfScales(const Format& record, float unit)
        : d{twice_bounded(low_half_to_float(record.side.d) * unit),
            twice_bounded(high_half_to_float(record.side.d) * unit)} {}
    __device__ HalfPair scale(const Format& record, int group) const {
        const uint4& s = record.side.scales;
        return {multiply_pairs(signed_byte_pair(word_of(s, group / 4), group % 4), d.low),
                multiply_pairs(signed_byte_pair(word_of(s, 2 + group / 4), group % 4), d.high)};
    }
};

template <>
struct HalfScales<MatmulFormat<DType::kQ6_K>> {
    using Format = MatmulFormat<DType::kQ6_K>;
    HalfPair d;
    __device__ HalfScales(const Format& record, float unit)
        : d{twice_bounded(low_half_to_float(record.side.d) * unit),
            twice_bounded(high_half_to_float(record.side.d) * unit)} {}
    __device__ HalfPair scale(const Format& record, int group) const {
        const uint4(&s)[2] = record.side.scales;
        return {multiply_pairs(signed_byte_pair(word_of(s[0], group / 4), group % 4), d.low),
                multiply_pairs(signed_byte_pair(word_of(s[1], group / 4), group % 4), d.high)};
    }
};

/// Q4_K and Q5_K; minima are what is added, so that they are negative.
template <class Format>
struct HalfScalesAndMinima {
    HalfPair d, d_minimum;
    __device__ HalfScalesAndMinima(const Format& record, float unit)
        : d{twice_bounded(low_half_to_float(record.side.d.x) * unit),
            twice_bounded(high_half_to_float(record.side.d.x) * unit)},
          d_minimum{twice_bounded(-low_half_to_float(record.side.d.y) * unit),
                    twice_bounded(-high_half_to_float(record.side.d.y) * unit)} {}
    __device__ HalfPair scale(const Format& record, int group) const {
        return of(record, group / 4, group % 4, d);
    }
    __device__ HalfPair minimum(const Format& record, int group) const {
        return of(record, 2 + group / 4, group % 4, d_minimum);
    }

private:
    static __device__ HalfPair of(const Format& record, int word, int byte, const HalfPair& d) {
        const uint4(&s)[2] = record.side.scales;
        return {multiply_pairs(unsigned_byte_pair(word_of(s[0], word), byte), d.low),
                multiply_pairs(unsigned_byte_pair(word_of(s[1], word), byte), d.high)};
    }
};
template <>
struct HalfScales<MatmulFormat<DType::kQ4_K>> : HalfScalesAndMinima<MatmulFormat<DType::kQ4_K>> {
    using HalfScalesAndMinima::HalfScalesAndMinima;
};
template <>
struct HalfScales<MatmulFormat<DType::kQ5_K>> : HalfScalesAndMinima<MatmulFormat<DType::kQ5_K>> {
    using HalfScalesAndMinima::HalfScalesAndMinima;
};

// What a record has beside its codes is asked for again in place where two sets do not fit: the
// half that pairs 0 to 3 need as soon as they are through, the other half at the end. `d` is made
// into HalfScales at the beginning.

inline constexpr int kHalfPairs = kRecordPairs / 2;

/// Words `first` and `first + 2` of v, from 16 bytes at `from`.
__device__ inline void load_word_of_both(uint4& v, const std::uint8_t* from, int first,
                                         int is_there) {
    load_weights(first == 0 ? v.x : v.y, from + 4 * first, is_there);
    load_weights(first == 0 ? v.z : v.w, from + 4 * first + 8, is_there);
}
/// The words of half `half` of v.
__device__ inline void load_half(uint4& v, const std::uint8_t* from, int half, int is_there) {
    uint2 two = half == 0 ? uint2{v.x, v.y} : uint2{v.z, v.w};
    load_weights(two, from + 8 * half, is_there);
    if (half == 0) {
        v.x = two.x;
        v.y = two.y;
    } else {
        v.z = two.x;
        v.w = two.y;
    }
}

__device__ inline void reload_half(Iq4XsSide& side, const RecordSource& from, int lane, int half) {
    using Layout = Iq4XsSide::Layout;
    load_word_of_both(side.scales, from.record + Layout::kScales + 16 * (lane / 4), half,
                      from.is_there);
    if (half == 0) load_weights(side.d, from.record + Layout::kD + 4 * (lane / 4), from.is_there);
}
__device__ inline void reload_half(Q6KSide& side, const RecordSource& from, int lane, int half) {
    using Layout = Q6KSide::Layout;
#pragma unroll
    for (int i = 0; i < 2; ++i)
        load_half(side.scales[i], from.record + Layout::kScales + 32 * (lane / 4) + 16 * i, half,
                  from.is_there);
    if (half == 0) load_weights(side.d, from.record + Layout::kD + 4 * (lane / 4), from.is_there);
}
template <DType kType>
__device__ inline void reload_half(K4Side<kType>& side, const RecordSource& from, int lane,
                                   int half) {
    using Layout = typename K4Side<kType>::Layout;
#pragma unroll
    for (int i = 0; i < 2; ++i)
        load_word_of_both(side.scales[i], from.record + Layout::kScales + 32 * (lane / 4) + 16 * i,
                          half, from.is_there);
    if (half == 0) load_weights(side.d, from.record + Layout::kD + 8 * (lane / 4), from.is_there);
}
__device__ inline void reload_half(Q5KSide& side, const RecordSource& from, int lane, int half) {
    reload_half<DType::kQ5_K>(side, from, lane, half);
    load_half(side.high, from.record + Q5KSide::Layout::kHigh + 16 * lane, half, from.is_there);
}
template <DType kType>
__device__ inline void reload_half(HalfSide<kType>& side, const RecordSource& from, int lane,
                                   int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
        load_half(
            side.scales[i],
            from.record + RecordLayout<PackedFormat<kType>>::kScales + 32 * (lane / 4) + 16 * i,
            half, from.is_there);
}

/// Codes of step `step` to weights, in place.
template <class Format>
__device__ inline void scale_codes(Fragment& f, const Format& record,
                                   const HalfScales<Format>& scales, int step) {
    const int group = step / Format::kGroupSteps;
    const HalfPair scale = scales.scale(record, group);
    HalfPair minimum{};
    if constexpr (Format::kHasMinimum) minimum = scales.minimum(record, group);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // rows g, g + 8, g, g + 8
        const std::uint32_t s = i % 2 == 0 ? scale.low : scale.high;
        if constexpr (Format::kHasMinimum)
            f.a[i] = multiply_add_pairs(f.a[i], s, i % 2 == 0 ? minimum.low : minimum.high);
        else
            f.a[i] = multiply_pairs(f.a[i], s);
    }
}

}  // namespace kernels::cuda

// Conversions between float and its two 16-bit relatives, bit-exact and free of branches on the
// rounding mode: binary16 with subnormals, and bfloat16, the upper half of a float.
//
//     f32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
//     bf16  s eeeeeeee mmmmmmm
//     f16   s    eeeee mmmmmmmmmm
//
// Scalar on purpose: one value per block. Loops over whole rows have vector instructions for this.
#pragma once

#include <bit>
#include <cstdint>

namespace kernels {

/// Exact: every binary16 value is a float. A NaN stays a NaN with its payload, and becomes quiet.
inline float f16_to_f32(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000U) << 16;
    const std::uint32_t exponent = (half >> 10) & 31U;
    const std::uint32_t mantissa = half & 0x3ffU;
    if (exponent == 0) {  // zero or subnormal: the mantissa counts units of 2^-24
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
    }
    if (exponent == 31) {
        const std::uint32_t quiet = mantissa == 0 ? 0U : 0x400000U;
        return std::bit_cast<float>(sign | 0x7f800000U | quiet | (mantissa << 13));
    }
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

/// Rounds to nearest, ties to even; magnitudes from 65520 on become infinite.
inline std::uint16_t f32_to_f16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000U) {
        half = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
    } else if (magnitude >= 0x477ff000U) {  // 65520, half way between 65504 and 2^16
        half = 0x7c00U;
    } else if (magnitude < 0x38800000U) {  // below 2^-14: subnormal
        // Beside 0.5 the last place of a float is 2^-24, the unit of a subnormal half: the
        // addition rounds for us.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
    } else {
        const std::uint32_t odd = (magnitude >> 13) & 1U;
        half = (magnitude + 0xfffU + odd - (112U << 23)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
}

inline float bf16_to_f32(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

/// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
inline std::uint16_t f32_to_bf16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 64U);
    return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace kernels

// The power of two that brings values into the range of binary16: dividing by it is exact.
#pragma once

#include "kernels/cuda/device.cuh"

namespace kernels::cuda {

inline constexpr int kScaledExponent = 13;  // of the largest |v| after scaling
inline constexpr int kFloatBias = 127;

__device__ inline float power_of_two(int biased_exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(biased_exponent) << 23);
}

struct PowerOfTwo {
    float value, inverse;
};
/// What divides values whose largest has these bits. Exponents stay inside those of normal numbers;
/// rows with infinities stay as they are.
__device__ inline PowerOfTwo unit_of(std::uint32_t largest_bits) {
    int exponent = static_cast<int>(largest_bits >> 23);
    exponent = exponent == 255 ? kFloatBias + kScaledExponent : max(exponent, kScaledExponent + 1);
    return {power_of_two(exponent - kScaledExponent),
            power_of_two(2 * kFloatBias + kScaledExponent - exponent)};
}

}  // namespace kernels::cuda

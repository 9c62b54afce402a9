// What the searching encoders share: rounding, clamping and the best fit of a scale.
//
// For levels v_i and weights w_i the best scale is s = A / B with A = sum w x v, B = sum w v^2, and
// it lowers the error sum w (x - s v)^2 by A^2 / B. Candidates are compared by that ratio, written
// as A*A > best * B so that nothing is divided.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kernels {

/// Magnitudes below this count as an all-zero block.
inline constexpr float kNegligible = 1e-15F;

/// Nearest integer, ties to even, clamped to low..high; a NaN gives `low`. No branch and no call,
/// so that loops over it become vector code.
inline int round_clamped(float value, int low, int high) {
    const auto least = static_cast<float>(low);
    const auto most = static_cast<float>(high);
    const float above = value > least ? value : least;
    const float inside = above < most ? above : most;
    // Beside 1.5 * 2^23 the last place of a float is 1: the addition rounds for us.
    constexpr float kShift = 0x1.8p23F;
    return std::bit_cast<std::int32_t>(inside + kShift) - std::bit_cast<std::int32_t>(kShift);
}

/// The value of largest magnitude with its sign, the first one on ties.
inline float signed_extreme(const float* values, int count) {
    float extreme = 0.0F;
    float magnitude = 0.0F;
    for (int i = 0; i < count; ++i) {
        const float a = std::fabs(values[i]);
        if (a > magnitude) {
            magnitude = a;
            extreme = values[i];
        }
    }
    return extreme;
}

/// 1 / x, or 0 for 0.
inline float inverse_or_zero(float x) {
    return x == 0.0F ? 0.0F : 1.0F / x;
}

inline float sum_of_squares(const float* x, int count) {
    float sum = 0.0F;
    for (int i = 0; i < count; ++i)
        sum += x[i] * x[i];
    return sum;
}

}  // namespace kernels

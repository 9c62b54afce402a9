// Rows of activations as the integer kernels read them: int8 per 32 values with an f32 scale.
//
//   record of one row      q[K] i8 │ d[G] │ d_sum[G] │ minus_sum[G] │ d_sum16[2G] │ minus_sum16[2G]
//   G = K / 32 groups                f32    f32        i32            f32           i32
//
// The sums serve weights with an offset or a minimum: sum of (code - offset) * q
// = sum of code * q + offset * minus_sum, exactly, in integers; minimum * d * sum of q in f32.
// The ones per 16 values serve the formats whose scales cover 16 values (Q2_K, Q3_K, Q6_K).
//
// Source: the idea is ggml's Q8_1; unlike there, d is f32 and the sums are those of the codes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernels::cpu {

inline constexpr int kGroupValues = 32;

/// Byte offsets inside a record of rows of `k` values; k is a multiple of 32.
struct ActivationLayout {
    std::size_t d = 0;
    std::size_t d_sum = 0;
    std::size_t minus_sum = 0;
    std::size_t d_sum16 = 0;
    std::size_t minus_sum16 = 0;
    std::size_t record_bytes = 0;  // distance of rows, a multiple of 64

    static constexpr ActivationLayout of(std::int64_t k) {
        const auto values = static_cast<std::size_t>(k);
        const std::size_t plane = values / kGroupValues * sizeof(float);
        ActivationLayout layout;
        layout.d = values;
        layout.d_sum = layout.d + plane;
        layout.minus_sum = layout.d_sum + plane;
        layout.d_sum16 = layout.minus_sum + plane;
        layout.minus_sum16 = layout.d_sum16 + 2 * plane;
        layout.record_bytes = (layout.minus_sum16 + 2 * plane + 63) / 64 * 64;
        return layout;
    }
};

}  // namespace kernels::cpu

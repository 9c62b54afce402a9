// IQ4_NL and IQ4_XS: sixteen fixed levels, one scale per 32 values.
//
// The weight of a value is importance * sqrt(sigma2 + x^2) with sigma2 twice the mean square of the
// block, or x^2 without an importance matrix.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "kernels/quant/encode_search.h"
#include "kernels/quant/half.h"
#include "kernels/quant/search.h"

namespace kernels {
namespace {

/// Index of the level nearest to each of the 32 values x * inverse_scale, the higher one in the
/// middle between two; a NaN gets the last. Counts the borders a value is not below: fifteen vector
/// comparisons instead of a search with branches.
void nearest_levels(const float* x, float inverse_scale, std::int32_t (&index)[32]) {
    float scaled[32];
    for (int i = 0; i < 32; ++i) {
        scaled[i] = x[i] * inverse_scale;
        index[i] = 0;
    }
    for (std::size_t level = 0; level < 15; ++level) {
        const float border = 0.5F * static_cast<float>(kIq4Levels[level] + kIq4Levels[level + 1]);
        for (int i = 0; i < 32; ++i)
            index[i] += scaled[i] < border ? 0 : 1;
    }
}

struct Fit {
    float cross;   // A = sum w x level
    float square;  // B = sum w level^2
};

Fit fit_levels(const float* x, const float* weight, float inverse_scale) {
    std::int32_t index[32];
    nearest_levels(x, inverse_scale, index);
    Fit fit{0.0F, 0.0F};
    for (int i = 0; i < 32; ++i) {
        const auto level = static_cast<float>(kIq4Levels[static_cast<std::size_t>(index[i])]);
        fit.cross += weight[i] * x[i] * level;
        fit.square += weight[i] * level * level;
    }
    return fit;
}

/// The scale of one sub-block of 32.
float best_scale(const float* x, const float* weight) {
    const float extreme = signed_extreme(x, 32);
    if (std::fabs(extreme) < kNegligible) return 0.0F;
    const Fit first = fit_levels(x, weight, 1.0F / (extreme / 127.0F));
    float scale = first.square > 0.0F ? first.cross / first.square : 0.0F;
    float best = scale * first.cross;
    for (int step = -7; step <= 7; ++step) {
        const Fit fit = fit_levels(x, weight, static_cast<float>(step - 127) / extreme);
        if (fit.square > 0.0F && fit.cross * fit.cross > best * fit.square) {
            scale = fit.cross / fit.square;
            best = scale * fit.cross;
        }
    }
    return scale;
}

void weigh(const float* x, const float* importance, float sigma2, float* weight) {
    for (int i = 0; i < 32; ++i)
        weight[i] =
            importance != nullptr ? importance[i] * std::sqrt(sigma2 + x[i] * x[i]) : x[i] * x[i];
}

void store_levels(const float* x, float inverse_scale, std::uint8_t* qs) {
    std::int32_t index[32];
    nearest_levels(x, inverse_scale, index);
    for (int i = 0; i < 16; ++i)
        qs[i] = static_cast<std::uint8_t>(index[i] | (index[i + 16] << 4));
}

}  // namespace

void encode_block(const float* x, const float* importance, BlockIQ4_NL& block) {
    const float sigma2 = 2.0F * sum_of_squares(x, 32) / 32.0F;
    float weight[32];
    weigh(x, importance, sigma2, weight);
    const float scale = best_scale(x, weight);
    block.d = f32_to_f16(scale);
    store_levels(x, inverse_or_zero(scale), block.qs);
}

void encode_block(const float* x, const float* importance, BlockIQ4_XS& block) {
    const float sigma2 = 2.0F * sum_of_squares(x, 256) / 256.0F;
    float scales[8];
    for (int b = 0; b < 8; ++b) {
        float weight[32];
        const float* sub = x + 32 * b;
        weigh(sub, importance != nullptr ? importance + 32 * b : nullptr, sigma2, weight);
        scales[b] = best_scale(sub, weight);
    }
    const float d = -signed_extreme(scales, 8) / 32.0F;
    const float inverse_d = inverse_or_zero(d);
    block = {};
    block.d = f32_to_f16(d);
    for (int b = 0; b < 8; ++b) {
        const int scale = round_clamped(inverse_d * scales[b], -32, 31);
        store_levels(x + 32 * b, inverse_or_zero(d * static_cast<float>(scale)), block.qs + 16 * b);
        const int code = scale + 32;
        block.scales_l[b / 2] =
            static_cast<std::uint8_t>(block.scales_l[b / 2] | ((code & 15) << (4 * (b % 2))));
        block.scales_h = static_cast<std::uint16_t>(block.scales_h | ((code >> 4) << (2 * b)));
    }
}

}  // namespace kernels

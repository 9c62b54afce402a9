// Q6_K: sixteen groups of 16 values, levels -32..31, 8-bit group scales.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quant/encode_search.h"
#include "kernels/quant/half.h"
#include "kernels/quant/search.h"

namespace kernels {
namespace {

struct Fit {
    float cross;   // sum w x level
    float square;  // sum w level^2
};

Fit fit_levels(const float* x, const float* importance, float inverse_scale, int* levels) {
    Fit fit{0.0F, 0.0F};
    for (int i = 0; i < 16; ++i) {
        levels[i] = round_clamped(inverse_scale * x[i], -32, 31);
        const auto level = static_cast<float>(levels[i]);
        const float weight = importance != nullptr ? importance[i] : x[i] * x[i];
        fit.cross += weight * x[i] * level;
        fit.square += weight * level * level;
    }
    return fit;
}

/// Scale and levels of one group.
float best_scale(const float* x, const float* importance, int* levels) {
    const float extreme = signed_extreme(x, 16);
    if (std::fabs(extreme) < kNegligible) {
        std::fill_n(levels, 16, 0);
        return 0.0F;
    }
    const Fit first = fit_levels(x, importance, -32.0F / extreme, levels);
    float scale = first.square != 0.0F ? first.cross / first.square : 0.0F;
    float best = scale * first.cross;
    for (int step = -9; step <= 9; ++step) {
        if (step == 0) continue;
        int candidate[16];
        const float inverse = -(32.0F + 0.1F * static_cast<float>(step)) / extreme;
        const Fit fit = fit_levels(x, importance, inverse, candidate);
        if (fit.square > 0.0F && fit.cross * fit.cross > best * fit.square) {
            std::memcpy(levels, candidate, sizeof(candidate));
            scale = fit.cross / fit.square;
            best = scale * fit.cross;
        }
    }
    return scale;
}

void store_levels(const int (&levels)[256], BlockQ6_K& block) {
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128;
        const int quarter = i % 128 / 32;
        const int lane = i % 32;
        const int code = levels[i] + 32;
        std::uint8_t& low = block.ql[64 * half + 32 * (quarter % 2) + lane];
        low = static_cast<std::uint8_t>(low | ((code & 15) << (quarter < 2 ? 0 : 4)));
        std::uint8_t& high = block.qh[32 * half + lane];
        high = static_cast<std::uint8_t>(high | ((code >> 4) << (2 * quarter)));
    }
}

}  // namespace

void encode_block(const float* x, const float* importance, BlockQ6_K& block) {
    int levels[256];
    float scales[16];
    for (int g = 0; g < 16; ++g) {
        scales[g] = best_scale(x + 16 * g, importance != nullptr ? importance + 16 * g : nullptr,
                               levels + 16 * g);
    }
    block = {};
    const float extreme = signed_extreme(scales, 16);
    if (std::fabs(extreme) < kNegligible) return;
    const float inverse = -128.0F / extreme;
    block.d = f32_to_f16(1.0F / inverse);
    const float d = f16_to_f32(block.d);
    for (int g = 0; g < 16; ++g) {
        block.scales[g] = static_cast<std::int8_t>(round_clamped(inverse * scales[g], -128, 127));
        const float step = d * static_cast<float>(block.scales[g]);
        if (step == 0.0F) continue;
        for (int i = 16 * g; i < 16 * g + 16; ++i)
            levels[i] = round_clamped(x[i] / step, -32, 31);
    }
    store_levels(levels, block);
}

}  // namespace kernels

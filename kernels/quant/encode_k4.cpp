// Q4_K and Q5_K: eight sub-blocks of 32 with y = s * q - m, s and m coded in six bits each.
//
// Per sub-block a search over the inverse scale; each candidate's levels give a weighted least
// squares fit of s and m together. Then the eight scales (and minima) are coded relative to a
// super-block scale; with an importance matrix that coding is a small search, too.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "kernels/quant/encode_search.h"
#include "kernels/quant/half.h"
#include "kernels/quant/search.h"

namespace kernels {
namespace {

/// Candidate inverse scales are (start + step * k + level_max) / (largest - offset), k = 0..count.
struct Search {
    int level_max;
    float start, step;
    int count;
};
constexpr Search kPlainQ4{15, -1.0F, 0.1F, 20};
constexpr Search kPlainQ5{31, -0.5F, 0.1F, 15};
constexpr Search with_importance(int level_max) {
    return {level_max, -0.9F, 0.05F, 36};
}

struct SubBlock {
    float scale;  // s >= 0
    float min;    // m >= 0
    std::array<int, 32> levels;
};

float error_of(const float* x, const float* weight, float scale, float offset,
               const std::array<int, 32>& levels) {
    float error = 0.0F;
    for (std::size_t i = 0; i < 32; ++i) {
        const float diff = scale * static_cast<float>(levels[i]) + offset - x[i];
        error += weight[i] * (diff * diff);
    }
    return error;
}

SubBlock fit_sub_block(const float* x, const float* weight, const Search& search) {
    const auto [smallest, largest] = std::minmax_element(x, x + 32);
    float offset = std::min(0.0F, *smallest);  // of the best candidate so far
    SubBlock best{0.0F, -offset, {}};
    if (!(*largest > offset)) return best;

    float sum_w = 0.0F;
    float sum_wx = 0.0F;
    for (int i = 0; i < 32; ++i) {
        sum_w += weight[i];
        sum_wx += weight[i] * x[i];
    }
    const auto level_max = static_cast<float>(search.level_max);
    const float start_inverse = level_max / (*largest - offset);
    for (std::size_t i = 0; i < 32; ++i)
        best.levels[i] = round_clamped(start_inverse * (x[i] - offset), 0, search.level_max);
    best.scale = 1.0F / start_inverse;
    float best_error = error_of(x, weight, best.scale, offset, best.levels);

    for (int k = 0; k <= search.count; ++k) {
        const float inverse =
            (search.start + search.step * static_cast<float>(k) + level_max) / (*largest - offset);
        std::array<int, 32> levels;
        float sum_l = 0.0F;
        float sum_l2 = 0.0F;
        float sum_xl = 0.0F;
        for (std::size_t i = 0; i < 32; ++i) {
            levels[i] = round_clamped(inverse * (x[i] - offset), 0, search.level_max);
            const auto level = static_cast<float>(levels[i]);
            sum_l += weight[i] * level;
            sum_l2 += weight[i] * level * level;
            sum_xl += weight[i] * level * x[i];
        }
        const float determinant = sum_w * sum_l2 - sum_l * sum_l;
        if (!(determinant > 0.0F)) continue;
        float scale = (sum_w * sum_xl - sum_wx * sum_l) / determinant;
        float new_offset = (sum_l2 * sum_wx - sum_l * sum_xl) / determinant;
        if (new_offset > 0.0F) {
            new_offset = 0.0F;
            scale = sum_xl / sum_l2;
        }
        const float error = error_of(x, weight, scale, new_offset, levels);
        if (error < best_error) {
            best_error = error;
            best.levels = levels;
            best.scale = scale;
            offset = new_offset;
        }
    }
    best.min = -offset;
    return best;
}

/// Eight non-negative values as six-bit codes times `unit`.
struct Coded {
    float unit = 0.0F;
    std::array<std::uint8_t, 8> codes{};
};

Coded code_plain(const std::array<float, 8>& values) {
    const float largest = *std::max_element(values.begin(), values.end());
    const float inverse = largest > 0.0F ? 63.0F / largest : 0.0F;
    Coded coded{largest / 63.0F, {}};
    for (std::size_t j = 0; j < 8; ++j)
        coded.codes[j] = static_cast<std::uint8_t>(round_clamped(inverse * values[j], 0, 63));
    return coded;
}

/// Code by code, move to the level that is best for the others' fit, while that helps.
void refine_codes(const std::array<float, 8>& values, const std::array<float, 8>& weight,
                  float& cross, float& square, std::array<std::uint8_t, 8>& codes) {
    constexpr int kRoundsMax = 5;
    for (int round = 0; round < kRoundsMax; ++round) {
        bool changed = false;
        for (std::size_t j = 0; j < 8; ++j) {
            const auto level = static_cast<float>(codes[j]);
            float a = cross - weight[j] * values[j] * level;
            float b = square - weight[j] * level * level;
            if (!(a > 0.0F && b > 0.0F)) continue;
            const int moved = round_clamped(values[j] * b / a, 0, 63);
            if (moved == codes[j]) continue;
            a += weight[j] * values[j] * static_cast<float>(moved);
            b += weight[j] * static_cast<float>(moved) * static_cast<float>(moved);
            if (b > 0.0F && a * a * square > cross * cross * b) {
                codes[j] = static_cast<std::uint8_t>(moved);
                cross = a;
                square = b;
                changed = true;
            }
        }
        if (!changed) return;
    }
}

Coded code_weighted(const std::array<float, 8>& values, const std::array<float, 8>& weight) {
    const float largest = *std::max_element(values.begin(), values.end());
    if (!(largest >= kNegligible)) return {};
    float best_inverse = 63.0F / largest;
    const auto error_with = [&](float inverse) {
        const float scale = 1.0F / inverse;
        float error = 0.0F;
        for (std::size_t j = 0; j < 8; ++j) {
            const auto level = static_cast<float>(round_clamped(inverse * values[j], 0, 63));
            const float diff = values[j] - scale * level;
            error += weight[j] * diff * diff;
        }
        return error;
    };
    float best_error = error_with(best_inverse);
    for (int step = -4; step <= 4; ++step) {
        if (step == 0) continue;
        const float inverse = (63.0F + 0.1F * static_cast<float>(step)) / largest;
        const float error = error_with(inverse);
        if (error < best_error) {
            best_error = error;
            best_inverse = inverse;
        }
    }
    Coded coded;
    float cross = 0.0F;
    float square = 0.0F;
    for (std::size_t j = 0; j < 8; ++j) {
        coded.codes[j] = static_cast<std::uint8_t>(round_clamped(best_inverse * values[j], 0, 63));
        const auto level = static_cast<float>(coded.codes[j]);
        cross += weight[j] * values[j] * level;
        square += weight[j] * level * level;
    }
    refine_codes(values, weight, cross, square, coded.codes);
    coded.unit = square > 0.0F ? cross / square : 0.0F;
    return coded;
}

struct SuperBlock {
    std::array<SubBlock, 8> subs;
    Coded scales, mins;
};

SuperBlock fit_super_block(const float* x, const float* importance, int level_max) {
    SuperBlock result;
    std::array<float, 8> scales;
    std::array<float, 8> mins;
    std::array<float, 8> sums_w;
    const float sigma2 = 2.0F * sum_of_squares(x, 256) / 256.0F;
    for (std::size_t j = 0; j < 8; ++j) {
        const float* sub = x + 32 * j;
        const float rms = std::sqrt(sum_of_squares(sub, 32) / 32.0F);
        float weight[32];
        float sum_w = 0.0F;
        for (std::size_t i = 0; i < 32; ++i) {
            weight[i] = importance != nullptr
                            ? importance[32 * j + i] * std::sqrt(sigma2 + sub[i] * sub[i])
                            : rms + std::fabs(sub[i]);
            sum_w += weight[i];
        }
        const Search search = importance != nullptr ? with_importance(level_max)
                              : level_max == 15     ? kPlainQ4
                                                    : kPlainQ5;
        result.subs[j] = fit_sub_block(sub, weight, search);
        scales[j] = result.subs[j].scale;
        mins[j] = result.subs[j].min;
        sums_w[j] = sum_w;
    }
    result.scales = importance != nullptr ? code_weighted(scales, sums_w) : code_plain(scales);
    result.mins = importance != nullptr ? code_weighted(mins, sums_w) : code_plain(mins);
    return result;
}

/// Everything but the codes' layout; returns the final codes, 0..level_max.
template <class Block>
std::array<int, 256> encode_scales(const float* x, const float* importance, int level_max,
                                   Block& block) {
    const SuperBlock fit = fit_super_block(x, importance, level_max);
    block = {};
    block.d = f32_to_f16(fit.scales.unit);
    block.dmin = f32_to_f16(fit.mins.unit);
    pack_scales_k4({fit.scales.codes, fit.mins.codes}, block.scales);
    const float d = f16_to_f32(block.d);
    const float dmin = f16_to_f32(block.dmin);
    std::array<int, 256> codes;
    for (std::size_t i = 0; i < 256; ++i) {
        const std::size_t j = i / 32;
        const float step = d * static_cast<float>(fit.scales.codes[j]);
        const float min = dmin * static_cast<float>(fit.mins.codes[j]);
        codes[i] = step == 0.0F ? fit.subs[j].levels[i % 32]
                                : round_clamped((x[i] + min) / step, 0, level_max);
    }
    return codes;
}

void store_low_nibbles(const std::array<int, 256>& codes, std::uint8_t (&qs)[128]) {
    for (std::size_t i = 0; i < 256; ++i) {
        std::uint8_t& byte = qs[i / 64 * 32 + i % 32];
        byte = static_cast<std::uint8_t>(byte | ((codes[i] & 15) << (i / 32 % 2 == 0 ? 0 : 4)));
    }
}

}  // namespace

void encode_block(const float* x, const float* importance, BlockQ4_K& block) {
    store_low_nibbles(encode_scales(x, importance, 15, block), block.qs);
}

void encode_block(const float* x, const float* importance, BlockQ5_K& block) {
    const std::array<int, 256> codes = encode_scales(x, importance, 31, block);
    store_low_nibbles(codes, block.qs);
    for (std::size_t i = 0; i < 256; ++i) {
        std::uint8_t& high = block.qh[i % 32];
        high = static_cast<std::uint8_t>(high | ((codes[i] >> 4) << (i / 32)));
    }
}

}  // namespace kernels

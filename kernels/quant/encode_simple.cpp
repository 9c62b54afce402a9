#include "kernels/quant/encode_simple.h"

#include <algorithm>
#include <cmath>

#include "kernels/quant/half.h"
#include "kernels/quant/search.h"

namespace kernels {
namespace {

/// trunc(value), limited to 0..high; a NaN gives 0.
int truncate_clamped(float value, int high) {
    if (!(value > 0.0F)) return 0;
    if (value >= static_cast<float>(high)) return high;
    return static_cast<int>(value);
}

/// Nearest integer within -127..127, halves away from zero; a NaN gives 0.
int round_half_away(float value) {
    if (!(std::fabs(value) < 127.0F)) return value > 0.0F ? 127 : value < 0.0F ? -127 : 0;
    const int whole = static_cast<int>(value);
    const float rest = value - static_cast<float>(whole);  // exact
    return whole + static_cast<int>(rest >= 0.5F) - static_cast<int>(rest <= -0.5F);
}

/// Codes of the 4- and 5-bit formats: low nibbles of qs hold values 0..15, high nibbles 16..31,
/// and bit i of `fifth` is bit 4 of code i.
template <class CodeOf>
std::uint32_t pack_nibbles(CodeOf code_of, std::uint8_t (&qs)[16]) {
    std::uint32_t fifth = 0;
    for (int i = 0; i < 16; ++i) {
        const int low = code_of(i);
        const int high = code_of(i + 16);
        qs[i] = static_cast<std::uint8_t>((low & 15) | ((high & 15) << 4));
        fifth |= static_cast<std::uint32_t>(low >> 4) << i;
        fifth |= static_cast<std::uint32_t>(high >> 4) << (i + 16);
    }
    return fifth;
}

void store_high_bits(std::uint32_t bits, std::uint8_t (&qh)[4]) {
    for (int i = 0; i < 4; ++i)
        qh[i] = static_cast<std::uint8_t>(bits >> (8 * i));
}

/// d such that the extreme value is code 0 exactly; codes around `zero`.
template <class Block>
std::uint32_t encode_symmetric(const float* x, int zero, Block& block) {
    const float d = signed_extreme(x, 32) / static_cast<float>(-zero);
    const float inverse = inverse_or_zero(d);
    block.d = f32_to_f16(d);
    const float offset = static_cast<float>(zero) + 0.5F;
    return pack_nibbles(
        [&](int i) { return truncate_clamped(x[i] * inverse + offset, 2 * zero - 1); }, block.qs);
}

/// Codes 0..high from the smallest to the largest value.
template <class Block>
std::uint32_t encode_with_minimum(const float* x, int high, Block& block) {
    const auto [smallest, largest] = std::minmax_element(x, x + 32);
    const float m = *smallest;
    const float d = (*largest - m) / static_cast<float>(high);
    const float inverse = inverse_or_zero(d);
    block.d = f32_to_f16(d);
    block.m = f32_to_f16(m);
    return pack_nibbles([&](int i) { return truncate_clamped((x[i] - m) * inverse + 0.5F, high); },
                        block.qs);
}

}  // namespace

void encode_block(const float* x, BlockQ8_0& block) {
    const float d = std::fabs(signed_extreme(x, 32)) / 127.0F;
    const float inverse = inverse_or_zero(d);
    block.d = f32_to_f16(d);
    for (int i = 0; i < 32; ++i)
        block.qs[i] = static_cast<std::int8_t>(round_half_away(x[i] * inverse));
}

void encode_block(const float* x, BlockQ4_0& block) {
    encode_symmetric(x, 8, block);
}

void encode_block(const float* x, BlockQ5_0& block) {
    store_high_bits(encode_symmetric(x, 16, block), block.qh);
}

void encode_block(const float* x, BlockQ4_1& block) {
    encode_with_minimum(x, 15, block);
}

void encode_block(const float* x, BlockQ5_1& block) {
    store_high_bits(encode_with_minimum(x, 31, block), block.qh);
}

}  // namespace kernels

#include "kernels/quant/decode.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "kernels/quant/blocks.h"
#include "kernels/quant/format.h"
#include "kernels/quant/half.h"

namespace kernels {
namespace {

int low_nibble(std::uint8_t byte) {
    return byte & 15;
}
int high_nibble(std::uint8_t byte) {
    return byte >> 4;
}

std::uint32_t high_bits(const std::uint8_t (&qh)[4]) {
    return static_cast<std::uint32_t>(qh[0]) | static_cast<std::uint32_t>(qh[1]) << 8 |
           static_cast<std::uint32_t>(qh[2]) << 16 | static_cast<std::uint32_t>(qh[3]) << 24;
}

/// 16 where bit i of `bits` is set, else 0.
int fifth_bit(std::uint32_t bits, int i) {
    return static_cast<int>((bits >> i) & 1U) << 4;
}

void decode(const BlockQ8_0& b, float* out) {
    const float d = f16_to_f32(b.d);
    for (int i = 0; i < 32; ++i)
        out[i] = d * static_cast<float>(b.qs[i]);
}

void decode(const BlockQ4_0& b, float* out) {
    const float d = f16_to_f32(b.d);
    for (int i = 0; i < 16; ++i) {
        out[i] = static_cast<float>(low_nibble(b.qs[i]) - 8) * d;
        out[i + 16] = static_cast<float>(high_nibble(b.qs[i]) - 8) * d;
    }
}

void decode(const BlockQ4_1& b, float* out) {
    const float d = f16_to_f32(b.d);
    const float m = f16_to_f32(b.m);
    for (int i = 0; i < 16; ++i) {
        out[i] = static_cast<float>(low_nibble(b.qs[i])) * d + m;
        out[i + 16] = static_cast<float>(high_nibble(b.qs[i])) * d + m;
    }
}

void decode(const BlockQ5_0& b, float* out) {
    const float d = f16_to_f32(b.d);
    const std::uint32_t qh = high_bits(b.qh);
    for (int i = 0; i < 16; ++i) {
        out[i] = static_cast<float>(low_nibble(b.qs[i]) + fifth_bit(qh, i) - 16) * d;
        out[i + 16] = static_cast<float>(high_nibble(b.qs[i]) + fifth_bit(qh, i + 16) - 16) * d;
    }
}

void decode(const BlockQ5_1& b, float* out) {
    const float d = f16_to_f32(b.d);
    const float m = f16_to_f32(b.m);
    const std::uint32_t qh = high_bits(b.qh);
    for (int i = 0; i < 16; ++i) {
        out[i] = static_cast<float>(low_nibble(b.qs[i]) + fifth_bit(qh, i)) * d + m;
        out[i + 16] = static_cast<float>(high_nibble(b.qs[i]) + fifth_bit(qh, i + 16)) * d + m;
    }
}

/// 16 bytes of codebook indices, low nibbles first; shared by IQ4_NL and a sub-block of IQ4_XS.
void decode_iq4(float scale, const std::uint8_t* qs, float* out) {
    for (int i = 0; i < 16; ++i) {
        out[i] = scale * static_cast<float>(kIq4Levels[static_cast<std::size_t>(qs[i] & 15)]);
        out[i + 16] = scale * static_cast<float>(kIq4Levels[static_cast<std::size_t>(qs[i] >> 4)]);
    }
}

void decode(const BlockIQ4_NL& b, float* out) {
    decode_iq4(f16_to_f32(b.d), b.qs, out);
}

void decode(const BlockIQ4_XS& b, float* out) {
    const float d = f16_to_f32(b.d);
    for (int sub = 0; sub < 8; ++sub) {
        const float scale = d * static_cast<float>(iq4_xs_scale(b, sub));
        decode_iq4(scale, b.qs + 16 * sub, out + 32 * sub);
    }
}

void decode(const BlockQ4_K& b, float* out) {
    const float d = f16_to_f32(b.d);
    const float dmin = f16_to_f32(b.dmin);
    const ScalesK4 scales = unpack_scales_k4(b.scales);
    for (int i = 0; i < 256; ++i) {
        const auto j = static_cast<std::size_t>(i / 32);
        const std::uint8_t byte = b.qs[i / 64 * 32 + i % 32];
        const int n = j % 2 == 0 ? low_nibble(byte) : high_nibble(byte);
        out[i] = (d * static_cast<float>(scales.scale[j])) * static_cast<float>(n) -
                 dmin * static_cast<float>(scales.min[j]);
    }
}

void decode(const BlockQ5_K& b, float* out) {
    const float d = f16_to_f32(b.d);
    const float dmin = f16_to_f32(b.dmin);
    const ScalesK4 scales = unpack_scales_k4(b.scales);
    for (int i = 0; i < 256; ++i) {
        const auto j = static_cast<std::size_t>(i / 32);
        const std::uint8_t byte = b.qs[i / 64 * 32 + i % 32];
        const int n = (j % 2 == 0 ? low_nibble(byte) : high_nibble(byte)) +
                      fifth_bit(b.qh[i % 32], static_cast<int>(j));
        out[i] = (d * static_cast<float>(scales.scale[j])) * static_cast<float>(n) -
                 dmin * static_cast<float>(scales.min[j]);
    }
}

/// Where value i of a Q2_K, Q3_K or Q6_K block lies: half of the block, quarter of the half, lane.
struct Place {
    int half, quarter, lane;
};
Place place_of(int i) {
    return {i / 128, i % 128 / 32, i % 32};
}

void decode(const BlockQ6_K& b, float* out) {
    const float d = f16_to_f32(b.d);
    for (int i = 0; i < 256; ++i) {
        const auto [half, quarter, lane] = place_of(i);
        const std::uint8_t byte = b.ql[64 * half + 32 * (quarter % 2) + lane];
        const int low = quarter < 2 ? low_nibble(byte) : high_nibble(byte);
        const int high = (b.qh[32 * half + lane] >> (2 * quarter)) & 3;
        out[i] =
            d * static_cast<float>(b.scales[i / 16]) * static_cast<float>((low | high << 4) - 32);
    }
}

void decode(const BlockQ2_K& b, float* out) {
    const float d = f16_to_f32(b.d);
    const float dmin = f16_to_f32(b.dmin);
    for (int i = 0; i < 256; ++i) {
        const auto [half, quarter, lane] = place_of(i);
        const int n = (b.qs[32 * half + lane] >> (2 * quarter)) & 3;
        const std::uint8_t s = b.scales[i / 16];
        out[i] = (d * static_cast<float>(low_nibble(s))) * static_cast<float>(n) -
                 dmin * static_cast<float>(high_nibble(s));
    }
}

void decode(const BlockQ3_K& b, float* out) {
    const float d = f16_to_f32(b.d);
    for (int i = 0; i < 256; ++i) {
        const auto [half, quarter, lane] = place_of(i);
        const bool has_third_bit = ((b.hmask[lane] >> (4 * half + quarter)) & 1) != 0;
        const int n = ((b.qs[32 * half + lane] >> (2 * quarter)) & 3) - (has_third_bit ? 0 : 4);
        out[i] = d * static_cast<float>(q3_k_scale(b, i / 16)) * static_cast<float>(n);
    }
}

template <class Block, int kValues>
void decode_blocks(const void* blocks, float* out, std::int64_t values) {
    const auto* block = static_cast<const Block*>(blocks);
    for (std::int64_t i = 0; i < values; i += kValues)
        decode(*block++, out + i);
}

template <float (*kConvert)(std::uint16_t)>
void decode_halves(const void* blocks, float* out, std::int64_t values) {
    const auto* halves = static_cast<const std::uint16_t*>(blocks);
    for (std::int64_t i = 0; i < values; ++i)
        out[i] = kConvert(halves[i]);
}

}  // namespace

void decode_row(DType dtype, const void* blocks, float* out, std::int64_t values) {
    assert(values >= 0 && values % format_of(dtype).block_values == 0 && "a row is whole blocks");
    if (values == 0) return;
    switch (dtype) {
        case DType::kF32:
            std::memcpy(out, blocks, static_cast<std::size_t>(values) * sizeof(float));
            return;
        case DType::kF16:
            return decode_halves<f16_to_f32>(blocks, out, values);
        case DType::kBF16:
            return decode_halves<bf16_to_f32>(blocks, out, values);
        case DType::kQ8_0:
            return decode_blocks<BlockQ8_0, 32>(blocks, out, values);
        case DType::kQ4_0:
            return decode_blocks<BlockQ4_0, 32>(blocks, out, values);
        case DType::kQ4_1:
            return decode_blocks<BlockQ4_1, 32>(blocks, out, values);
        case DType::kQ5_0:
            return decode_blocks<BlockQ5_0, 32>(blocks, out, values);
        case DType::kQ5_1:
            return decode_blocks<BlockQ5_1, 32>(blocks, out, values);
        case DType::kIQ4_NL:
            return decode_blocks<BlockIQ4_NL, 32>(blocks, out, values);
        case DType::kQ2_K:
            return decode_blocks<BlockQ2_K, 256>(blocks, out, values);
        case DType::kQ3_K:
            return decode_blocks<BlockQ3_K, 256>(blocks, out, values);
        case DType::kQ4_K:
            return decode_blocks<BlockQ4_K, 256>(blocks, out, values);
        case DType::kQ5_K:
            return decode_blocks<BlockQ5_K, 256>(blocks, out, values);
        case DType::kQ6_K:
            return decode_blocks<BlockQ6_K, 256>(blocks, out, values);
        case DType::kIQ4_XS:
            return decode_blocks<BlockIQ4_XS, 256>(blocks, out, values);
        case DType::kI32:
            break;
    }
    assert(false && "a type decode_row reads");
}

}  // namespace kernels

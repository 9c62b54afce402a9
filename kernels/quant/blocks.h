// The block formats of GGUF tensors, byte for byte, as structs.
//
// A row of a weight matrix is a run of blocks; a block is one or two binary16 scales and the codes
// of 32 or 256 values. Blocks follow each other without padding and a tensor starts at a multiple
// of 8 at least, so every struct here has alignment 2 or 1 and may be read in place. Wider loads of
// the codes must be unaligned ones.
//
// In the 32-value formats byte i of `qs` holds value i in its low nibble and value i + 16 in its
// high nibble. The 256-value formats ("K" and IQ4_XS) are cut into sub-blocks of 32 (Q2_K, Q3_K,
// Q6_K: 16) with scales of their own; decode.cpp has the formulas, one function per format.
//
// Source: ggml's block formats as llama.cpp writes them; golden values in tests/kernel/quant_*.
#pragma once

#include <array>
#include <cstdint>

namespace kernels {

inline constexpr int kBlockValues = 32;        // the small formats
inline constexpr int kSuperBlockValues = 256;  // the K formats and IQ4_XS
inline constexpr int kSubBlockValues = 32;     // values that share a scale in Q4_K, Q5_K, IQ4_XS

/// Levels of the non-linear 4-bit codes of IQ4_NL and IQ4_XS.
inline constexpr std::array<std::int8_t, 16> kIq4Levels = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct BlockQ8_0 {  // y = d * q
    std::uint16_t d;
    std::int8_t qs[32];
};
struct BlockQ4_0 {  // y = (n - 8) * d
    std::uint16_t d;
    std::uint8_t qs[16];
};
struct BlockQ4_1 {  // y = n * d + m
    std::uint16_t d, m;
    std::uint8_t qs[16];
};
struct BlockQ5_0 {  // y = (n + 16 * high bit - 16) * d
    std::uint16_t d;
    std::uint8_t qh[4];  // little-endian, bit i is the fifth bit of value i
    std::uint8_t qs[16];
};
struct BlockQ5_1 {  // y = (n + 16 * high bit) * d + m
    std::uint16_t d, m;
    std::uint8_t qh[4];
    std::uint8_t qs[16];
};
struct BlockIQ4_NL {  // y = d * level[n]
    std::uint16_t d;
    std::uint8_t qs[16];
};

struct BlockQ2_K {            // y = d * (scale & 15) * n - dmin * (scale >> 4)
    std::uint8_t scales[16];  // one per 16 values
    std::uint8_t qs[64];
    std::uint16_t d, dmin;
};
struct BlockQ3_K {  // y = d * (scale - 32) * n
    std::uint8_t hmask[32];
    std::uint8_t qs[64];
    std::uint8_t scales[12];  // sixteen 6-bit scales, one per 16 values
    std::uint16_t d;
};
struct BlockQ4_K {  // y = d * scale * n - dmin * min
    std::uint16_t d, dmin;
    std::uint8_t scales[12];  // unpack_scales_k4
    std::uint8_t qs[128];
};
struct BlockQ5_K {  // as Q4_K, n with a fifth bit
    std::uint16_t d, dmin;
    std::uint8_t scales[12];
    std::uint8_t qh[32];
    std::uint8_t qs[128];
};
struct BlockQ6_K {  // y = d * scale * (n - 32)
    std::uint8_t ql[128];
    std::uint8_t qh[64];
    std::int8_t scales[16];  // one per 16 values
    std::uint16_t d;
};
struct BlockIQ4_XS {  // y = d * (scale - 32) * level[n]
    std::uint16_t d;
    std::uint16_t scales_h;
    std::uint8_t scales_l[4];  // iq4_xs_scale
    std::uint8_t qs[128];      // 16 bytes per sub-block, laid out as in IQ4_NL
};

static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 2);
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210 && alignof(BlockQ6_K) == 2);

/// The 6-bit scales and minima of the eight sub-blocks of Q4_K and Q5_K.
struct ScalesK4 {
    std::array<std::uint8_t, 8> scale;
    std::array<std::uint8_t, 8> min;
};

/// Sub-blocks 0..3 lie in the low six bits of bytes 0..3 (scale) and 4..7 (min); 4..7 have their
/// low four bits in the nibbles of bytes 8..11 and their upper two on top of bytes 0..7.
inline ScalesK4 unpack_scales_k4(const std::uint8_t (&packed)[12]) {
    ScalesK4 result{};
    for (std::size_t j = 0; j < 4; ++j) {
        const unsigned a = packed[j];
        const unsigned b = packed[j + 4];
        const unsigned c = packed[j + 8];
        result.scale[j] = static_cast<std::uint8_t>(a & 63U);
        result.min[j] = static_cast<std::uint8_t>(b & 63U);
        result.scale[j + 4] = static_cast<std::uint8_t>((c & 15U) | ((a >> 6) << 4));
        result.min[j + 4] = static_cast<std::uint8_t>((c >> 4) | ((b >> 6) << 4));
    }
    return result;
}

/// The inverse; all values are below 64.
inline void pack_scales_k4(const ScalesK4& scales, std::uint8_t (&packed)[12]) {
    for (std::size_t j = 0; j < 4; ++j) {
        const unsigned high_scale = scales.scale[j + 4];
        const unsigned high_min = scales.min[j + 4];
        packed[j] = static_cast<std::uint8_t>(scales.scale[j] | ((high_scale >> 4) << 6));
        packed[j + 4] = static_cast<std::uint8_t>(scales.min[j] | ((high_min >> 4) << 6));
        packed[j + 8] = static_cast<std::uint8_t>((high_scale & 15U) | ((high_min & 15U) << 4));
    }
}

/// Signed scale of sub-block `b` (0..7) of IQ4_XS, -32..31.
inline int iq4_xs_scale(const BlockIQ4_XS& block, int b) {
    const int low = (block.scales_l[b / 2] >> (4 * (b % 2))) & 15;
    const int high = (block.scales_h >> (2 * b)) & 3;
    return (low | (high << 4)) - 32;
}

/// Signed scale of group `s` (0..15, 16 values each) of Q3_K, -32..31.
inline int q3_k_scale(const BlockQ3_K& block, int s) {
    const int low = s < 8 ? block.scales[s] & 15 : block.scales[s - 8] >> 4;
    const int high = (block.scales[8 + s % 4] >> (2 * (s / 4))) & 3;
    return (low | (high << 4)) - 32;
}

}  // namespace kernels

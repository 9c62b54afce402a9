// Eight consecutive weights of a row from the file's blocks, to the bit what
// kernels/quant/decode.cpp makes of them: the same products in the same order.
//
// `decode(row, k, out)` takes the row's address and k, a multiple of 8. A group of eight never
// crosses a scale: the narrowest sub-block has 16 values. Blocks are 2-byte aligned at least and
// every array of codes begins at an even offset, so codes are fetched by 2 bytes, and by 8 where
// block size and offset are multiples of 8 (kAligned8).
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/quant/blocks.h"

namespace kernels::cuda {

using Bytes8 = unsigned long long;  // byte i in bits 8i .. 8i + 7

inline constexpr int kGroup = 8;

__device__ inline Bytes8 load8_aligned2(const std::uint8_t* from) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
    return Bytes8{halves[0]} | Bytes8{halves[1]} << 16 | Bytes8{halves[2]} << 32 |
           Bytes8{halves[3]} << 48;
}
__device__ inline Bytes8 load8_aligned8(const std::uint8_t* from) {
    return *reinterpret_cast<const Bytes8*>(from);
}
__device__ inline int byte_at(Bytes8 bytes, int i) {
    return static_cast<int>(bytes >> (8 * i)) & 255;
}
__device__ inline int nibble_at(Bytes8 bytes, int i, int shift) {
    return static_cast<int>(bytes >> (8 * i + shift)) & 15;
}

template <class Block>
__device__ const Block& block_of(const std::uint8_t* row, int k, int block_values) {
    return reinterpret_cast<const Block*>(row)[k / block_values];
}

// ---------------------------------------------------------------------------------------------
// Plain numbers: rows of any length, the group's end may lie past it

struct FormatF32 {
    __device__ static void decode(const std::uint8_t* row, int k, int k_end, float* out) {
        const auto* values = reinterpret_cast<const float*>(row);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = k + j < k_end ? values[k + j] : 0.0F;
    }
};
struct FormatF16 {
    __device__ static void decode(const std::uint8_t* row, int k, int k_end, float* out) {
        const auto* values = reinterpret_cast<const std::uint16_t*>(row);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = k + j < k_end ? half_to_float(values[k + j]) : 0.0F;
    }
};
struct FormatBF16 {
    __device__ static void decode(const std::uint8_t* row, int k, int k_end, float* out) {
        const auto* values = reinterpret_cast<const std::uint16_t*>(row);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = k + j < k_end ? bfloat_to_float(values[k + j]) : 0.0F;
    }
};

// ---------------------------------------------------------------------------------------------
// Blocks of 32: values 0..15 in the low nibbles, 16..31 in the high ones

struct NibblePlace {
    int byte;   // of the first value's code
    int shift;  // 0 or 4
};
__device__ inline NibblePlace nibble_place(int k) {
    const int i = k % kBlockValues;
    return {i % 16, i < 16 ? 0 : 4};
}

struct FormatQ8_0 {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockQ8_0>(row, k, kBlockValues);
        const float d = half_to_float(b.d);
        const Bytes8 codes =
            load8_aligned2(reinterpret_cast<const std::uint8_t*>(b.qs) + k % kBlockValues);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = d * static_cast<float>(static_cast<std::int8_t>(byte_at(codes, j)));
    }
};
struct FormatQ4_0 {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockQ4_0>(row, k, kBlockValues);
        const float d = half_to_float(b.d);
        const NibblePlace place = nibble_place(k);
        const Bytes8 codes = load8_aligned2(b.qs + place.byte);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = static_cast<float>(nibble_at(codes, j, place.shift) - 8) * d;
    }
};
struct FormatQ4_1 {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockQ4_1>(row, k, kBlockValues);
        const float d = half_to_float(b.d);
        const float m = half_to_float(b.m);
        const NibblePlace place = nibble_place(k);
        const Bytes8 codes = load8_aligned2(b.qs + place.byte);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = static_cast<float>(nibble_at(codes, j, place.shift)) * d + m;
    }
};
/// The fifth bits of eight values from value `i` on; bit j belongs to value i + j.
__device__ inline int fifth_bits(const std::uint8_t (&qh)[4], int i) {
    return qh[i / 8];
}
struct FormatQ5_0 {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockQ5_0>(row, k, kBlockValues);
        const float d = half_to_float(b.d);
        const NibblePlace place = nibble_place(k);
        const Bytes8 codes = load8_aligned2(b.qs + place.byte);
        const int high = fifth_bits(b.qh, k % kBlockValues);
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            const int n = nibble_at(codes, j, place.shift) | ((high >> j) & 1) << 4;
            out[j] = static_cast<float>(n - 16) * d;
        }
    }
};
struct FormatQ5_1 {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockQ5_1>(row, k, kBlockValues);
        const float d = half_to_float(b.d);
        const float m = half_to_float(b.m);
        const NibblePlace place = nibble_place(k);
        const Bytes8 codes = load8_aligned2(b.qs + place.byte);
        const int high = fifth_bits(b.qh, k % kBlockValues);
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            const int n = nibble_at(codes, j, place.shift) | ((high >> j) & 1) << 4;
            out[j] = static_cast<float>(n) * d + m;
        }
    }
};

/// Level of a 4-bit code of IQ4_NL and IQ4_XS: kIq4Levels, four to a word, picked by bytes.
__device__ inline float iq4_level(int code) {
    constexpr std::uint32_t kLevels[4] = {0xbfad9881U, 0xf6eaddcfU, 0x26190d01U, 0x71594535U};
    const std::uint32_t low = __byte_perm(kLevels[0], kLevels[1], static_cast<unsigned>(code & 7));
    const std::uint32_t high = __byte_perm(kLevels[2], kLevels[3], static_cast<unsigned>(code & 7));
    return static_cast<float>(static_cast<std::int8_t>((code < 8 ? low : high) & 255U));
}
static_assert(kIq4Levels[0] == -127 && kIq4Levels[8] == 1 && kIq4Levels[15] == 113,
              "the words above hold these levels");

struct FormatIQ4_NL {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockIQ4_NL>(row, k, kBlockValues);
        const float d = half_to_float(b.d);
        const NibblePlace place = nibble_place(k);
        const Bytes8 codes = load8_aligned2(b.qs + place.byte);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = d * iq4_level(nibble_at(codes, j, place.shift));
    }
};

// ---------------------------------------------------------------------------------------------
// Blocks of 256

struct FormatIQ4_XS {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        static_assert(sizeof(BlockIQ4_XS) % 8 == 0, "codes are fetched by 8 bytes");
        const auto& b = block_of<BlockIQ4_XS>(row, k, kSuperBlockValues);
        const int sub = k % kSuperBlockValues / kSubBlockValues;
        const int low = (b.scales_l[sub / 2] >> (4 * (sub % 2))) & 15;
        const int high = (b.scales_h >> (2 * sub)) & 3;
        const float scale = half_to_float(b.d) * static_cast<float>((low | high << 4) - 32);
        const NibblePlace place = nibble_place(k);
        const Bytes8 codes = load8_aligned8(b.qs + 16 * sub + place.byte);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = scale * iq4_level(nibble_at(codes, j, place.shift));
    }
};

/// Scale and minimum of sub-block `j` of Q4_K and Q5_K; packed as unpack_scales_k4 says.
struct ScaleMin {
    float scale;
    float min;
};
__device__ inline ScaleMin scale_min_k4(const std::uint8_t (&packed)[12], int j) {
    if (j < 4) return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
    const int both = packed[j + 4];
    const int scale = (both & 15) | (packed[j - 4] >> 6) << 4;
    const int min = (both >> 4) | (packed[j] >> 6) << 4;
    return {static_cast<float>(scale), static_cast<float>(min)};
}

struct FormatQ4_K {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        static_assert(sizeof(BlockQ4_K) % 8 == 0, "codes are fetched by 8 bytes");
        const auto& b = block_of<BlockQ4_K>(row, k, kSuperBlockValues);
        const int i = k % kSuperBlockValues;
        const int sub = i / kSubBlockValues;
        const ScaleMin s = scale_min_k4(b.scales, sub);
        const float scale = half_to_float(b.d) * s.scale;
        const float min = half_to_float(b.dmin) * s.min;
        const Bytes8 codes = load8_aligned8(b.qs + i / 64 * 32 + i % 32);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = scale * static_cast<float>(nibble_at(codes, j, sub % 2 * 4)) - min;
    }
};
struct FormatQ5_K {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        static_assert(sizeof(BlockQ5_K) % 8 == 0, "codes are fetched by 8 bytes");
        const auto& b = block_of<BlockQ5_K>(row, k, kSuperBlockValues);
        const int i = k % kSuperBlockValues;
        const int sub = i / kSubBlockValues;
        const ScaleMin s = scale_min_k4(b.scales, sub);
        const float scale = half_to_float(b.d) * s.scale;
        const float min = half_to_float(b.dmin) * s.min;
        const Bytes8 codes = load8_aligned8(b.qs + i / 64 * 32 + i % 32);
        const Bytes8 high = load8_aligned8(b.qh + i % 32) >> sub;
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            const int n = nibble_at(codes, j, sub % 2 * 4) | (byte_at(high, j) & 1) << 4;
            out[j] = scale * static_cast<float>(n) - min;
        }
    }
};

/// Where the codes of values i .. i + 7 of a Q2_K, Q3_K or Q6_K block lie.
struct QuarterPlace {
    int half, quarter, lane;
};
__device__ inline QuarterPlace quarter_place(int i) {
    return {i / 128, i % 128 / 32, i % 32};
}

struct FormatQ6_K {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockQ6_K>(row, k, kSuperBlockValues);
        const int i = k % kSuperBlockValues;
        const auto [half, quarter, lane] = quarter_place(i);
        const float scale = half_to_float(b.d) * static_cast<float>(b.scales[i / 16]);
        const Bytes8 low = load8_aligned2(b.ql + 64 * half + 32 * (quarter % 2) + lane);
        const Bytes8 high = load8_aligned2(b.qh + 32 * half + lane);
        const int low_shift = quarter < 2 ? 0 : 4;
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            const int n = nibble_at(low, j, low_shift) | (byte_at(high, j) >> (2 * quarter) & 3)
                                                             << 4;
            out[j] = scale * static_cast<float>(n - 32);
        }
    }
};
struct FormatQ2_K {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockQ2_K>(row, k, kSuperBlockValues);
        const int i = k % kSuperBlockValues;
        const auto [half, quarter, lane] = quarter_place(i);
        const int s = b.scales[i / 16];
        const float scale = half_to_float(b.d) * static_cast<float>(s & 15);
        const float min = half_to_float(b.dmin) * static_cast<float>(s >> 4);
        const Bytes8 codes = load8_aligned2(b.qs + 32 * half + lane);
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
            out[j] = scale * static_cast<float>(byte_at(codes, j) >> (2 * quarter) & 3) - min;
    }
};
struct FormatQ3_K {
    __device__ static void decode(const std::uint8_t* row, int k, int, float* out) {
        const auto& b = block_of<BlockQ3_K>(row, k, kSuperBlockValues);
        const int i = k % kSuperBlockValues;
        const auto [half, quarter, lane] = quarter_place(i);
        const int s = i / 16;
        const int low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
        const int high = (b.scales[8 + s % 4] >> (2 * (s / 4))) & 3;
        const float scale = half_to_float(b.d) * static_cast<float>((low | high << 4) - 32);
        const Bytes8 codes = load8_aligned2(b.qs + 32 * half + lane);
        const Bytes8 third = load8_aligned2(b.hmask + lane) >> (4 * half + quarter);
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
            const int n =
                (byte_at(codes, j) >> (2 * quarter) & 3) - (byte_at(third, j) & 1 ? 0 : 4);
            out[j] = scale * static_cast<float>(n);
        }
    }
};

}  // namespace kernels::cuda

#include "replica/gguf/tool/random_blocks.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/quant/blocks.h"
#include "kernels/quant/format.h"
#include "kernels/quant/half.h"

namespace replica {
namespace {

using kernels::DType;

/// SplitMix64 (Steele, Lea and Flood 2014): a counter and a mixing function, so a stream can be
/// entered anywhere for nothing.
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

class Random {
public:
    Random(std::uint64_t stream, std::int64_t block)
        : state_(mix(stream ^ mix(static_cast<std::uint64_t>(block) + kGolden))) {}

    std::uint64_t bits() { return mix(state_ += kGolden); }
    /// 0 .. 2^24-1 over 2^24: exact in f32.
    float unit() { return static_cast<float>(bits() >> 40) * 0x1p-24F; }
    /// Sum of four uniforms: nearly normal, deviation 1, within +-3.47.
    float nearly_normal() {
        const std::uint64_t word = bits();
        std::int64_t sum = 0;
        for (int i = 0; i < 4; ++i)
            sum += static_cast<std::int64_t>((word >> (16 * i)) & 0xffffU);
        // Four uniforms on 0..65535 have mean 131070 and deviation 65536 / sqrt(3).
        return static_cast<float>(sum - 131070) * (1.7320508F / 65536.0F);
    }
    void fill(void* into, std::size_t count) {
        auto* at = static_cast<std::byte*>(into);
        for (; count >= sizeof(std::uint64_t); count -= sizeof(std::uint64_t)) {
            const std::uint64_t word = bits();
            std::memcpy(at, &word, sizeof(word));
            at += sizeof(word);
        }
        const std::uint64_t word = bits();
        std::memcpy(at, &word, count);
    }

private:
    std::uint64_t state_;
};

// Deviations of codes drawn uniformly.
constexpr float kInt8Deviation = 73.9F;      // -128..127
constexpr float kNibbleDeviation = 4.61F;    // 0..15
constexpr float kFiveBitDeviation = 9.233F;  // 0..31
constexpr float kSixBitDeviation = 18.47F;   // -32..31
constexpr float kIq4Deviation = 67.4F;       // the sixteen levels, around 0
// Sub-block scales are drawn from [half, full]; their root mean square relative to full is this.
constexpr float kScaleRms = 0.764F;  // sqrt(7/12)

/// 0.8 to 1.2 times `value`: blocks of a real tensor differ in size, too.
float varied(Random& random, float value) {
    return value * (0.8F + 0.4F * random.unit());
}

/// A half with at most six bits of mantissa, so that 7.5 and 15.5 times it is a half as well.
std::uint16_t short_half(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0xfffe0000U;
    return kernels::f32_to_f16(std::bit_cast<float>(bits));
}

void fill(kernels::BlockQ8_0& block, Random& random, float deviation) {
    block.d = kernels::f32_to_f16(varied(random, deviation / kInt8Deviation));
    random.fill(block.qs, sizeof(block.qs));
    // No encoder writes -128, and integer kernels may rely on that.
    for (std::int8_t& q : block.qs)
        q = std::max<std::int8_t>(q, -127);
}

void fill(kernels::BlockQ4_0& block, Random& random, float deviation) {
    block.d = kernels::f32_to_f16(varied(random, deviation / kNibbleDeviation));
    random.fill(block.qs, sizeof(block.qs));
}

/// Half of the scales negative: the levels' mean is not 0, the product's is.
void fill(kernels::BlockIQ4_NL& block, Random& random, float deviation) {
    const float d = varied(random, deviation / kIq4Deviation);
    block.d = kernels::f32_to_f16((random.bits() & 1U) != 0 ? d : -d);
    random.fill(block.qs, sizeof(block.qs));
}

void fill(kernels::BlockIQ4_XS& block, Random& random, float deviation) {
    block = {};
    block.d = kernels::f32_to_f16(varied(random, deviation / (kIq4Deviation * kScaleRms * 31.0F)));
    for (int b = 0; b < 8; ++b) {
        const std::uint64_t word = random.bits();
        const int magnitude = 16 + static_cast<int>(word & 15U);
        const int code = 32 + ((word & 16U) != 0 ? magnitude : -magnitude);
        block.scales_l[b / 2] =
            static_cast<std::uint8_t>(block.scales_l[b / 2] | ((code & 15) << (4 * (b % 2))));
        block.scales_h = static_cast<std::uint16_t>(block.scales_h | ((code >> 4) << (2 * b)));
    }
    random.fill(block.qs, sizeof(block.qs));
}

/// Scale codes 32..63 and minima that put the middle of the levels at 0.
template <class Block>
void fill_k4(Block& block, Random& random, float deviation, float code_deviation, float middle) {
    block.d = short_half(varied(random, deviation / (code_deviation * kScaleRms * 63.0F)));
    block.dmin = kernels::f32_to_f16(middle * kernels::f16_to_f32(block.d));
    kernels::ScalesK4 scales{};
    for (std::size_t j = 0; j < 8; ++j)
        scales.scale[j] = scales.min[j] = static_cast<std::uint8_t>(32 + (random.bits() & 31U));
    kernels::pack_scales_k4(scales, block.scales);
    random.fill(block.qs, sizeof(block.qs));
}

void fill(kernels::BlockQ4_K& block, Random& random, float deviation) {
    fill_k4(block, random, deviation, kNibbleDeviation, 7.5F);
}

void fill(kernels::BlockQ5_K& block, Random& random, float deviation) {
    fill_k4(block, random, deviation, kFiveBitDeviation, 15.5F);
    random.fill(block.qh, sizeof(block.qh));
}

void fill(kernels::BlockQ6_K& block, Random& random, float deviation) {
    block.d =
        kernels::f32_to_f16(varied(random, deviation / (kSixBitDeviation * kScaleRms * 127.0F)));
    for (std::int8_t& scale : block.scales) {
        const std::uint64_t word = random.bits();
        const int magnitude = 64 + static_cast<int>(word & 63U);
        scale = static_cast<std::int8_t>((word & 64U) != 0 ? magnitude : -magnitude);
    }
    random.fill(block.ql, sizeof(block.ql));
    random.fill(block.qh, sizeof(block.qh));
}

template <class Block>
void fill_all(std::uint64_t stream, std::int64_t begin, std::int64_t end, float deviation,
              std::byte* blocks) {
    for (std::int64_t b = begin; b < end; ++b) {
        Random random(stream, b);
        Block block{};
        fill(block, random, deviation);
        std::memcpy(blocks, &block, sizeof(block));
        blocks += sizeof(block);
    }
}

/// Plain values; a "block" is one value.
template <class T, class Convert>
void fill_values(std::uint64_t stream, std::int64_t begin, std::int64_t end,
                 Distribution distribution, std::byte* out, Convert convert) {
    for (std::int64_t i = begin; i < end; ++i) {
        Random random(stream, i);
        const T value =
            convert(distribution.mean + distribution.deviation * random.nearly_normal());
        std::memcpy(out, &value, sizeof(value));
        out += sizeof(value);
    }
}

}  // namespace

std::uint64_t random_stream(std::uint64_t seed, std::uint64_t index) {
    return mix(mix(seed + kGolden) + index * kGolden);
}

bool can_fill_random(DType dtype) {
    switch (dtype) {
        case DType::kF32:
        case DType::kF16:
        case DType::kBF16:
        case DType::kQ8_0:
        case DType::kQ4_0:
        case DType::kIQ4_NL:
        case DType::kIQ4_XS:
        case DType::kQ4_K:
        case DType::kQ5_K:
        case DType::kQ6_K:
            return true;
        default:
            return false;
    }
}

void fill_random_blocks(DType dtype, Distribution distribution, std::uint64_t stream,
                        std::int64_t begin, std::int64_t end, std::byte* blocks) {
    const float deviation = distribution.deviation;
    switch (dtype) {
        case DType::kF32:
            return fill_values<float>(stream, begin, end, distribution, blocks,
                                      [](float value) { return value; });
        case DType::kF16:
            return fill_values<std::uint16_t>(stream, begin, end, distribution, blocks,
                                              kernels::f32_to_f16);
        case DType::kBF16:
            return fill_values<std::uint16_t>(stream, begin, end, distribution, blocks,
                                              kernels::f32_to_bf16);
        case DType::kQ8_0:
            return fill_all<kernels::BlockQ8_0>(stream, begin, end, deviation, blocks);
        case DType::kQ4_0:
            return fill_all<kernels::BlockQ4_0>(stream, begin, end, deviation, blocks);
        case DType::kIQ4_NL:
            return fill_all<kernels::BlockIQ4_NL>(stream, begin, end, deviation, blocks);
        case DType::kIQ4_XS:
            return fill_all<kernels::BlockIQ4_XS>(stream, begin, end, deviation, blocks);
        case DType::kQ4_K:
            return fill_all<kernels::BlockQ4_K>(stream, begin, end, deviation, blocks);
        case DType::kQ5_K:
            return fill_all<kernels::BlockQ5_K>(stream, begin, end, deviation, blocks);
        case DType::kQ6_K:
            return fill_all<kernels::BlockQ6_K>(stream, begin, end, deviation, blocks);
        default:
            break;
    }
    assert(false && "a type of can_fill_random");
}

}  // namespace replica

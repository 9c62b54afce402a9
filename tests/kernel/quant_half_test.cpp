// Proves the 16-bit float conversions by exhaustion where that is possible, and by the rule "the
// nearest representable value, the even one on ties" elsewhere.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "kernels/quant/half.h"

namespace kernels {
namespace {

TEST(QuantHalfTest, EveryHalfSurvivesTheWayThroughFloat) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = f16_to_f32(half);
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
            EXPECT_EQ(half & 0x7c00, 0x7c00);
        } else {
            EXPECT_EQ(f32_to_f16(value), half);
        }
        const float brain = bf16_to_f32(half);
        if (!std::isnan(brain)) {
            EXPECT_EQ(f32_to_bf16(brain), half);
        }
    }
}

TEST(QuantHalfTest, HalvesHaveTheValuesOfTheirFields) {
    for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
        const int exponent = static_cast<int>(bits >> 10);
        const int mantissa = static_cast<int>(bits & 1023);
        const double expected =
            exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
        EXPECT_EQ(static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(bits))), expected);
    }
}

TEST(QuantHalfTest, BetweenTwoHalvesTheNearerWinsAndTiesGoToEven) {
    for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
        const auto below = static_cast<std::uint16_t>(bits);
        const auto above = static_cast<std::uint16_t>(bits + 1);
        const float middle = (f16_to_f32(below) + f16_to_f32(above)) / 2.0F;  // exact
        EXPECT_EQ(f32_to_f16(middle), (below & 1U) == 0 ? below : above);
        EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0F)), below);
        EXPECT_EQ(f32_to_f16(std::nextafter(middle, 1e9F)), above);
        EXPECT_EQ(f32_to_f16(-middle), f32_to_f16(middle) | 0x8000);
    }
}

TEST(QuantHalfTest, LargeBecomesInfiniteAndNanStaysNan) {
    EXPECT_EQ(f32_to_f16(65519.996F), 0x7bff);
    EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
    EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
    EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0x7f800001U)))));
    EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001U)))));
    EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(QuantHalfTest, BrainFloatsRoundToNearestEven) {
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80) << "tie, even below";
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82) << "tie, even above";
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
}

}  // namespace
}  // namespace kernels

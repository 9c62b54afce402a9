// Philox4x32-10 against the known answers that ship with Random123 (kat_vectors), and the draw's
// uniform number built on it.
#include "kernels/philox.h"

#include <gtest/gtest.h>

namespace kernels {
namespace {

TEST(PhiloxTest, GivesTheKnownAnswersOfItsAuthors) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
              (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    constexpr std::uint32_t kOnes = 0xffffffff;
    EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(
        philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
        (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, ADrawIsTheFirstTwoWordsOfItsCounterAsAFraction) {
    constexpr std::uint64_t kBits = (0xe169c58dULL << 32) | 0x6627e8d5U;
    EXPECT_EQ(draw_uniform(0, 0), static_cast<double>(kBits >> 11) / 9007199254740992.0);
}

TEST(PhiloxTest, DrawsDependOnAllBitsOfSeedAndIndex) {
    const double first = draw_uniform(1, 1);
    EXPECT_EQ(first, draw_uniform(1, 1));
    EXPECT_NE(first, draw_uniform(1 | (1ULL << 63), 1));
    EXPECT_NE(first, draw_uniform(1, 1 | (1ULL << 63)));
    EXPECT_NE(draw_uniform(2, 1), draw_uniform(1, 2));
}

TEST(PhiloxTest, DrawsAreUniformOverTheUnitInterval) {
    constexpr int kDraws = 100000;
    double sum = 0;
    double smallest = 1;
    double largest = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
        const double value = draw_uniform(42, i);
        sum += value;
        smallest = std::min(smallest, value);
        largest = std::max(largest, value);
    }
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / 316.2);  // five standard errors
    EXPECT_GE(smallest, 0.0);
    EXPECT_LT(smallest, 1e-3);
    EXPECT_LT(largest, 1.0);
    EXPECT_GT(largest, 1 - 1e-3);
}

}  // namespace
}  // namespace kernels

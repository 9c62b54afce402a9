// The rotary table against the published formulas, evaluated here in another way.
#include "replica/model/rope_table.h"

#include <cmath>

#include <gtest/gtest.h>

namespace replica {
namespace {

ModelConfig config_of(std::int32_t n_rot, double base) {
    ModelConfig config;
    config.n_rot = n_rot;
    config.head_dim = n_rot;
    config.rope_base = base;
    return config;
}

TEST(RopeTableTest, HoldsCosinesThenSinesOfEachPair) {
    const auto table = make_rope_table(config_of(8, 10000.0), 5, {});
    ASSERT_EQ(table.size(), 40U);
    for (int position = 0; position < 5; ++position) {
        for (int i = 0; i < 4; ++i) {
            const double angle = position / std::pow(10000.0, 2.0 * i / 8.0);
            const auto row = static_cast<std::size_t>(position * 8);
            const auto pair = static_cast<std::size_t>(i);
            EXPECT_NEAR(table[row + pair], std::cos(angle), 1e-7);
            EXPECT_NEAR(table[row + 4 + pair], std::sin(angle), 1e-7);
        }
    }
}

TEST(RopeTableTest, KeepsFarPositionsExact) {
    // 262143 as a float product is already wrong in the third decimal of the angle.
    const auto table = make_rope_table(config_of(2, 10000.0), 262144, {});
    EXPECT_NEAR(table[262143U * 2], std::cos(262143.0), 1e-6);
    EXPECT_NEAR(table[262143U * 2 + 1], std::sin(262143.0), 1e-6);
}

TEST(RopeTableTest, DividesAnglesByTheFilesFrequencies) {
    const std::vector<float> divisors{1.0F, 8.0F};
    const auto table = make_rope_table(config_of(4, 100.0), 2, divisors);
    EXPECT_NEAR(table[4 + 0], std::cos(1.0), 1e-7);
    EXPECT_NEAR(table[4 + 1], std::cos(0.1 / 8.0), 1e-7);
}

TEST(RopeTableTest, LinearScalingDividesThePosition) {
    ModelConfig config = config_of(4, 100.0);
    config.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 4.0};
    const auto table = make_rope_table(config, 9, {});
    EXPECT_NEAR(table[8U * 4 + 0], std::cos(2.0), 1e-7);
}

TEST(RopeTableTest, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
    ModelConfig config = config_of(64, 1e7);
    config.rope_scaling = {
        .kind = RopeScaling::Kind::kYarn, .factor = 4.0, .original_context = 262144};
    const auto table = make_rope_table(config, 2, {});
    const double magnitude = 1.0 + 0.1 * std::log(4.0);
    // Pair 0 turns 41,722 times within the context: untouched but for the magnitude.
    EXPECT_NEAR(table[64 + 0], std::cos(1.0) * magnitude, 1e-6);
    // Pair 31 does not turn once: its angle is a quarter.
    const double slow = std::pow(1e7, -62.0 / 64.0) / 4.0;
    EXPECT_NEAR(table[64 + 32 + 31], std::sin(slow) * magnitude, 1e-12);
}

}  // namespace
}  // namespace replica

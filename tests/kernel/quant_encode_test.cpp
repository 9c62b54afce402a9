// Proves that the encoders write the bytes of the published hashes, with and without an importance
// matrix, that their error is the published one, and that they survive degenerate input.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/quant/decode.h"
#include "kernels/quant/encode.h"
#include "kernels/quant/format.h"

namespace kernels {
namespace {

constexpr std::int64_t kValues = 256;

std::vector<float> golden_input() {
    std::vector<float> x(kValues);
    for (int i = 0; i < kValues; ++i) {
        const int wave = (37 * i * i + 11 * i + 5) % 257 - 128;
        x[static_cast<std::size_t>(i)] = static_cast<float>(wave * (1 + i / 32)) / 512.0F;
    }
    return x;
}

std::vector<float> golden_importance() {
    std::vector<float> importance(kValues);
    for (int i = 0; i < kValues; ++i)
        importance[static_cast<std::size_t>(i)] = static_cast<float>((29 * i + 3) % 17 + 1) / 8.0F;
    return importance;
}

std::uint32_t fnv1a(const std::vector<std::uint8_t>& bytes) {
    std::uint32_t hash = 2166136261U;
    for (const std::uint8_t byte : bytes)
        hash = (hash ^ byte) * 16777619U;
    return hash;
}

std::vector<std::uint8_t> encode(DType dtype, const std::vector<float>& x,
                                 const float* importance = nullptr) {
    const auto values = static_cast<std::int64_t>(x.size());
    std::vector<std::uint8_t> blocks(static_cast<std::size_t>(row_bytes(dtype, values)), 0xa5);
    encode_row(dtype, x.data(), blocks.data(), values, importance);
    return blocks;
}

std::vector<float> decode(DType dtype, const std::vector<std::uint8_t>& blocks,
                          std::size_t values) {
    std::vector<float> y(values);
    decode_row(dtype, blocks.data(), y.data(), static_cast<std::int64_t>(values));
    return y;
}

/// Mean of weight * squared error, as the published table has it; weights of 1 when empty.
double mean_square_error(const std::vector<float>& x, const std::vector<float>& y,
                         const std::vector<float>& weight = {}) {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double diff = static_cast<double>(x[i]) - static_cast<double>(y[i]);
        const double w = weight.empty() ? 1.0 : static_cast<double>(weight[i]);
        sum += w * diff * diff;
    }
    return sum / static_cast<double>(x.size());
}

struct Golden {
    DType dtype;
    std::size_t bytes;
    std::uint32_t hash;
    double mse;
    std::optional<std::uint32_t> hash_importance;
    double mse_importance = 0.0;
};

constexpr Golden kGoldens[] = {
    {DType::kQ8_0, 272, 0xa08f05bf, 6.05917e-6, 0xa08f05bf, 6.11247e-6},
    {DType::kQ4_0, 144, 0x7f137d4c, 2.02827e-3, std::nullopt},
    {DType::kQ4_1, 160, 0x5f0f79b5, 1.94058e-3, std::nullopt},
    {DType::kQ5_0, 176, 0x94e50a89, 4.97690e-4, std::nullopt},
    {DType::kQ5_1, 192, 0xd787ad02, 4.80073e-4, std::nullopt},
    {DType::kIQ4_NL, 144, 0x29b701f5, 2.27669e-3, 0xedc27937, 2.44598e-3},
    {DType::kIQ4_XS, 136, 0x0ee6deed, 2.27376e-3, 0xf79c0f24, 2.46683e-3},
    {DType::kQ4_K, 144, 0x4dfd1854, 1.56574e-3, 0x20d2792b, 1.82836e-3},
    {DType::kQ5_K, 176, 0xd632c8a2, 4.61738e-4, 0x2b27892c, 4.45281e-4},
    {DType::kQ6_K, 210, 0x53c4834c, 1.15252e-4, 0xffed940c, 9.33294e-5},
};

TEST(QuantEncodeTest, TheGoldenInputIsTheOneDescribed) {
    EXPECT_EQ(golden_input()[0], -0.240234375F);
    EXPECT_EQ(golden_input()[1], -0.146484375F);
}

TEST(QuantEncodeTest, WritesThePublishedBytesWithoutImportance) {
    const std::vector<float> x = golden_input();
    for (const Golden& golden : kGoldens) {
        const std::vector<std::uint8_t> blocks = encode(golden.dtype, x);
        EXPECT_EQ(blocks.size(), golden.bytes) << name_of(golden.dtype);
        EXPECT_EQ(fnv1a(blocks), golden.hash) << name_of(golden.dtype);
        const double mse = mean_square_error(x, decode(golden.dtype, blocks, x.size()));
        EXPECT_NEAR(mse, golden.mse, golden.mse * 1e-5) << name_of(golden.dtype);
    }
}

TEST(QuantEncodeTest, WritesThePublishedBytesWithImportance) {
    const std::vector<float> x = golden_input();
    const std::vector<float> importance = golden_importance();
    for (const Golden& golden : kGoldens) {
        if (!golden.hash_importance) continue;
        const std::vector<std::uint8_t> blocks = encode(golden.dtype, x, importance.data());
        EXPECT_EQ(fnv1a(blocks), *golden.hash_importance) << name_of(golden.dtype);
        const double mse = mean_square_error(x, decode(golden.dtype, blocks, x.size()), importance);
        EXPECT_NEAR(mse, golden.mse_importance, golden.mse_importance * 1e-5)
            << name_of(golden.dtype);
    }
}

constexpr DType kEncodable[] = {DType::kF32,    DType::kF16,    DType::kBF16, DType::kQ8_0,
                                DType::kQ4_0,   DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1,
                                DType::kIQ4_NL, DType::kIQ4_XS, DType::kQ4_K, DType::kQ5_K,
                                DType::kQ6_K};

TEST(QuantEncodeTest, RandomRowsComeBackWithinTheErrorOfTheirBits) {
    // Relative root mean square error on normal values: about 2^-bits * the spread of a block.
    const auto tolerance = [](DType dtype) {
        switch (dtype) {
            case DType::kF32:
                return 0.0;
            case DType::kF16:
                return 5e-4;
            case DType::kBF16:
                return 4e-3;
            case DType::kQ8_0:
                return 0.01;
            case DType::kQ6_K:
                return 0.02;
            case DType::kQ5_0:
            case DType::kQ5_1:
            case DType::kQ5_K:
                return 0.05;
            default:
                return 0.11;
        }
    };
    std::mt19937 random(42);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    std::vector<float> x(2048);
    std::ranges::generate(x, [&] { return normal(random); });
    const double power = mean_square_error(x, std::vector<float>(x.size(), 0.0F));
    for (const DType dtype : kEncodable) {
        const std::vector<float> y = decode(dtype, encode(dtype, x), x.size());
        EXPECT_LE(std::sqrt(mean_square_error(x, y) / power), tolerance(dtype)) << name_of(dtype);
    }
}

TEST(QuantEncodeTest, ZerosStayZeros) {
    const std::vector<float> zeros(512, 0.0F);
    const std::vector<float> importance(512, 0.0F);
    for (const DType dtype : kEncodable) {
        EXPECT_EQ(decode(dtype, encode(dtype, zeros), zeros.size()), zeros) << name_of(dtype);
        EXPECT_EQ(decode(dtype, encode(dtype, zeros, importance.data()), zeros.size()), zeros)
            << name_of(dtype);
    }
}

TEST(QuantEncodeTest, ConstantAndTinyAndAllZeroImportanceBlocksDecodeToFiniteValues) {
    for (const float value : {1.0F, -1.0F, 1e-30F, -1e-12F, 6e4F}) {
        const std::vector<float> x(256, value);
        const std::vector<float> no_importance(256, 0.0F);
        for (const DType dtype : kEncodable) {
            for (const float* importance :
                 {static_cast<const float*>(nullptr), no_importance.data()}) {
                for (const float y : decode(dtype, encode(dtype, x, importance), x.size()))
                    ASSERT_TRUE(std::isfinite(y)) << name_of(dtype) << " of " << value;
            }
        }
    }
}

TEST(QuantEncodeTest, NonFiniteInputDoesNoHarmOutsideItsBlock) {
    const float kNan = std::numeric_limits<float>::quiet_NaN();
    const float kInf = std::numeric_limits<float>::infinity();
    for (const float bad : {kNan, kInf, -kInf}) {
        std::vector<float> x(768, 0.5F);
        std::fill(x.begin() + 256, x.begin() + 512, bad);
        x[300] = 1.0F;
        for (const DType dtype : kEncodable) {
            const std::vector<float> y = decode(dtype, encode(dtype, x), x.size());
            for (std::size_t i = 0; i < y.size(); ++i) {
                if (i / 256 != 1) {
                    ASSERT_TRUE(std::isfinite(y[i])) << name_of(dtype) << ' ' << i;
                }
            }
        }
    }
}

TEST(QuantEncodeTest, SaysWhichTypesItCanWrite) {
    for (const Format& format : all_formats()) {
        if (!format.supported) continue;
        const auto dtype = static_cast<DType>(format.type_id);
        EXPECT_EQ(can_encode(dtype), std::ranges::find(kEncodable, dtype) != std::end(kEncodable))
            << format.name;
    }
}

}  // namespace
}  // namespace kernels

// Proves that decode_row gives the published values bit for bit, that the table of formats agrees
// with the block structs, and that no block, however odd, makes a decoder misbehave.
//
// The golden blocks are filled with b[k] = (73 k + 41) mod 256 under fixed scales, so they pass
// through every branch of the scale packing; all results are exact in binary.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/quant/blocks.h"
#include "kernels/quant/decode.h"
#include "kernels/quant/format.h"

namespace kernels {
namespace {

std::vector<DType> decodable_types() {
    std::vector<DType> types;
    for (const Format& format : all_formats()) {
        const auto dtype = static_cast<DType>(format.type_id);
        if (format.supported && dtype != DType::kI32) types.push_back(dtype);
    }
    return types;
}

std::vector<float> decode_golden_block(DType dtype) {
    const Format& format = format_of(dtype);
    const bool d_is_last = dtype == DType::kQ6_K || dtype == DType::kQ3_K;
    std::vector<std::uint8_t> block(static_cast<std::size_t>(format.block_bytes));
    for (std::size_t k = 0; k < block.size(); ++k)
        block[k] = static_cast<std::uint8_t>(73 * k + 41);
    const std::size_t d = d_is_last ? block.size() - 2 : 0;
    block[d] = 0x00;
    block[d + 1] = 0x2e;  // 0.09375
    if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K ||
        dtype == DType::kQ5_K) {
        block[2] = 0x00;
        block[3] = 0x2c;  // 0.0625
    }
    std::vector<float> values(static_cast<std::size_t>(format.block_values));
    decode_row(dtype, block.data(), values.data(), format.block_values);
    return values;
}

struct Golden {
    DType dtype;
    std::map<std::size_t, float> values;  // index -> value
    double sum;
};

std::vector<Golden> goldens() {
    return {
        {DType::kQ8_0,
         {{0, -6.46875F}, {1, 0.375F}, {15, 0.1875F}, {16, 7.03125F}, {31, -10.3125F}},
         -4.5},
        {DType::kQ4_0,
         {{0, 0.28125F}, {1, -0.375F}, {15, -0.5625F}, {16, 0.28125F}, {31, -0.75F}},
         -3.09375},
        {DType::kQ4_1,
         {{0, 1.28125F}, {1, 0.625F}, {15, 0.4375F}, {16, 0.4375F}, {31, 0.90625F}},
         23.09375},
        {DType::kQ5_0,
         {{0, 1.40625F}, {1, 0.75F}, {15, -0.9375F}, {16, 1.21875F}, {31, 0.1875F}},
         -4.21875},
        {DType::kQ5_1,
         {{0, 1.65625F}, {1, 1.0F}, {15, 2.3125F}, {16, 2.21875F}, {31, 1.09375F}},
         48.96875},
        {DType::kIQ4_NL,
         {{0, 3.5625F}, {1, -4.59375F}, {15, -7.78125F}, {16, 3.5625F}, {31, -11.90625F}},
         -45.09375},
        {DType::kQ4_K,
         {{0, 7.90625F},
          {1, -0.625F},
          {15, -3.0625F},
          {16, 7.90625F},
          {31, -3.0625F},
          {32, 19.0625F},
          {127, 40.5F},
          {128, 16.15625F},
          {200, 5.03125F},
          {255, -1.4375F}},
         4893.25},
        {DType::kQ5_K,
         {{0, 27.40625F},
          {1, -0.625F},
          {15, -3.0625F},
          {16, 27.40625F},
          {31, -3.0625F},
          {32, 23.1875F},
          {127, 48.0F},
          {128, 47.65625F},
          {200, 5.03125F},
          {255, -1.4375F}},
         10210.75},
        {DType::kQ6_K,
         {{0, 15.09375F},
          {1, -4.3125F},
          {15, 69.0F},
          {16, -32.8125F},
          {31, -150.0F},
          {32, 103.78125F},
          {127, -4.5F},
          {128, -32.15625F},
          {200, -39.84375F},
          {255, 27.0F}},
         -1391.625},
        {DType::kIQ4_XS,
         {{0, -282.75F},
          {1, 67.96875F},
          {15, 2.71875F},
          {16, -27.1875F},
          {31, 103.3125F},
          {32, -39.0F},
          {127, -18.5625F},
          {128, 165.75F},
          {200, -29.25F},
          {255, -70.3125F}},
         -604.6875},
    };
}

TEST(QuantDecodeTest, GivesThePublishedValuesOfEveryFormat) {
    for (const Golden& golden : goldens()) {
        const std::vector<float> y = decode_golden_block(golden.dtype);
        double sum = 0.0;
        for (const float value : y)
            sum += static_cast<double>(value);
        for (const auto& [index, value] : golden.values)
            EXPECT_EQ(y[index], value) << name_of(golden.dtype) << " value " << index;
        EXPECT_EQ(sum, golden.sum) << name_of(golden.dtype);
    }
}

TEST(QuantDecodeTest, KeepsTheOrderOfIq4XsValues) {
    const std::vector<float> y = decode_golden_block(DType::kIQ4_XS);
    double weighted = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i)
        weighted += static_cast<double>(i + 1) * static_cast<double>(y[i]);
    EXPECT_EQ(weighted, 82786.03125);
}

// Q2_K and Q3_K have no published values; single codes in known places pin their layout.
TEST(QuantDecodeTest, PutsQ2KCodesScalesAndMinimaWhereTheyBelong) {
    BlockQ2_K block{};
    block.d = 0x3c00;             // 1
    block.dmin = 0x3800;          // 0.5
    block.scales[13] = 0x37;      // values 208..223: scale 7, min 3
    block.qs[32 + 20] = 2U << 4;  // half 1, quarter 2, lane 20: value 128 + 64 + 20 = 212
    float y[256];
    decode_row(DType::kQ2_K, &block, y, 256);
    for (int i = 0; i < 256; ++i) {
        const float min = i / 16 == 13 ? 1.5F : 0.0F;
        EXPECT_EQ(y[i], i == 212 ? 14.0F - min : -min) << i;
    }
}

TEST(QuantDecodeTest, PutsQ3KCodesAndScalesWhereTheyBelong) {
    BlockQ3_K block{};
    block.d = 0x3c00;                  // 1
    block.hmask[5] = 1U << 6;          // half 1, quarter 2, lane 5: value 197 loses its -4
    block.qs[32 + 5] = 3U << 4;        // and has code 3
    block.scales[12 - 8] = 0x1U << 4;  // group 12 (values 192..207): low bits 1
    block.scales[8 + 0] = 2U << 6;     // and upper bits 2: 33 - 32 = 1
    float y[256];
    decode_row(DType::kQ3_K, &block, y, 256);
    EXPECT_EQ(y[197], 3.0F);
    EXPECT_EQ(y[198], -4.0F);
    EXPECT_EQ(y[0], -32.0F * -4.0F);
    EXPECT_EQ(y[255], -32.0F * -4.0F);
}

TEST(QuantDecodeTest, ReadsThePlainTypes) {
    const std::array<float, 3> singles = {1.5F, -0.0F, 3e38F};
    const std::array<std::uint16_t, 3> halves = {0x3e00, 0x8001, 0x7bff};
    const std::array<std::uint16_t, 3> brains = {0x3fc0, 0x8000, 0x7f7f};
    std::array<float, 3> y{};
    decode_row(DType::kF32, singles.data(), y.data(), 3);
    EXPECT_EQ(y, singles);
    decode_row(DType::kF16, halves.data(), y.data(), 3);
    EXPECT_EQ(y, (std::array<float, 3>{1.5F, -0x1p-24F, 65504.0F}));
    decode_row(DType::kBF16, brains.data(), y.data(), 3);
    EXPECT_EQ(y, (std::array<float, 3>{1.5F, -0.0F, 0x1.fep127F}));
}

TEST(QuantDecodeTest, RowsOfManyBlocksAreTheirBlocksOneByOne) {
    std::mt19937 random(20240817);
    for (const DType dtype : decodable_types()) {
        const Format& format = format_of(dtype);
        const std::int64_t values = 3 * format.block_values;
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>(row_bytes(dtype, values)));
        for (std::uint8_t& byte : bytes)
            byte = static_cast<std::uint8_t>(random());
        std::vector<float> row(static_cast<std::size_t>(values));
        decode_row(dtype, bytes.data(), row.data(), values);
        std::vector<float> block(static_cast<std::size_t>(format.block_values));
        for (std::size_t b = 0; b < 3; ++b) {
            decode_row(dtype, bytes.data() + b * static_cast<std::size_t>(format.block_bytes),
                       block.data(), format.block_values);
            // Random scales may be NaN: compare bytes.
            EXPECT_EQ(std::memcmp(block.data(), row.data() + b * block.size(),
                                  block.size() * sizeof(float)),
                      0)
                << format.name;
        }
    }
}

TEST(QuantDecodeTest, NonFiniteScalesStayInsideTheirBlock) {
    for (const DType dtype : decodable_types()) {
        const Format& format = format_of(dtype);
        if (format.block_values == 1) continue;
        const auto bytes_per_block = static_cast<std::size_t>(format.block_bytes);
        std::vector<std::uint8_t> bytes(3 * bytes_per_block, 0);
        std::fill_n(bytes.begin() + format.block_bytes, bytes_per_block,
                    std::uint8_t{0xff});  // NaN scales, all codes set
        std::vector<float> row(static_cast<std::size_t>(3 * format.block_values));
        decode_row(dtype, bytes.data(), row.data(), 3 * format.block_values);
        for (std::size_t i = 0; i < row.size(); ++i) {
            const bool in_bad_block = i / static_cast<std::size_t>(format.block_values) == 1;
            EXPECT_EQ(std::isfinite(row[i]), !in_bad_block) << format.name << " value " << i;
        }
    }
}

TEST(QuantFormatTest, FindsTypesByIdAndByName) {
    EXPECT_EQ(dtype_by_name("iq4_xs"), DType::kIQ4_XS);
    EXPECT_EQ(dtype_by_name("BF16"), DType::kBF16);
    EXPECT_EQ(dtype_by_name("IQ3_S"), std::nullopt) << "known, but not supported";
    EXPECT_EQ(dtype_by_name(""), std::nullopt);
    for (const std::uint32_t removed : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 43U, 0xffffffffU})
        EXPECT_EQ(find_format(removed), nullptr) << removed;
    EXPECT_EQ(find_format(21)->name, "IQ3_S");
    EXPECT_FALSE(find_format(21)->supported);
}

TEST(QuantFormatTest, RowBytesCountWholeBlocks) {
    EXPECT_EQ(row_bytes(DType::kIQ4_XS, 5120), 2720);
    EXPECT_EQ(row_bytes(DType::kQ8_0, 32), 34);
    EXPECT_EQ(row_bytes(DType::kF32, 7), 28);
    EXPECT_EQ(row_bytes(DType::kQ6_K, 0), 0);
}

TEST(QuantFormatTest, PackedSixBitScalesComeBack) {
    std::mt19937 random(7);
    for (int round = 0; round < 100; ++round) {
        ScalesK4 scales{};
        for (std::size_t j = 0; j < 8; ++j) {
            scales.scale[j] = static_cast<std::uint8_t>(random() % 64);
            scales.min[j] = static_cast<std::uint8_t>(random() % 64);
        }
        std::uint8_t packed[12];
        pack_scales_k4(scales, packed);
        const ScalesK4 back = unpack_scales_k4(packed);
        EXPECT_EQ(back.scale, scales.scale);
        EXPECT_EQ(back.min, scales.min);
    }
}

}  // namespace
}  // namespace kernels

// The packed order of weights is reversible and is what mma fragments want: proved on the host,
// with the same constexpr maps that the device's packer runs.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/pack_host.h"
#include "kernels/quant/format.h"

namespace kernels::cuda {
namespace {

constexpr DType kTypes[] = {DType::kIQ4_XS, DType::kQ6_K, DType::kQ5_K,  DType::kQ4_K,
                            DType::kQ8_0,   DType::kQ4_0, DType::kIQ4_NL};

/// Every byte random: codes, scales, even NaN among the scales must survive.
std::vector<std::uint8_t> random_bytes(std::int64_t count, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
    for (std::uint8_t& byte : bytes)
        byte = static_cast<std::uint8_t>(engine());
    return bytes;
}

struct Shape {
    std::int32_t rows;
    std::int32_t k;
};

std::vector<Shape> shapes_of(DType dtype) {
    std::vector<Shape> shapes = {{16, 256}, {1, 256}, {17, 512}, {48, 768}, {37, 256}};
    if (format_of(dtype).block_values == 32)
        for (const std::int32_t k : {32, 64, 96, 576, 896})
            shapes.push_back({19, k});
    return shapes;
}

TEST(PackedTest, UnpackingGivesEveryByteBackInBothOrders) {
    for (const WeightOrder order : {WeightOrder::kTiles, WeightOrder::kLanes})
        for (const DType dtype : kTypes)
            for (const Shape& shape : shapes_of(dtype)) {
                const std::int64_t stride = row_bytes(dtype, shape.k);
                const std::vector<std::uint8_t> file = random_bytes(shape.rows * stride, 1);
                const PackSource source{.rows = file.data(),
                                        .partner = nullptr,
                                        .row_bytes = stride,
                                        .row_count = shape.rows,
                                        .k = shape.k};
                const std::vector<std::uint8_t> packed = pack_on_host(dtype, source, order);
                EXPECT_EQ(static_cast<std::int64_t>(packed.size()),
                          packed_bytes(dtype, shape.rows, shape.k, order));
                EXPECT_EQ(unpack_on_host(dtype, source, packed, order), file)
                    << name_of(dtype) << " " << shape.rows << " x " << shape.k;
            }
}

TEST(PackedTest, InterleavedRowsComeBackToTheirSources) {
    for (const DType dtype : kTypes)
        for (const std::int32_t rows : {8, 24, 12}) {
            constexpr std::int32_t kInputs = 512;
            const std::int64_t stride = row_bytes(dtype, kInputs);
            const std::vector<std::uint8_t> file = random_bytes(2 * rows * stride, 2);
            const PackSource source{.rows = file.data(),
                                    .partner = file.data() + rows * stride,
                                    .row_bytes = stride,
                                    .row_count = rows,
                                    .k = kInputs};
            EXPECT_EQ(unpack_on_host(dtype, source, pack_on_host(dtype, source)), file)
                << name_of(dtype) << " " << rows;
        }
}

TEST(PackedTest, PlacesAndCellsAreInverse) {
    const auto holds = [](auto plane) {
        using Plane = decltype(plane);
        std::vector<int> seen(static_cast<std::size_t>(Plane::kBytes) * 8);
        for (int row = 0; row < kTileRows; ++row)
            for (int input = 0; input < kRecordInputs; ++input) {
                const BitPlace place = Plane::place({row, input});
                const Cell cell = Plane::cell(place);
                if (cell.row != row || cell.input != input) return false;
                for (int bit = 0; bit < Plane::kBits; ++bit)
                    ++seen[static_cast<std::size_t>(8 * place.byte + place.shift + bit)];
            }
        return std::ranges::all_of(seen, [](int count) { return count == 1; });
    };
    EXPECT_TRUE(holds(NibblePlane{}));
    EXPECT_TRUE(holds(BytePlane{}));
    EXPECT_TRUE(holds(OneBitPlane{}));
    EXPECT_TRUE(holds(TwoBitPlane{}));
}

TEST(PackedTest, EveryPlaceOfALanesRecordHasOneOwner) {
    for (const DType dtype : kTypes)
        with_packed_format(dtype, [](auto format) {
            using F = decltype(format);
            using Layout = LaneLayout<F>;
            std::vector<int> bits(static_cast<std::size_t>(Layout::kScales) * 8);
            const auto see = [&](int base, BitPlace place, int width) {
                for (int bit = 0; bit < width; ++bit)
                    ++bits[static_cast<std::size_t>(8 * (base + place.byte) + place.shift + bit)];
            };
            for (int row = 0; row < kLaneRows; ++row)
                for (int input = 0; input < kRecordInputs; ++input) {
                    see(0, Layout::low_place({row, input}), F::Low::kBits);
                    const Cell low = Layout::low_cell(Layout::low_place({row, input}));
                    EXPECT_EQ(std::pair(low.row, low.input), std::pair(row, input));
                    if constexpr (F::High::kBits > 0) {
                        see(Layout::kHigh, Layout::high_place({row, input}), F::High::kBits);
                        const Cell high = Layout::high_cell(Layout::high_place({row, input}));
                        EXPECT_EQ(std::pair(high.row, high.input), std::pair(row, input));
                    }
                }
            EXPECT_TRUE(std::ranges::all_of(bits, [](int count) { return count == 1; }));
            for (int row = 0; row < kLaneRows; ++row)
                for (int i = 0; i < F::kScaleBytes; ++i) {
                    const RowPart part =
                        Layout::scale_at(Layout::scale_byte(row, i) - Layout::kScales);
                    EXPECT_EQ(std::pair(part.row, part.i), std::pair(row, i));
                }
        });
}

/// A slab of nibbles is the 16 bytes of the file's sub-block, in IQ4_XS and the types of 32 values.
TEST(PackedTest, ALanesSlabIsTheFilesSubBlock) {
    const std::int64_t stride = row_bytes(DType::kIQ4_XS, 256);
    const std::vector<std::uint8_t> file = random_bytes(32 * stride, 5);
    const std::vector<std::uint8_t> packed = pack_on_host(
        DType::kIQ4_XS,
        {.rows = file.data(), .partner = nullptr, .row_bytes = stride, .row_count = 32, .k = 256},
        WeightOrder::kLanes);
    for (std::size_t row = 0; row < 32; ++row)
        for (std::size_t slab = 0; slab < 8; ++slab)
            for (std::size_t byte = 0; byte < 16; ++byte)
                EXPECT_EQ(packed[512 * slab + 16 * row + byte],
                          file[136 * row + 8 + 16 * slab + byte]);
}

/// PTX ISA, "Matrix Fragments for mma.m16n8k16", A operand: register i of lane l holds row
/// l / 4 + 8 (i mod 2) and inputs 2 (l mod 4) + 8 (i / 2), + 1.
TEST(PackedTest, AByteIsARegisterOfTheAOperand) {
    for (int lane = 0; lane < 32; ++lane)
        for (int step = 0; step < 16; ++step)
            for (int i = 0; i < 4; ++i)
                for (int odd = 0; odd < 2; ++odd) {
                    const Cell cell{.row = lane / 4 + 8 * (i % 2),
                                    .input = 16 * step + 2 * (lane % 4) + 8 * (i / 2) + odd};
                    const BitPlace place = NibblePlane::place(cell);
                    EXPECT_EQ(place.byte, 512 * (step / 4) + 16 * lane + 4 * (step % 4) + i);
                    EXPECT_EQ(place.shift, 4 * odd);
                }
}

TEST(PackedTest, RowsAndInputsThatDoNotExistHaveZeroScales) {
    constexpr std::int32_t kRows = 3;
    constexpr std::int32_t kInputs = 96;  // of Q4_0: a record's first three blocks
    const std::int64_t stride = row_bytes(DType::kQ4_0, kInputs);
    const std::vector<std::uint8_t> file(static_cast<std::size_t>(kRows * stride), 0xFF);
    const std::vector<std::uint8_t> packed = pack_on_host(DType::kQ4_0, {.rows = file.data(),
                                                                         .partner = nullptr,
                                                                         .row_bytes = stride,
                                                                         .row_count = kRows,
                                                                         .k = kInputs});
    for (int row = 0; row < kTileRows; ++row) {
        const PackedRow<PackedFormat<DType::kQ4_0>> packed_row{packed.data(), row};
        for (int i = 0; i < 16; ++i)
            EXPECT_EQ(packed_row.scale(i), row < kRows && i / 2 < 3 ? 0xFF : 0) << row << " " << i;
    }
}

TEST(PackedTest, OnlyTypesWithAnOrderAndWholeBlocksArePackable) {
    EXPECT_TRUE(is_packable(DType::kIQ4_XS, 5120));
    EXPECT_FALSE(is_packable(DType::kIQ4_XS, 576));
    EXPECT_TRUE(is_packable(DType::kQ8_0, 576));
    EXPECT_FALSE(is_packable(DType::kF32, 256));
    EXPECT_FALSE(is_packable(DType::kQ3_K, 256));
}

}  // namespace
}  // namespace kernels::cuda

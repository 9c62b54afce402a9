// Plans of matmul_mma over all real shapes and row counts: every unit of work is done once, shared
// memory suffices, and what a row's bits depend on does not change with the rows.
#include "kernels/cuda/matmul_plan.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/armed.h"
#include "kernels/cuda/pack_host.h"

namespace kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int32_t kH200Multiprocessors = 132;
constexpr std::int32_t kH200SharedBytes = 227 * 1024;

struct Shape {
    std::int64_t n, k;
};
/// Demo, 0.8B, 2B, 4B, 9B, 27B: in-projection, q/k/v, out, gate/up, down, head.
constexpr Shape kShapes[] = {
    {3072, 256},   {256, 1024},    {2048, 256},    {4096, 256},   {8192, 1024},  {7168, 1024},
    {1024, 3584},  {248320, 1024}, {2048, 6144},   {12288, 2048}, {9216, 2560},  {2560, 9216},
    {12288, 4096}, {24576, 4096},  {4096, 12288},  {16384, 5120}, {14336, 5120}, {5120, 6144},
    {34816, 5120}, {5120, 17408},  {248320, 5120}, {5120, 10240}, {1, 256},      {48, 5120},
    {17, 768},     {12288, 5120},  {1024, 5120}};

MatmulQuery query_of(const Shape& shape, std::int64_t rows, DType dtype) {
    return {.dtype = dtype,
            .step_rows = rows,
            .rows = rows,
            .tiles = tile_count(shape.n),
            .k = shape.k,
            .multiprocessors = kH200Multiprocessors,
            .shared_bytes_max = kH200SharedBytes};
}

TEST(MatmulPlanTest, EveryShapeHasAPlanThatFitsForEveryRowCount) {
    for (const Shape& shape : kShapes)
        for (const DType dtype : {DType::kIQ4_XS, DType::kQ6_K, DType::kQ4_K, DType::kQ8_0})
            for (std::int64_t rows = 1; rows <= kMatmulColumnsMax; ++rows) {
                const auto plan = matmul_plan(query_of(shape, rows, dtype));
                ASSERT_TRUE(plan.has_value()) << plan.error();
                EXPECT_GE(plan->columns, rows);
                EXPECT_LE(plan->shared_bytes, kH200SharedBytes);
                EXPECT_TRUE(rows > kMatmulFewColumns || plan->window_slots >= 1);
                EXPECT_LE(plan->cut.blocks, kH200Multiprocessors);
                EXPECT_LE(plan->partial_floats, rows > kMatmulFewColumns
                                                    ? matmul_wide_part_floats(kH200Multiprocessors)
                                                    : matmul_partial_floats(kH200Multiprocessors));
            }
}

TEST(MatmulPlanTest, OneIdServesOneToEightRowsAndOneTheOthers) {
    for (const Shape& shape : kShapes)
        for (const auto& [first, last] : {std::pair{1, 8}, std::pair{9, kMatmulColumnsMax}}) {
            const auto one = matmul_plan(query_of(shape, first, DType::kIQ4_XS));
            for (std::int64_t rows = first; rows <= last; ++rows) {
                const auto plan = matmul_plan(query_of(shape, rows, DType::kIQ4_XS));
                EXPECT_EQ(plan->numerics_id, one->numerics_id);
                EXPECT_EQ(plan->cut.blocks, one->cut.blocks);
                EXPECT_EQ(plan->way, one->way);
            }
        }
    EXPECT_NE(matmul_plan(query_of({5120, 6144}, 1, DType::kIQ4_XS))->numerics_id,
              matmul_plan(query_of({5120, 6144}, 1, DType::kQ6_K))->numerics_id);
}

TEST(MatmulPlanTest, TheLastRowsOfALargeStepShareTheIdOfTheOthers) {
    MatmulQuery rest = query_of({34816, 5120}, 1, DType::kIQ4_XS);
    rest.step_rows = 65;  // 64 + 1
    EXPECT_EQ(matmul_plan(rest)->way, MatmulWay::kWide);
    EXPECT_EQ(matmul_plan(rest)->numerics_id,
              matmul_plan(query_of({34816, 5120}, 16, DType::kIQ4_XS))->numerics_id);
}

TEST(MatmulPlanTest, RunsFollowEachOtherAndDifferByOneUnitAtMost) {
    for (const Shape& shape : kShapes) {
        const MatmulCut cut = matmul_plan(query_of(shape, 16, DType::kIQ4_XS))->cut;
        EXPECT_EQ(cut.begin(0), 0);
        EXPECT_EQ(cut.begin(cut.blocks), cut.units());
        const std::int32_t share = cut.units() / cut.blocks;
        for (std::int32_t block = 0; block < cut.blocks; ++block) {
            const std::int32_t units = cut.begin(block + 1) - cut.begin(block);
            EXPECT_GE(units, 1);
            EXPECT_TRUE(units == share || units == share + 1) << units << " " << share;
            EXPECT_EQ(cut.block_of(cut.begin(block)), block);
            EXPECT_EQ(cut.block_of(cut.begin(block + 1) - 1), block);
        }
    }
}

TEST(MatmulPlanTest, RunsOfManyTokensEndWithGroupsWhereTheLongestRunStaysAsItIs) {
    const auto blocks = [](const Shape& shape) {
        return matmul_plan(query_of(shape, 16, DType::kIQ4_XS))->cut.blocks;
    };
    EXPECT_EQ(blocks({5120, 6144}), 120);   // 20 groups of 24 units: four units a block either way
    EXPECT_EQ(blocks({16384, 5120}), 128);  // 64 groups of 20: ten
    EXPECT_EQ(blocks({14336, 5120}), kH200Multiprocessors);  // 56 of 20: nine, or ten
    EXPECT_EQ(blocks({34816, 5120}), kH200Multiprocessors);  // more groups than blocks
}

TEST(MatmulPlanTest, SharersOfAGroupAreNeighboursAndHoldOnlyTheirEnds) {
    for (const Shape& shape : kShapes) {
        const MatmulCut cut = matmul_plan(query_of(shape, 16, DType::kIQ4_XS))->cut;
        for (std::int32_t group = 0; group < cut.groups; ++group) {
            const std::int32_t first = cut.first_block(group);
            const std::int32_t last = cut.last_block(group);
            EXPECT_LE(first, last);
            // A block leaves at most two parts: of its first group and of its last.
            for (std::int32_t block = first; block <= last; ++block) {
                const bool is_first = cut.first_group(block) == group;
                const bool is_last = (cut.begin(block + 1) - 1) / cut.k_records == group;
                const bool is_whole = first == last;
                EXPECT_TRUE(is_first || is_last || is_whole);
            }
        }
    }
}

TEST(MatmulPlanTest, PairsServeFewTokensUnlessTheirPartsDoNotFit) {
    const auto way = [](const Shape& shape, std::int64_t rows, DType dtype) {
        return matmul_plan(query_of(shape, rows, dtype))->way;
    };
    EXPECT_EQ(way({5120, 6144}, 8, DType::kIQ4_XS), MatmulWay::kPair);
    EXPECT_EQ(way({5120, 17408}, 1, DType::kIQ4_XS), MatmulWay::kPair);
    EXPECT_EQ(way({10240, 5120}, 4, DType::kQ5_K), MatmulWay::kPair);
    EXPECT_EQ(way({248320, 5120}, 8, DType::kQ6_K), MatmulWay::kWhole);
    EXPECT_EQ(way({5120, 32768}, 1, DType::kIQ4_XS), MatmulWay::kJoined);
    EXPECT_EQ(way({34816, 5120}, 9, DType::kIQ4_XS), MatmulWay::kWide);
}

/// As matmul_pair numbers them: part of tile g in warp w at place g + w.
TEST(MatmulPlanTest, NoTwoPartsOfAPairShareAPlace) {
    for (const Shape& shape : kShapes) {
        const auto plan = matmul_plan(query_of(shape, 8, DType::kIQ4_XS));
        if (plan->way != MatmulWay::kPair) continue;
        const MatmulCut tiles{.groups = static_cast<std::int32_t>(tile_count(shape.n)),
                              .k_records = 1,
                              .blocks = plan->cut.blocks / 2};
        for (std::int32_t pair = 0; pair < tiles.blocks; ++pair)
            for (const std::int32_t k_records :
                 {plan->cut.k_records / 2, (plan->cut.k_records + 1) / 2}) {
                const MatmulCut cut{.groups = tiles.begin(pair + 1) - tiles.begin(pair),
                                    .k_records = k_records,
                                    .blocks = kMatmulThreads / 32};
                ASSERT_GE(cut.groups, 1);
                std::vector<bool> is_taken(static_cast<std::size_t>(plan->pair_slots));
                for (std::int32_t warp = 0; warp < cut.blocks; ++warp)
                    for (std::int32_t unit = cut.begin(warp); unit < cut.begin(warp + 1); ++unit) {
                        if (unit != cut.begin(warp) && unit % k_records != 0) continue;
                        const auto place = static_cast<std::size_t>(unit / k_records + warp);
                        ASSERT_LT(place, is_taken.size());
                        EXPECT_FALSE(is_taken[place]);
                        is_taken[place] = true;
                    }
            }
    }
}

/// As matmul_whole cuts: tiles over blocks, then the records of a block's tiles over 16 warps,
/// fewer records than warps included.
TEST(MatmulPlanTest, EveryRecordOfWholeTilesBelongsToOneWarp) {
    for (const Shape& shape : kShapes) {
        const auto plan = matmul_plan(query_of(shape, 8, DType::kIQ4_XS));
        if (plan->way != MatmulWay::kWhole) continue;
        const auto tile_total = static_cast<std::int32_t>(tile_count(shape.n));
        const MatmulCut tiles{.groups = tile_total, .k_records = 1, .blocks = plan->cut.blocks};
        for (std::int32_t block = 0; block < tiles.blocks; ++block) {
            const MatmulCut cut{.groups = tiles.begin(block + 1) - tiles.begin(block),
                                .k_records = plan->cut.k_records,
                                .blocks = 16};
            ASSERT_GE(cut.groups, 1);
            std::int32_t seen = 0;
            for (std::int32_t warp = 0; warp < cut.blocks; ++warp) {
                for (std::int32_t unit = cut.begin(warp); unit < cut.begin(warp + 1); ++unit)
                    EXPECT_EQ(cut.block_of(unit), warp);
                seen += cut.begin(warp + 1) - cut.begin(warp);
            }
            EXPECT_EQ(seen, cut.units());
        }
    }
}

TEST(MatmulPlanTest, OneTokenOfTheLargeMatricesKeepsItsWholeInputInSharedMemory) {
    const auto gate_up = matmul_plan(query_of({34816, 5120}, 1, DType::kIQ4_XS));
    EXPECT_EQ(gate_up->window_slots, 10);  // a half of K: a pair of blocks shares it
    EXPECT_EQ(gate_up->weight_bytes, 96092160);
    const auto down = matmul_plan(query_of({5120, 17408}, 8, DType::kIQ4_XS));
    EXPECT_EQ(down->window_slots, 34);
}

TEST(MatmulPlanTest, TheUnitPutsTheLargestWeightBelowTwoToTheFifteen) {
    for (const float peak : {1e-20F, 0.01F, 1.0F, 127.0F, 6e4F, 3e9F}) {
        const float scaled = peak * weight_unit(peak);
        EXPECT_GE(scaled, 16384.0F) << peak;
        EXPECT_LT(scaled, 32768.0F) << peak;
    }
    EXPECT_EQ(weight_unit(0.0F), 1.0F);
    EXPECT_EQ(weight_unit(std::numeric_limits<float>::infinity()), 1.0F);
    EXPECT_EQ(weight_unit(std::numeric_limits<float>::quiet_NaN()), 1.0F);
}

TEST(MatmulPlanTest, WideKernelsHaveTheFewestColumnsThatHoldTheRows) {
    for (const auto& [rows, columns] :
         {std::pair{9, 16}, {16, 16}, {17, 32}, {32, 32}, {33, 64}, {64, 64}})
        EXPECT_EQ(matmul_plan(query_of({5120, 6144}, rows, DType::kIQ4_XS))->columns, columns);
}

TEST(MatmulPlanTest, ALaunchOfTwoTypesSharesThePairsByWhatTheirRecordsCost) {
    const auto mix = matmul_mix_plan(query_of({6240, 5120}, 1, DType::kIQ4_XS),
                                     query_of({10240, 5120}, 1, DType::kQ5_K));
    ASSERT_TRUE(mix.has_value());
    EXPECT_EQ(mix->first.cut.blocks + mix->second.cut.blocks, kH200Multiprocessors);
    EXPECT_LT(mix->first.cut.blocks, mix->second.cut.blocks);
    EXPECT_LE(mix->first.shared_bytes, kH200SharedBytes);
    EXPECT_LE(mix->second.shared_bytes, kH200SharedBytes);
    const auto eight = matmul_mix_plan(query_of({6240, 5120}, 8, DType::kIQ4_XS),
                                       query_of({10240, 5120}, 8, DType::kQ5_K));
    EXPECT_EQ(mix->first.numerics_id, eight->first.numerics_id);
    EXPECT_EQ(mix->second.numerics_id, eight->second.numerics_id);
    EXPECT_FALSE(matmul_mix_plan(query_of({6240, 5120}, 9, DType::kIQ4_XS),
                                 query_of({10240, 5120}, 9, DType::kQ5_K)));
    EXPECT_FALSE(matmul_mix_plan(query_of({248320, 5120}, 1, DType::kIQ4_XS),
                                 query_of({248320, 5120}, 1, DType::kQ5_K)));
}

TEST(MatmulPlanTest, RefusalsSayWhy) {
    EXPECT_THAT(matmul_plan(query_of({16, 576}, 1, DType::kIQ4_XS)).error(),
                HasSubstr("no packed order"));
    EXPECT_THAT(matmul_plan(query_of({16, 65536}, 1, DType::kIQ4_XS)).error(),
                HasSubstr("65536 is above 32768"));
    EXPECT_THAT(matmul_plan(query_of({16, 256}, 0, DType::kIQ4_XS)).error(), HasSubstr("0 rows"));
    EXPECT_THAT(matmul_plan(query_of({0, 256}, 1, DType::kIQ4_XS)).error(),
                HasSubstr("out of range"));
    MatmulQuery tiny = query_of({16, 256}, 8, DType::kIQ4_XS);
    tiny.shared_bytes_max = 48 * 1024;
    EXPECT_THAT(matmul_plan(tiny).error(), HasSubstr("do not hold one record"));
    tiny.rows = tiny.step_rows = 64;
    EXPECT_THAT(matmul_plan(tiny).error(), HasSubstr("do not hold the ring"));
}

TEST(ArmedTest, ARequiredKernelThatIsNotArmedIsNamedWithItsReason) {
    const KernelEntry entries[] = {
        {.name = "matmul_mma", .variant = "IQ4_XS", .reason = {}, .fallback = "linear"},
        {.name = "matmul_mma",
         .variant = "Q6_K",
         .state = KernelState::kDisabled,
         .reason = "by the operator",
         .fallback = "linear"}};
    const std::string one[] = {"matmul_mma/IQ4_XS"};
    EXPECT_THAT(absent(entries, one), IsEmpty());
    const std::string all[] = {"matmul_mma"};
    EXPECT_THAT(absent(entries, all),
                ElementsAre("kernel matmul_mma/Q6_K is disabled: by the operator"));
    const std::string unknown[] = {"matmul"};
    EXPECT_THAT(absent(entries, unknown), ElementsAre("no kernel is called matmul"));
}

}  // namespace
}  // namespace kernels::cuda

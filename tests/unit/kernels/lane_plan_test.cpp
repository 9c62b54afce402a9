// Plans of products on sm_70 for all real shapes and row counts, which card takes which code, and
// that on compute capability 7.0 every operation of every model has a kernel with code for it.
#include "kernels/cuda/lane_plan.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/pack_host.h"
#include "kernels/cuda/serving_sm_70.h"

namespace kernels::cuda {
namespace {

using testing::HasSubstr;

constexpr int kV100SharedBytes = 96 << 10;

struct Shape {
    std::int64_t n, k;
};
/// Demo, 0.8B, 2B, 4B, 9B, 27B: in-projection, q/k/v, out, gate/up, down, head; and small ones.
constexpr Shape kShapes[] = {
    {3072, 256},   {256, 1024},    {2048, 256},   {4096, 256},  {8192, 1024},  {7168, 1024},
    {1024, 3584},  {248320, 1024}, {2048, 6144},  {9216, 2560}, {2560, 9216},  {12288, 4096},
    {4096, 12288}, {16384, 5120},  {14336, 5120}, {5120, 6144}, {34816, 5120}, {5120, 17408},
    {48, 5120},    {248320, 5120}, {5120, 10240}, {1, 256},     {17, 768},     {8, 256}};

LaneQuery query_of(const Shape& shape, std::int64_t rows) {
    return {.step_rows = rows,
            .rows = rows,
            .tiles = tile_count(shape.n, WeightOrder::kLanes),
            .k = shape.k};
}

TEST(LanePlanTest, UpToADozenRowsGoByDp4aAndMoreByTheTensorCores) {
    for (const Shape& shape : kShapes)
        for (std::int64_t rows = 1; rows <= kLaneColumnsMax; ++rows) {
            const auto plan = lane_plan(query_of(shape, rows));
            ASSERT_TRUE(plan);
            EXPECT_EQ(plan->way, rows <= 12 ? LaneWay::kDp4a : LaneWay::kHmma);
            EXPECT_GE(plan->columns, rows);
            EXPECT_LE(plan->columns, kLaneColumnsMax);
            EXPECT_LE(plan->shared_bytes, kV100SharedBytes / 2) << "no opt-in, two blocks at once";
            EXPECT_LE(plan->partial_floats, lane_partial_floats());
            EXPECT_LE(std::int64_t{plan->stretches} * kStretchSlabs * plan->columns *
                          (plan->way == LaneWay::kDp4a ? 32 : 64),
                      lane_x_bytes(shape.k));
            EXPECT_LE(std::int64_t{plan->stretches} * kStretchSlabs * plan->columns *
                          (plan->way == LaneWay::kDp4a ? 16 : 4),
                      lane_side_bytes(shape.k));
        }
}

TEST(LanePlanTest, EveryTileAndEveryStretchHasAPart) {
    for (const Shape& shape : kShapes)
        for (const std::int64_t rows : {1, 12, 13, 64}) {
            const LaneQuery query = query_of(shape, rows);
            const auto plan = lane_plan(query);
            EXPECT_GE(plan->blocks * (plan->way == LaneWay::kHmma ? kHmmaWarps : 1), query.tiles);
            EXPECT_GE(std::int64_t{plan->stretches} * kStretchInputs, shape.k);
            EXPECT_GE(plan->splits, 1);
            EXPECT_LE(plan->splits, plan->stretches) << "no part is empty";
        }
}

TEST(LanePlanTest, LargeMatricesFillAV100) {
    for (const Shape& shape : {Shape{5120, 17408}, {5120, 6144}, {14336, 5120}, {2560, 9216}}) {
        const auto plan = lane_plan(query_of(shape, 32));
        EXPECT_GE(plan->blocks * plan->splits, kHmmaBlocksWanted) << shape.n;
    }
}

TEST(LanePlanTest, WhatARowsBitsDependOnIsTheSameForAllRowsOfAWay) {
    for (const Shape& shape : kShapes) {
        const std::uint64_t few = lane_plan(query_of(shape, 1))->numerics_id;
        const std::uint64_t many = lane_plan(query_of(shape, 13))->numerics_id;
        EXPECT_NE(few, many);
        for (std::int64_t rows = 1; rows <= kLaneColumnsMax; ++rows) {
            EXPECT_EQ(lane_plan(query_of(shape, rows))->numerics_id, rows <= 12 ? few : many);
            // The end of a step of many.
            LaneQuery rest = query_of(shape, rows);
            rest.step_rows = 4096;
            EXPECT_EQ(lane_plan(rest)->numerics_id, many);
        }
    }
}

TEST(LanePlanTest, OneOfThemOffLeavesAllToTheOther) {
    LaneQuery query = query_of({5120, 6144}, 64);
    query.has_hmma = false;
    EXPECT_EQ(lane_plan(query)->way, LaneWay::kDp4a);
    EXPECT_EQ(lane_plan(query)->columns, 64);
    query = query_of({5120, 6144}, 1);
    query.has_dp4a = false;
    EXPECT_EQ(lane_plan(query)->way, LaneWay::kHmma);
    query.has_hmma = false;
    EXPECT_FALSE(lane_plan(query));
}

TEST(ArchitectureTest, HopperTakesCubinsAndOthersFromVoltaOnTakePtxWhereThereIsSome) {
    EXPECT_EQ(*code_for({9, 0}, false), CodeKind::kSm90);
    EXPECT_EQ(*code_for({9, 0}, true), CodeKind::kSm90);
    for (const Capability card : {Capability{7, 0}, {7, 5}, {8, 0}, {10, 0}})
        EXPECT_EQ(*code_for(card, true), CodeKind::kSm70);
    EXPECT_THAT(code_for({7, 0}, false).error(),
                AllOf(HasSubstr("is sm_70"), HasSubstr("QUADRIGA_CUDA_SM70=ON")));
    EXPECT_THAT(code_for({6, 1}, true).error(), HasSubstr("is sm_61"));
    EXPECT_THAT(code_for({6, 1}, false).error(), Not(HasSubstr("QUADRIGA_CUDA_SM70")));
    EXPECT_THAT(architectures(true), testing::ElementsAre("9.0", "7.0"));
}

void expect_served(const ServingQuery& query) {
    const Serving serving = serving_on_sm_70(query);
    const std::string what = "operation " + std::to_string(static_cast<int>(query.op)) + " type " +
                             std::to_string(static_cast<int>(query.dtype)) + " rows " +
                             std::to_string(query.rows);
    EXPECT_NE(serving.is_by_host, !serving.kernels.empty()) << what;
    for (const KernelId id : serving.kernels)
        EXPECT_TRUE(has_code(id, CodeKind::kSm70)) << what << ": " << name_of(id).symbol;
}

TEST(ServingTest, EveryOperationHasAKernelOrTheHostOnSm70) {
    for (const ServedOp op :
         {ServedOp::kEmbed, ServedOp::kNorm, ServedOp::kSample, ServedOp::kSlots})
        expect_served({.op = op});
    for (const std::int32_t head_dim : {32, 64, 80, 96, 128, 256})
        expect_served({.op = ServedOp::kAttention, .head_dim = head_dim});
    for (const std::int32_t state_size : {16, 32, 64, 128})
        expect_served({.op = ServedOp::kDeltaNet, .state_size = state_size});
    for (const DType dtype : kLinearTypes)
        for (const Shape& shape : kShapes)
            for (const std::int64_t rows : {1, 2, 12, 13, 64, 65, 512, 4096})
                expect_served({.dtype = dtype, .n = shape.n, .k = shape.k, .rows = rows});
}

TEST(ServingTest, PackedTypesGoToTheirOwnKernels) {
    const auto names = [](std::int64_t rows) {
        std::string text;
        for (const KernelId id :
             serving_on_sm_70({.dtype = DType::kIQ4_XS, .n = 5120, .k = 17408, .rows = rows})
                 .kernels)
            text += std::string(name_of(id).symbol) + " ";
        return text;
    };
    EXPECT_EQ(names(1), "quantise_lanes matmul_dp4a_iq4_xs_1 ");
    EXPECT_EQ(names(9), "quantise_lanes matmul_dp4a_iq4_xs_12 ");
    EXPECT_EQ(names(13), "halve_lanes matmul_hmma_iq4_xs finish_lanes ");
}

TEST(ServingTest, EveryKernelOfSm70AloneIsOneThatServes) {
    std::set<std::string_view> serving;
    for (const DType dtype : kMatmulTypes) {
        for (const std::int64_t rows : {1, 2, 4, 8, 12, 64})
            for (const KernelId id :
                 serving_on_sm_70({.dtype = dtype, .n = 5120, .k = 5120, .rows = rows}).kernels)
                serving.insert(name_of(id).symbol);
        const int type = matmul_type_index(dtype);
        serving.insert(name_of(pack_lanes_kernel(type)).symbol);      // at load
        serving.insert(name_of(matmul_dp4a_kernel(type, 5)).symbol);  // where the other one is off
    }
    for (std::size_t i = 0; i < kernel_names().size(); ++i) {
        const auto id = static_cast<KernelId>(i);
        if (!has_code(id, CodeKind::kSm70) || has_code(id, CodeKind::kSm90)) continue;
        EXPECT_TRUE(serving.contains(name_of(id).symbol)) << name_of(id).symbol;
    }
}

}  // namespace
}  // namespace kernels::cuda

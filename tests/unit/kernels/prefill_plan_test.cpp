// The plan of products of many tokens, and what is said when cuBLASLt is missing. No GPU.
#include "kernels/cuda/prefill_plan.h"

#include <cmath>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/prefill_table.h"

namespace kernels::cuda {
namespace {

TEST(PrefillPlanTest, TheCrossoverIsWhereTheMeasuredPathStaysAhead) {
    for (const PrefillMeasured& m : kPrefillTable) {
        const std::int64_t least =
            prefill_rows_min({.dtype = m.dtype, .n = m.n, .k = m.k, .multiprocessors = 132});
        for (std::size_t i = 0; i < std::size(kPrefillRows); ++i)
            if (kPrefillRows[i] >= least) {
                EXPECT_LT(m.cublaslt_us[i], 0.97F * m.matmul_us[i]) << m.n << " x " << m.k;
            }
    }
}

TEST(PrefillPlanTest, SlicesCoverAMatrixInWholeTilesWithinTheirBytes) {
    for (const std::int64_t rows : {64, 512, 4096, 16384})
        for (const auto& [n, k] : {std::pair{34816, 5120},
                                   {5120, 17408},
                                   {17, 256},
                                   {248320, 5120},
                                   {5120, 6144},
                                   {2048, 256},
                                   {48, 5120}}) {
            const PrefillLimits limits{.rows = rows};
            const std::int64_t slice = prefill_slice_rows(limits, n, k);
            EXPECT_EQ(slice % 16, 0);
            EXPECT_GE(slice, 16);
            if (slice > 128) {
                EXPECT_LE(slice * prefill_inputs(k) * 2, limits.weight_bytes);
                EXPECT_LE(slice * rows * 4, limits.sum_bytes);
            }
            EXPECT_LT(slice, n + 128);
        }
    EXPECT_EQ(prefill_slice_rows({.rows = 512}, 34816, 5120), 17408);  // two equal ones
}

TEST(PrefillPlanTest, TheLargestWeightBecomesABinary16WellInsideItsRange) {
    for (const float largest : {1e-26F, 0.0123F, 1.0F, 7.9F, 65504.0F, 3e30F}) {
        const float scale = prefill_weight_scale(largest);
        int exponent = 0;
        EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << "a power of two";
        EXPECT_GE(largest * scale, 0x1p12F);
        EXPECT_LT(largest * scale, 0x1p13F);
    }
    EXPECT_EQ(prefill_weight_scale(0.0F), 0.0F);
    EXPECT_EQ(prefill_weight_scale(std::numeric_limits<float>::infinity()), 0.0F);
    EXPECT_EQ(prefill_weight_scale(std::numeric_limits<float>::quiet_NaN()), 0.0F);
}

TEST(PrefillPlanTest, OneIdServesABucketOfRowCounts) {
    const PrefillQuery query{.dtype = DType::kIQ4_XS, .n = 5120, .k = 6144, .multiprocessors = 132};
    std::set<std::uint64_t> ids;
    for (const std::int64_t bucket : {64, 128, 256, 512, 1024, 2048, 4096}) {
        EXPECT_EQ(prefill_bucket(bucket), bucket);
        EXPECT_EQ(prefill_bucket(bucket / 2 + 1), bucket);
        EXPECT_EQ(prefill_numerics_id(query, bucket), prefill_numerics_id(query, bucket / 2 + 1));
        ids.insert(prefill_numerics_id(query, bucket));
    }
    EXPECT_EQ(ids.size(), 7U);
}

}  // namespace
}  // namespace kernels::cuda

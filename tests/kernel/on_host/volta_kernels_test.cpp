// matmul_dp4a and matmul_hmma, the device code of sm_70 itself, against products in double of the
// file's exact weights: every type, every width, ends of tiles, of stretches and of columns; both
// ways to split K; a row's bits whatever the other rows and whatever the order in which warps run;
// NaN.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/lane_plan.h"
#include "kernels/cuda/pack_host.h"
#include "kernels/cuda/params.h"
#include "kernels/quant/decode.h"
#include "kernels/quant/format.h"
#include "tests/kernel/kernel_support.h"
#include "tests/kernel/on_host/fenced.h"
#include "tests/kernel/on_host/grid.h"

namespace kernels::test {
namespace {

using cuda::LaneMatmulParams;
using cuda::LanePlan;
using cuda::LaneWay;
using cuda::LinearEpilogue;
using cuda::PrepareLanesParams;
using Kernel = void (*)(LaneMatmulParams);

extern "C" {
void quantise_lanes(PrepareLanesParams);
void halve_lanes(PrepareLanesParams);
void finish_lanes(LaneMatmulParams);
#define QUADRIGA_TYPE(type)                         \
    void matmul_dp4a_##type##_1(LaneMatmulParams);  \
    void matmul_dp4a_##type##_2(LaneMatmulParams);  \
    void matmul_dp4a_##type##_4(LaneMatmulParams);  \
    void matmul_dp4a_##type##_8(LaneMatmulParams);  \
    void matmul_dp4a_##type##_12(LaneMatmulParams); \
    void matmul_dp4a_##type##_64(LaneMatmulParams); \
    void matmul_hmma_##type(LaneMatmulParams);
QUADRIGA_TYPE(iq4_xs)
QUADRIGA_TYPE(q6_k)
QUADRIGA_TYPE(q5_k)
QUADRIGA_TYPE(q8_0)
QUADRIGA_TYPE(q4_k)
QUADRIGA_TYPE(q4_0)
QUADRIGA_TYPE(iq4_nl)
#undef QUADRIGA_TYPE
}

struct TypeKernels {
    DType dtype;
    Kernel dp4a[6];
    Kernel hmma;
};
#define QUADRIGA_KERNELS(dtype, type)                                                             \
    {                                                                                             \
        DType::dtype, {matmul_dp4a_##type##_1, matmul_dp4a_##type##_2,  matmul_dp4a_##type##_4,   \
                       matmul_dp4a_##type##_8, matmul_dp4a_##type##_12, matmul_dp4a_##type##_64}, \
            matmul_hmma_##type                                                                    \
    }
const TypeKernels kTypes[] = {QUADRIGA_KERNELS(kIQ4_XS, iq4_xs), QUADRIGA_KERNELS(kQ6_K, q6_k),
                              QUADRIGA_KERNELS(kQ5_K, q5_k),     QUADRIGA_KERNELS(kQ8_0, q8_0),
                              QUADRIGA_KERNELS(kQ4_K, q4_k),     QUADRIGA_KERNELS(kQ4_0, q4_0),
                              QUADRIGA_KERNELS(kIQ4_NL, iq4_nl)};
#undef QUADRIGA_KERNELS

// Section 10 of the kernels' specification; expected are half and a third.
constexpr double kDp4aLimit = 1e-2;
constexpr double kHmmaLimit = 1e-3;

struct Problem {
    std::int64_t n = 0;
    std::int64_t k = 0;
    int rows = 1;
    LaneWay way = LaneWay::kDp4a;
    bool has_norm = false;
    bool has_bias = false;
    LinearEpilogue epilogue = LinearEpilogue::kStore;
    int first_row = 0;
    std::uint32_t seed = 0;
};

struct Data {
    std::vector<std::uint8_t> blocks;
    std::vector<float> x, norm, bias, y;  // y as it is before

    Data(DType dtype, const Problem& p, std::uint64_t seed) {
        Random random(seed);
        blocks = random_blocks(dtype, p.n * p.k, random);
        x = random.normals((p.first_row + p.rows) * p.k);
        norm = random.normals(p.k);
        bias = random.normals(p.n);
        y = random.normals((p.first_row + p.rows) * p.n);
    }
};

LanePlan plan_of(const Problem& p) {
    const auto plan = cuda::lane_plan({.step_rows = p.rows,
                                       .rows = p.rows,
                                       .tiles = cuda::tile_count(p.n, cuda::WeightOrder::kLanes),
                                       .k = p.k,
                                       .has_dp4a = p.way == LaneWay::kDp4a,
                                       .has_hmma = p.way == LaneWay::kHmma});
    EXPECT_TRUE(plan);
    return *plan;
}

/// All of y, after the device code.
std::vector<float> run(const TypeKernels& type, const Problem& p, const Data& data) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const LanePlan plan = plan_of(p);
    const std::int64_t row_bytes = kernels::row_bytes(type.dtype, p.k);
    on_host::Fenced<std::uint8_t> records(
        cuda::pack_on_host(type.dtype,
                           {.rows = data.blocks.data(),
                            .partner = nullptr,
                            .row_bytes = row_bytes,
                            .row_count = static_cast<std::int32_t>(p.n),
                            .k = static_cast<std::int32_t>(p.k)},
                           cuda::WeightOrder::kLanes));
    const auto slabs = static_cast<std::size_t>(plan.stretches) * 4;
    const auto columns = static_cast<std::size_t>(plan.columns);
    const bool is_hmma = plan.way == LaneWay::kHmma;
    on_host::Fenced<std::uint8_t> x(
        std::vector<std::uint8_t>(slabs * columns * (is_hmma ? 64 : 32), 0xFF));
    on_host::Fenced<std::uint8_t> sides(
        std::vector<std::uint8_t>(slabs * columns * (is_hmma ? 4 : 16), 0xFF));
    on_host::Fenced<float> factors(std::vector<float>(64, kNan));
    on_host::Fenced<float> partials(
        std::vector<float>(static_cast<std::size_t>(plan.partial_floats), kNan));
    const std::int32_t live = p.first_row + p.rows;
    std::vector<float> y = data.y;

    PrepareLanesParams prepare{};
    prepare.rows = &live;
    prepare.first_row = p.first_row;
    prepare.input.x = data.x.data();
    prepare.input.x_stride = p.k;
    prepare.input.weight = p.has_norm ? data.norm.data() : nullptr;
    prepare.input.eps = 1e-6F;
    prepare.input.k = static_cast<std::int32_t>(p.k);
    prepare.slabs = static_cast<std::int32_t>(slabs);
    prepare.columns = plan.columns;
    prepare.x = x.data();
    prepare.sides = sides.data();
    prepare.factors = factors.data();
    on_host::run({.x = plan.columns,
                  .y = static_cast<int>((slabs + 15) / 16),
                  .threads = 256,
                  .seed = p.seed},
                 [&] { is_hmma ? halve_lanes(prepare) : quantise_lanes(prepare); });

    LaneMatmulParams product{};
    product.rows = &live;
    product.first_row = p.first_row;
    product.records = records.data();
    product.tiles = static_cast<std::int32_t>(cuda::tile_count(p.n, cuda::WeightOrder::kLanes));
    product.k_records = static_cast<std::int32_t>(cuda::record_count(p.k));
    product.stretches = plan.stretches;
    product.columns = plan.columns;
    product.splits = plan.splits;
    product.x = x.data();
    product.sides = sides.data();
    product.factors = factors.data();
    product.partials = partials.data();
    product.bias = p.has_bias ? data.bias.data() : nullptr;
    product.y = y.data();
    product.y_stride = p.n;
    product.outputs = static_cast<std::int32_t>(p.n);
    product.end = product.outputs;
    product.epilogue = p.epilogue;
    on_host::run({.x = static_cast<int>(plan.blocks),
                  .y = plan.splits,
                  .threads = plan.threads,
                  .seed = p.seed},
                 [&] { (is_hmma ? type.hmma : type.dp4a[plan.width])(product); });
    if (plan.splits > 1)
        on_host::run({.x = static_cast<int>((p.n + 255) / 256),
                      .y = plan.columns,
                      .threads = 256,
                      .seed = p.seed},
                     [&] { finish_lanes(product); });
    return y;
}

/// What y should be, and how large the sums' terms are: the root of the sum of their squares. With
/// few outputs terms may cancel, and an error that is small beside them is not beside y.
struct Reference {
    std::vector<double> y;
    double terms = 0.0;
};

Reference reference(DType dtype, const Problem& p, const Data& data) {
    std::vector<float> w(static_cast<std::size_t>(p.n * p.k));
    decode_row(dtype, data.blocks.data(), w.data(), p.n * p.k);
    Reference result{{data.y.begin(), data.y.end()}, 0.0};
    std::vector<double>& y = result.y;
    for (std::int64_t m = p.first_row; m < p.first_row + p.rows; ++m) {
        const float* x = data.x.data() + m * p.k;
        double squares = 0.0;
        for (std::int64_t i = 0; i < p.k; ++i)
            squares += double{x[i]} * double{x[i]};
        const double factor =
            p.has_norm ? 1.0 / std::sqrt(squares / static_cast<double>(p.k) + 1e-6) : 1.0;
        for (std::int64_t n = 0; n < p.n; ++n) {
            double sum = 0.0;
            for (std::int64_t i = 0; i < p.k; ++i) {
                const double term =
                    double{w[static_cast<std::size_t>(n * p.k + i)]} * double{x[i]} * factor *
                    (p.has_norm ? double{data.norm[static_cast<std::size_t>(i)]} : 1.0);
                sum += term;
                result.terms += term * term;
            }
            if (p.has_bias) sum += double{data.bias[static_cast<std::size_t>(n)]};
            double& to = y[static_cast<std::size_t>(m * p.n + n)];
            if (p.epilogue == LinearEpilogue::kAdd)
                to += sum;
            else if (p.epilogue == LinearEpilogue::kSiluTimes)
                to = to / (1.0 + std::exp(-to)) * sum;
            else
                to = sum;
        }
    }
    result.terms = std::sqrt(result.terms);
    return result;
}

double error_of(const std::vector<float>& values, const Reference& reference) {
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < reference.y.size(); ++i) {
        const double d = double{values[i]} - reference.y[i];
        difference += d * d;
        norm += reference.y[i] * reference.y[i];
    }
    return std::sqrt(difference) / std::max(std::sqrt(norm), reference.terms);
}

std::string text_of(DType dtype, const Problem& p) {
    return std::string(name_of(dtype)) + " " + std::to_string(p.n) + " x " + std::to_string(p.k) +
           ", " + std::to_string(p.rows) + " rows by " +
           (p.way == LaneWay::kDp4a ? "dp4a" : "hmma");
}

void expect_right(const TypeKernels& type, const Problem& p) {
    const Data data(type.dtype, p, 1);
    const double error = error_of(run(type, p, data), reference(type.dtype, p, data));
    const double limit = p.way == LaneWay::kDp4a ? kDp4aLimit : kHmmaLimit;
    EXPECT_TRUE(error <= limit) << text_of(type.dtype, p) << ": " << error;
    EXPECT_GT(error, 0.0) << text_of(type.dtype, p) << ": compared with itself";
}

std::vector<std::int64_t> inputs_of(DType dtype) {
    if (format_of(dtype).block_values == 256) return {768};
    if (dtype == DType::kQ4_0) return {32, 576};  // one slab; half a record and more
    return {160};                                 // a stretch and a slab
}

TEST(VoltaKernelsTest, EveryTypeAndWidthIsWithinItsLimit) {
    for (const TypeKernels& type : kTypes)
        for (const std::int64_t k : inputs_of(type.dtype)) {
            for (const int rows : {1, 2, 3, 7, 12})
                expect_right(type, {.n = 37, .k = k, .rows = rows, .way = LaneWay::kDp4a});
            for (const int rows : {1, 21})
                expect_right(type, {.n = 133, .k = k, .rows = rows, .way = LaneWay::kHmma});
        }
}

TEST(VoltaKernelsTest, SixtyFourRowsOfBothWays) {
    for (const TypeKernels& type : kTypes)
        for (const LaneWay way : {LaneWay::kDp4a, LaneWay::kHmma})
            expect_right(type, {.n = 33, .k = 256, .rows = 64, .way = way});
}

TEST(VoltaKernelsTest, NormBiasAndEpiloguesAreTheOnesOfLinear) {
    for (const LaneWay way : {LaneWay::kDp4a, LaneWay::kHmma})
        for (const LinearEpilogue epilogue :
             {LinearEpilogue::kStore, LinearEpilogue::kAdd, LinearEpilogue::kSiluTimes})
            for (const std::int64_t k : {256, 1536})  // one split of K and several
                expect_right(kTypes[0], {.n = 40,
                                         .k = k,
                                         .rows = 5,
                                         .way = way,
                                         .has_norm = true,
                                         .has_bias = true,
                                         .epilogue = epilogue,
                                         .first_row = 3});
}

TEST(VoltaKernelsTest, ARowHasTheSameBitsAloneAndAmongOthersAndHoweverWarpsRun) {
    for (const TypeKernels& type : {kTypes[0], kTypes[1], kTypes[2]})
        for (const LaneWay way : {LaneWay::kDp4a, LaneWay::kHmma}) {
            Problem p{.n = 37, .k = 768, .rows = 17, .way = way, .has_norm = true};
            const Data data(type.dtype, p, 3);
            const std::vector<float> all = run(type, p, data);
            for (const std::uint32_t seed : {1U, 2U}) {
                p.seed = seed;
                EXPECT_EQ(run(type, p, data), all) << text_of(type.dtype, p);
            }
            for (const int rows : {1, 2, 3, 5, 9}) {
                p.rows = rows;
                const std::vector<float> some = run(type, p, data);
                for (std::size_t i = 0; i < static_cast<std::size_t>(rows * p.n); ++i)
                    ASSERT_EQ(some[i], all[i]) << text_of(type.dtype, p) << " at " << i;
            }
        }
}

TEST(VoltaKernelsTest, RowsOutsideTheRangeAreNotTouched) {
    for (const LaneWay way : {LaneWay::kDp4a, LaneWay::kHmma}) {
        const Problem p{.n = 37, .k = 256, .rows = 2, .way = way, .first_row = 4};
        const Data data(DType::kQ4_K, p, 4);
        const std::vector<float> y = run(kTypes[4], p, data);
        for (std::size_t i = 0; i < static_cast<std::size_t>(4 * p.n); ++i)
            ASSERT_EQ(y[i], data.y[i]);
    }
}

TEST(VoltaKernelsTest, ANanOrAnInfinityInARowIsSeenInAllItsOutputsAndInNoOtherRow) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        for (const LaneWay way : {LaneWay::kDp4a, LaneWay::kHmma}) {
            const Problem p{.n = 37, .k = 256, .rows = 3, .way = way};
            Data data(DType::kIQ4_XS, p, 5);
            const std::vector<float> good = run(kTypes[0], p, data);
            data.x[static_cast<std::size_t>(p.k + 77)] = bad;
            const std::vector<float> y = run(kTypes[0], p, data);
            for (std::size_t i = 0; i < y.size(); ++i) {
                const bool is_hit = i / 37 == 1;
                ASSERT_EQ(std::isfinite(y[i]), !is_hit) << i;
                if (!is_hit) {
                    ASSERT_EQ(y[i], good[i]);
                }
            }
        }
}

TEST(VoltaKernelsTest, RowsOfAnySizeKeepTheirAccuracy) {
    for (const LaneWay way : {LaneWay::kDp4a, LaneWay::kHmma})
        for (const float size : {0x1p-40F, 0x1p40F}) {
            const Problem p{.n = 64, .k = 512, .rows = 3, .way = way};
            Data data(DType::kQ6_K, p, 6);
            for (float& x : data.x)
                x *= size;
            const double error =
                error_of(run(kTypes[1], p, data), reference(DType::kQ6_K, p, data));
            EXPECT_TRUE(error <= (way == LaneWay::kDp4a ? kDp4aLimit : kHmmaLimit)) << error;
        }
}

}  // namespace
}  // namespace kernels::test

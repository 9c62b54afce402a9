// linear against a plain double computation, for every weight type over the shared shapes.
//
// The expected values come from decode_row (proved by the quant tests) and loops in this file. Two
// measures: the norm of the error against the norm of the result, and the worst error against
// sum |w x|, which stays meaningful for a single output. Quantised activations must show *some*
// error: none would mean that something was compared with itself.
#include <algorithm>
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/simd_kernels.h"
#include "kernels/quant/decode.h"
#include "tests/kernel/kernel_support.h"
#include "tests/kernel/shapes.h"

namespace kernels::test {
namespace {

struct Limits {
    double norm;
    double worst;
};
// f32 sums of up to 17408 terms: 2^-24 * sqrt(K) is 8e-6 at most, seen 2e-7. Activations in int8
// per 32: a step of amax / 127 is off by 0.29 steps on average, 0.5 % of a Gaussian.
constexpr Limits kFloatLimits = {1e-5, 1e-5};
constexpr Limits kQuantLimits = {1e-2, 1e-2};
constexpr Limits kDoubleLimits = {1e-6, 1e-6};

struct Expected {
    std::vector<double> value;      // [M, N]
    std::vector<double> magnitude;  // [M, N] sum |w x|
};

/// rows of x times W, in double.
Expected multiply(DType dtype, const std::vector<std::uint8_t>& blocks, const LinearShape& shape,
                  const std::vector<double>& x) {
    const auto n_count = static_cast<std::size_t>(shape.n);
    const auto k_count = static_cast<std::size_t>(shape.k);
    const auto rows = static_cast<std::size_t>(shape.m);
    Expected expected{std::vector<double>(rows * n_count), std::vector<double>(rows * n_count)};
    std::vector<float> w(k_count);
    const std::int64_t bytes = row_bytes(dtype, shape.k);
    for (std::size_t n = 0; n < n_count; ++n) {
        decode_row(dtype, blocks.data() + static_cast<std::int64_t>(n) * bytes, w.data(), shape.k);
        for (std::size_t m = 0; m < rows; ++m) {
            double value = 0.0;
            double magnitude = 0.0;
            for (std::size_t i = 0; i < k_count; ++i) {
                const double product = w[i] * x[m * k_count + i];
                value += product;
                magnitude += std::abs(product);
            }
            expected.value[m * n_count + n] = value;
            expected.magnitude[m * n_count + n] = magnitude;
        }
    }
    return expected;
}

std::vector<double> as_double(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

double worst_error(const std::vector<float>& out, const Expected& expected) {
    double worst = 0.0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const double error = std::abs(out[i] - expected.value[i]) / expected.magnitude[i];
        if (!(error <= worst)) worst = error;  // a NaN wins
    }
    return worst;
}

void check_shape(DType dtype, const LinearShape& shape, CpuAccumulator accumulator, int threads,
                 Limits limits) {
    SCOPED_TRACE(std::string(name_of(dtype)) + " N " + std::to_string(shape.n) + " K " +
                 std::to_string(shape.k) + " M " + std::to_string(shape.m));
    Random random(static_cast<std::uint64_t>(shape.n * 1000 + shape.k + shape.m));
    const std::vector<std::uint8_t> blocks = random_blocks(dtype, shape.n * shape.k, random);
    const std::vector<float> x = random.normals(shape.m * shape.k);
    const auto backend = make_backend({.threads = threads, .accumulator = accumulator});
    MatrixView w;
    const MatrixSource source{"w", dtype, blocks.data(), shape.n, shape.k};
    ASSERT_FALSE(backend->pack({&source, 1}, w).has_value());
    ASSERT_FALSE(
        backend->prepare(limits_of({.rows = shape.m, .inputs_max = static_cast<int>(shape.k)}))
            .has_value());
    GuardedRows y(shape.m, shape.n);
    const Step step = Step::of_rows(shape.m);
    backend->begin_step(step.descriptor);
    backend->linear({.x = view_of(x.data(), shape.m, shape.k), .w = w, .y = y.view()});
    backend->finish_step();

    const Expected expected = multiply(dtype, blocks, shape, as_double(x));
    const std::vector<float> out = y.all();
    const double worst = worst_error(out, expected);
    EXPECT_TRUE(worst <= limits.worst) << worst;
    if (shape.n * shape.m >= 64) {
        const double error = relative_error(out, expected.value);
        EXPECT_TRUE(error <= limits.norm) << error;
        if (accumulator == CpuAccumulator::kFloat && !is_float_type(dtype)) {
            EXPECT_GT(error, 1e-4) << "activations are quantised, some error must show";
        }
    }
    EXPECT_TRUE(y.guards_are_intact());
}

class LinearTest : public testing::TestWithParam<DType> {};

TEST_P(LinearTest, AgreesWithAPlainProductOverAllShapes) {
    const DType dtype = GetParam();
    for (const LinearShape& shape : linear_shapes(dtype))
        check_shape(dtype, shape, CpuAccumulator::kFloat, 1,
                    is_float_type(dtype) ? kFloatLimits : kQuantLimits);
}

TEST_P(LinearTest, TheReferenceAgreesToTheLastBitsOfAFloat) {
    for (const LinearShape& shape :
         {LinearShape{17, 256, 3}, LinearShape{33, 768, 2}, LinearShape{48, 4096, 2}})
        check_shape(GetParam(), shape, CpuAccumulator::kDouble, 2, kDoubleLimits);
}

TEST_P(LinearTest, EveryInstructionSetAgrees) {
    const DType dtype = GetParam();
    for (const std::string& target : cpu::simd_targets()) {
        SCOPED_TRACE(target);
        cpu::set_simd_target_for_test(target);
        for (const LinearShape& shape : {LinearShape{21, 768, 1}, LinearShape{16, 256, 15}})
            check_shape(dtype, shape, CpuAccumulator::kFloat, 1,
                        is_float_type(dtype) ? kFloatLimits : kQuantLimits);
    }
    cpu::set_simd_target_for_test("");
}

std::string type_name(const testing::TestParamInfo<DType>& test) {
    return std::string(name_of(test.param));
}

INSTANTIATE_TEST_SUITE_P(Types, LinearTest, testing::ValuesIn(kWeightTypes), type_name);

TEST(LinearShapeTest, TheLargestRealMatrixAgrees) {
    check_shape(DType::kIQ4_XS, kLargeShape, CpuAccumulator::kFloat, 2, kQuantLimits);
}

TEST(LinearTargetTest, MoreThanOneInstructionSetIsBuilt) {
    EXPECT_GE(cpu::simd_targets().size(), 2U);
    EXPECT_EQ(cpu::simd_targets().front(), cpu::simd_target());
}

// ---------------------------------------------------------------------------------------------
// Everything that is folded in: norm, bias, segments, epilogues

/// 24 + 8 + 9 + 55 = 96 outputs of four types: tiles straddle every border.
struct Stack {
    static constexpr std::int64_t kInputs = 512;
    static constexpr std::int64_t kOutputs = 96;
    std::array<DType, 4> types = {DType::kQ4_K, DType::kF32, DType::kQ8_0, DType::kBF16};
    std::array<std::int64_t, 4> outputs = {24, 8, 9, 55};
    std::vector<std::vector<std::uint8_t>> blocks;
    std::vector<MatrixSource> sources;
    std::vector<float> norm, bias, x, residual;
    int rows = 6;

    Stack() {
        Random random(7);
        for (std::size_t s = 0; s < 4; ++s)
            blocks.push_back(random_blocks(types[s], outputs[s] * kInputs, random));
        for (std::size_t s = 0; s < 4; ++s)
            sources.push_back({"part", types[s], blocks[s].data(), outputs[s], kInputs});
        norm = random.uniforms(kInputs, 0.5F, 1.5F);
        bias = random.normals(kOutputs, 3.0F);
        x = random.normals(rows * kInputs, 4.0F);
        residual = random.normals(rows * kOutputs, 10.0F);
    }

    /// W . RMSNorm(x) + bias, in double.
    std::vector<double> product() const {
        std::vector<double> normed;
        for (int m = 0; m < rows; ++m) {
            double squares = 0.0;
            for (std::int64_t i = 0; i < kInputs; ++i)
                squares += std::pow(x[static_cast<std::size_t>(m * kInputs + i)], 2);
            const double factor = 1.0 / std::sqrt(squares / kInputs + 1e-6);
            for (std::int64_t i = 0; i < kInputs; ++i)
                normed.push_back(x[static_cast<std::size_t>(m * kInputs + i)] * factor *
                                 norm[static_cast<std::size_t>(i)]);
        }
        std::vector<double> result(static_cast<std::size_t>(rows * kOutputs));
        std::int64_t first = 0;
        for (std::size_t s = 0; s < 4; ++s) {
            const Expected part =
                multiply(types[s], blocks[s], {outputs[s], kInputs, rows}, normed);
            for (std::int64_t m = 0; m < rows; ++m)
                for (std::int64_t n = 0; n < outputs[s]; ++n)
                    result[static_cast<std::size_t>(m * kOutputs + first + n)] =
                        part.value[static_cast<std::size_t>(m * outputs[s] + n)] +
                        bias[static_cast<std::size_t>(first + n)];
            first += outputs[s];
        }
        return result;
    }
};

class LinearFoldTest : public testing::TestWithParam<CpuAccumulator> {
protected:
    std::vector<float> run(const Stack& stack, Epilogue epilogue) {
        const auto backend = make_backend({.threads = 2, .accumulator = GetParam()});
        MatrixView w;
        EXPECT_FALSE(backend->pack(stack.sources, w).has_value());
        EXPECT_FALSE(backend->prepare(limits_of({.rows = stack.rows})).has_value());
        const std::int64_t columns =
            epilogue == Epilogue::kSwiGlu ? Stack::kOutputs / 2 : Stack::kOutputs;
        GuardedRows y(stack.rows, columns);
        if (epilogue == Epilogue::kAddResidual)
            for (std::int64_t m = 0; m < stack.rows; ++m)
                for (std::int64_t n = 0; n < columns; ++n)
                    y.at(m, n) = stack.residual[static_cast<std::size_t>(m * columns + n)];
        const Step step = Step::of_rows(stack.rows);
        backend->begin_step(step.descriptor);
        backend->linear({.x = view_of(stack.x.data(), stack.rows, Stack::kInputs),
                         .norm_weight = vector_of(stack.norm),
                         .norm_eps = 1e-6F,
                         .w = w,
                         .bias = vector_of(stack.bias),
                         .epilogue = epilogue,
                         .y = y.view()});
        backend->finish_step();
        EXPECT_TRUE(y.guards_are_intact());
        return y.all();
    }
    double limit() const { return GetParam() == CpuAccumulator::kDouble ? 1e-6 : 1e-2; }
};

TEST_P(LinearFoldTest, NormBiasAndFourSegmentsEqualTheirComposition) {
    const Stack stack;
    EXPECT_LE(relative_error(run(stack, Epilogue::kStore), stack.product()), limit());
}

TEST_P(LinearFoldTest, TheResidualIsAddedTo) {
    const Stack stack;
    std::vector<double> expected = stack.product();
    for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] += stack.residual[i];
    EXPECT_LE(relative_error(run(stack, Epilogue::kAddResidual), expected), limit());
}

TEST_P(LinearFoldTest, SwiGluTakesTheFirstHalfAsGate) {
    const Stack stack;
    const std::vector<double> both = stack.product();
    std::vector<double> expected;
    const std::size_t half = Stack::kOutputs / 2;
    for (std::size_t m = 0; m < static_cast<std::size_t>(stack.rows); ++m)
        for (std::size_t n = 0; n < half; ++n) {
            const double gate = both[m * 2 * half + n];
            expected.push_back(gate / (1.0 + std::exp(-gate)) * both[m * 2 * half + half + n]);
        }
    EXPECT_LE(relative_error(run(stack, Epilogue::kSwiGlu), expected), limit());
}

std::string accumulator_name(const testing::TestParamInfo<CpuAccumulator>& test) {
    return test.param == CpuAccumulator::kFloat ? "Float" : "Double";
}

INSTANTIATE_TEST_SUITE_P(Accumulators, LinearFoldTest,
                         testing::Values(CpuAccumulator::kFloat, CpuAccumulator::kDouble),
                         accumulator_name);

}  // namespace
}  // namespace kernels::test

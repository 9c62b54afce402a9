// A row of a linear has the same bits whatever shares its step, however many threads work, and
// whatever its neighbours hold: NaN in one row must not reach another.
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/simd_kernels.h"
#include "tests/kernel/kernel_support.h"
#include "tests/kernel/shapes.h"

namespace kernels::test {
namespace {

constexpr std::int64_t kInputs = 768;
constexpr std::int64_t kOutputs = 41;
constexpr int kRows = 67;  // a block of 64 columns and a remainder

struct Problem {
    std::vector<std::uint8_t> blocks;
    std::vector<float> norm, x;
    DType dtype;

    explicit Problem(DType type) : dtype(type) {
        Random random(11 + static_cast<std::uint64_t>(type));
        blocks = random_blocks(type, kOutputs * kInputs, random);
        norm = random.uniforms(kInputs, 0.5F, 1.5F);
        x = random.normals(kRows * kInputs);
    }

    /// Rows begin .. end-1 of x as one step.
    std::vector<float> run(int begin, int end, int threads) const {
        const auto backend = make_backend({.threads = threads});
        MatrixView w;
        const MatrixSource source{"w", dtype, blocks.data(), kOutputs, kInputs};
        EXPECT_FALSE(backend->pack({&source, 1}, w).has_value());
        EXPECT_FALSE(backend->prepare(limits_of({.rows = kRows})).has_value());
        const int rows = end - begin;
        GuardedRows y(rows, kOutputs);
        const Step step = Step::of_rows(rows);
        backend->begin_step(step.descriptor);
        backend->linear({.x = view_of(x.data() + begin * kInputs, rows, kInputs),
                         .norm_weight = vector_of(norm),
                         .norm_eps = 1e-6F,
                         .w = w,
                         .y = y.view()});
        backend->finish_step();
        return y.all();
    }
};

std::vector<float> row_of(const std::vector<float>& all, int row) {
    return {all.begin() + row * kOutputs, all.begin() + (row + 1) * kOutputs};
}

class LinearInvarianceTest : public testing::TestWithParam<DType> {};

TEST_P(LinearInvarianceTest, BatchedRowsEqualRowsAloneOnEveryInstructionSet) {
    const Problem problem(GetParam());
    for (const std::string& target : cpu::simd_targets()) {
        SCOPED_TRACE(target);
        cpu::set_simd_target_for_test(target);
        const std::vector<float> together = problem.run(0, kRows, 1);
        for (const int row : {0, 1, 7, 8, 31, 62, 63, 64, 66})
            EXPECT_EQ(first_difference(row_of(together, row), problem.run(row, row + 1, 1)), "")
                << "row " << row;
    }
    cpu::set_simd_target_for_test("");
}

TEST_P(LinearInvarianceTest, SplitsOfAPromptEqualTheWhole) {
    const Problem problem(GetParam());
    const std::vector<float> whole = problem.run(0, kRows, 1);
    for (const int at : {1, 2, 3, 5, 9, 33, 64, 66}) {
        std::vector<float> parts = problem.run(0, at, 1);
        const std::vector<float> rest = problem.run(at, kRows, 1);
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_EQ(first_difference(whole, parts), "") << "split at " << at;
    }
}

TEST_P(LinearInvarianceTest, TheNumberOfThreadsDoesNotShow) {
    const Problem problem(GetParam());
    const std::vector<float> one = problem.run(0, kRows, 1);
    EXPECT_EQ(first_difference(one, problem.run(0, kRows, 2)), "");
    EXPECT_EQ(first_difference(one, problem.run(0, kRows, 3)), "");
}

TEST_P(LinearInvarianceTest, NanStaysInItsRow) {
    Problem problem(GetParam());
    const std::vector<float> clean = problem.run(0, 9, 1);
    problem.x[3 * kInputs + 100] = std::nanf("");
    problem.x[5 * kInputs + 700] = std::numeric_limits<float>::infinity();
    const std::vector<float> dirty = problem.run(0, 9, 1);
    for (int row = 0; row < 9; ++row) {
        if (row == 3 || row == 5) {
            for (const float value : row_of(dirty, row))
                EXPECT_FALSE(std::isfinite(value)) << "row " << row << " hides its NaN";
        } else {
            EXPECT_EQ(first_difference(row_of(clean, row), row_of(dirty, row)), "");
        }
    }
}

std::string type_name(const testing::TestParamInfo<DType>& test) {
    return std::string(name_of(test.param));
}

INSTANTIATE_TEST_SUITE_P(Types, LinearInvarianceTest, testing::ValuesIn(kWeightTypes), type_name);

TEST(LinearInvarianceOfShapeTest, AMatrixEqualsItsSlices) {
    // Outputs do not depend on where in a stack they stand: rows 5..21 alone and within 41.
    const Problem problem(DType::kQ6_K);
    const std::vector<float> whole = problem.run(0, 1, 1);
    const auto backend = make_backend({});
    MatrixView w;
    const std::int64_t bytes = row_bytes(problem.dtype, kInputs);
    const MatrixSource source{"w", problem.dtype, problem.blocks.data() + 5 * bytes, 17, kInputs};
    ASSERT_FALSE(backend->pack({&source, 1}, w).has_value());
    ASSERT_FALSE(backend->prepare(limits_of({})).has_value());
    GuardedRows y(1, 17);
    const Step step = Step::of_rows(1);
    backend->begin_step(step.descriptor);
    backend->linear({.x = view_of(problem.x.data(), 1, kInputs),
                     .norm_weight = vector_of(problem.norm),
                     .norm_eps = 1e-6F,
                     .w = w,
                     .y = y.view()});
    backend->finish_step();
    EXPECT_EQ(first_difference({whole.begin() + 5, whole.begin() + 22}, y.all()), "");
}

}  // namespace
}  // namespace kernels::test

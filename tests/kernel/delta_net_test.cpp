// delta_net against the recurrence as the model document writes it, in double; and the laws that
// hold bit for bit: a split prompt equals the whole, sequences do not see each other, slots outside
// the step stay as they are, fresh sequences do not see what their slot held.
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/simd_kernels.h"
#include "tests/kernel/delta_net_support.h"

namespace kernels::test {
namespace {

using namespace delta_net;

double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

/// All rows of a fresh sequence, every quantity in double: section 4.3 of the model document.
std::vector<double> naive(const Layer& layer, const Inputs& in, int rows) {
    const Form& f = layer.form;
    const auto at = [](const std::vector<float>& v, std::int64_t i) {
        return double{v[static_cast<std::size_t>(i)]};
    };
    std::vector<double> y;
    std::vector<std::vector<double>> states(
        static_cast<std::size_t>(f.n_v),
        std::vector<double>(static_cast<std::size_t>(f.size * f.size)));
    for (int t = 0; t < rows; ++t) {
        std::vector<double> c;  // conv and SiLU of every channel
        for (int m = 0; m < f.conv_dim(); ++m) {
            double sum = 0.0;
            for (int j = 0; j < f.conv_kernel; ++j) {
                const int time = t - (f.conv_kernel - 1) + j;
                if (time >= 0)
                    sum += at(layer.conv_w, m * f.conv_kernel + j) *
                           at(in.u, std::int64_t{time} * f.conv_dim() + m);
            }
            c.push_back(sum * sigmoid(sum));
        }
        for (int h = 0; h < f.n_v; ++h) {
            const int key_head = f.order == HeadOrder::kTiled ? h % f.n_k : h / (f.n_v / f.n_k);
            const double* q = &c[static_cast<std::size_t>(key_head * f.size)];
            const double* k = &c[static_cast<std::size_t>((f.n_k + key_head) * f.size)];
            const double* v = &c[static_cast<std::size_t>((2 * f.n_k + h) * f.size)];
            double qq = 1e-6;
            double kk = 1e-6;
            for (int i = 0; i < f.size; ++i) {
                qq += q[i] * q[i];
                kk += k[i] * k[i];
            }
            const double b = sigmoid(at(in.beta, t * f.n_v + h));
            const double x = at(in.alpha, t * f.n_v + h) + at(layer.dt_bias, h);
            const double g = at(layer.a, h) * (x > 20.0 ? x : std::log1p(std::exp(x)));
            std::vector<double>& s = states[static_cast<std::size_t>(h)];
            std::vector<double> o;
            for (int col = 0; col < f.size; ++col) {
                double* row = &s[static_cast<std::size_t>(col * f.size)];
                double recalled = 0.0;
                for (int i = 0; i < f.size; ++i) {
                    row[i] *= std::exp(g);
                    recalled += row[i] * k[i] / std::sqrt(kk);
                }
                double out = 0.0;
                for (int i = 0; i < f.size; ++i) {
                    row[i] += k[i] / std::sqrt(kk) * b * (v[col] - recalled);
                    out += row[i] * q[i] / std::sqrt(qq) / std::sqrt(double(f.size));
                }
                o.push_back(out);
            }
            double squares = 0.0;
            for (const double value : o)
                squares += value * value;
            for (int i = 0; i < f.size; ++i) {
                const double z = at(in.z, std::int64_t{t} * f.values() + h * f.size + i);
                y.push_back(o[static_cast<std::size_t>(i)] / std::sqrt(squares / f.size + 1e-6) *
                            at(layer.norm, i) * z * sigmoid(z));
            }
        }
    }
    return y;
}

// Recurrences of 70 rows in f32: seen below 2e-6, the limit of the specification is 1e-4.
constexpr double kLimit = 2e-5;

TEST(DeltaNetTest, AgreesWithTheRecurrenceForLengthsUpTo70) {
    const Layer layer(Form{});
    for (int rows = 1; rows <= 70; ++rows) {
        const Inputs in(layer.form, rows, 100 + static_cast<std::uint64_t>(rows));
        Runner runner(layer);
        const auto out = runner.run({{&in, 0, rows, 1}});
        EXPECT_LE(relative_error(out[0], naive(layer, in, rows)), kLimit) << rows << " rows";
    }
}

TEST(DeltaNetTest, AgreesForEveryFormOfHeads) {
    const Form forms[] = {
        {.n_k = 3, .n_v = 3, .size = 16},                               // r = 1
        {.n_k = 2, .n_v = 4, .size = 32},                               // r = 2
        {.n_k = 2, .n_v = 6, .size = 8},                                // r = 3
        {.n_k = 2, .n_v = 6, .size = 8, .order = HeadOrder::kGrouped},  //
        {.n_k = 1, .n_v = 2, .size = 37, .conv_kernel = 2},             // odd size
        {.n_k = 2, .n_v = 2, .size = 20, .conv_kernel = 8},             //
        {.n_k = 1, .n_v = 2, .size = 128, .conv_kernel = 4, .order = HeadOrder::kGrouped}};
    for (const Form& form : forms) {
        SCOPED_TRACE("size " + std::to_string(form.size) + " n_v " + std::to_string(form.n_v));
        const Layer layer(form);
        const Inputs in(form, 21, 9);
        const std::vector<double> expected = naive(layer, in, 21);
        Runner fast(layer);
        EXPECT_LE(relative_error(fast.run({{&in, 0, 21, 1}})[0], expected), kLimit);
        Runner reference(layer, {.accumulator = CpuAccumulator::kDouble});
        EXPECT_LE(relative_error(reference.run({{&in, 0, 21, 1}})[0], expected), 1e-6);
        for (const std::string& target : cpu::simd_targets()) {
            cpu::set_simd_target_for_test(target);
            Runner other(layer);
            EXPECT_LE(relative_error(other.run({{&in, 0, 21, 1}})[0], expected), kLimit) << target;
        }
        cpu::set_simd_target_for_test("");
    }
}

TEST(DeltaNetTest, HeadOrdersDiffer) {
    const Layer tiled(Form{.n_k = 2, .n_v = 6, .size = 8});
    const Layer grouped(Form{.n_k = 2, .n_v = 6, .size = 8, .order = HeadOrder::kGrouped});
    const Inputs in(tiled.form, 4, 3);
    Runner runner(tiled);
    EXPECT_GT(relative_error(runner.run({{&in, 0, 4, 1}})[0], naive(grouped, in, 4)), 0.1);
}

TEST(DeltaNetTest, ASplitAtAnyPositionEqualsTheWholeBitForBit) {
    constexpr int kRows = 19;
    const Layer layer(Form{.n_k = 2, .n_v = 6, .size = 20});
    const Inputs in(layer.form, kRows, 31);
    for (const CpuAccumulator accumulator : {CpuAccumulator::kFloat, CpuAccumulator::kDouble}) {
        Runner whole(layer, {.accumulator = accumulator});
        const std::vector<float> expected = whole.run({{&in, 0, kRows, 2}})[0];
        for (int at = 1; at < kRows; ++at) {
            Runner split(layer, {.accumulator = accumulator});
            const std::vector<float> first = split.run({{&in, 0, at, 2}})[0];
            const std::vector<float> second = split.run({{&in, at, kRows - at, 2}})[0];
            EXPECT_EQ(first_difference(joined(first, second), expected), "") << "at " << at;
            EXPECT_EQ(first_difference(split.slot(2), whole.slot(2)), "") << "state, at " << at;
        }
        Runner steps(layer, {.accumulator = accumulator});
        std::vector<float> one_by_one;
        for (int t = 0; t < kRows; ++t)
            one_by_one = joined(one_by_one, steps.run({{&in, t, 1, 2}})[0]);
        EXPECT_EQ(first_difference(one_by_one, expected), "");
    }
}

TEST(DeltaNetTest, InterleavedSequencesEqualThemselvesAlone) {
    const Layer layer(Form{});
    const Inputs a(layer.form, 12, 1);
    const Inputs b(layer.form, 12, 2);
    Runner alone_a(layer);
    Runner alone_b(layer);
    const std::vector<float> expected_a = alone_a.run({{&a, 0, 12, 1}})[0];
    const std::vector<float> expected_b = alone_b.run({{&b, 0, 12, 4}})[0];
    for (const int threads : {1, 2, 3}) {
        Runner both(layer, {.threads = threads});
        const auto first = both.run({{&a, 0, 5, 1}, {&b, 0, 1, 4}});
        const auto second = both.run({{&b, 1, 10, 4}, {&a, 5, 2, 1}});
        const auto third = both.run({{&a, 7, 5, 1}, {&b, 11, 1, 4}});
        EXPECT_EQ(first_difference(joined(joined(first[0], second[1]), third[0]), expected_a), "");
        EXPECT_EQ(first_difference(joined(joined(first[1], second[0]), third[1]), expected_b), "");
    }
}

TEST(DeltaNetTest, AFreshSequenceIgnoresWhatItsSlotHeld) {
    const Layer layer(Form{});
    const Inputs in(layer.form, 10, 8);
    Runner clean(layer);
    Runner dirty(layer);
    dirty.poison_slots(std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(first_difference(clean.run({{&in, 0, 2, 3}})[0], dirty.run({{&in, 0, 2, 3}})[0]), "");
    EXPECT_EQ(first_difference(clean.run({{&in, 2, 8, 3}})[0], dirty.run({{&in, 2, 8, 3}})[0]), "");
    EXPECT_EQ(first_difference(clean.slot(3), dirty.slot(3)), "");
}

TEST(DeltaNetTest, SlotsOutsideTheStepStayBitIdentical) {
    const Layer layer(Form{});
    const Inputs in(layer.form, 9, 8);
    Runner runner(layer);
    runner.poison_slots(0.625F);
    runner.run({{&in, 0, 3, 1}, {&in, 0, 9, 4}});
    const std::vector<float> untouched(runner.slot(0).size(), 0.625F);
    for (const int slot : {0, 2, 3, 5})
        EXPECT_EQ(first_difference(runner.slot(slot), untouched), "") << "slot " << slot;
}

TEST(DeltaNetTest, NanOfOneSequenceStaysInItsRowsAndSlot) {
    const Layer layer(Form{});
    const Inputs good(layer.form, 8, 1);
    Inputs bad(layer.form, 8, 2);
    bad.u[70] = std::nanf("");
    Runner alone(layer);
    Runner both(layer);
    const auto expected = alone.run({{&good, 0, 8, 2}});
    const auto out = both.run({{&bad, 0, 8, 1}, {&good, 0, 8, 2}});
    EXPECT_EQ(first_difference(out[1], expected[0]), "");
    EXPECT_EQ(first_difference(both.slot(2), alone.slot(2)), "");
}

}  // namespace
}  // namespace kernels::test

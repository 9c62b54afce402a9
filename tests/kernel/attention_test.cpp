// attention against plain loops in double (norm, rotation, softmax over all earlier tokens, gate),
// over pages handed out in any order; and its laws bit for bit: a split prompt equals the whole,
// batched equals alone, threads do not show.
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/simd_kernels.h"
#include "tests/kernel/kernel_support.h"

namespace kernels::test {
namespace {

struct Form {
    int n_h = 4;
    int n_kv = 2;
    int head_dim = 32;
    int n_rot = 16;
    bool has_gate = true;
    bool has_norm = true;
    RopePairing pairing = RopePairing::kHalfSplit;
    DType kv_type = DType::kF32;
    int block_tokens = 16;
    int q_width() const { return n_h * head_dim * (has_gate ? 2 : 1); }
    int kv_width() const { return n_kv * head_dim; }
};

constexpr int kPositions = 512;

struct Layer {
    Form form;
    std::vector<float> q_norm, k_norm, rope;

    explicit Layer(const Form& f) : form(f) {
        Random random(17);
        q_norm = random.uniforms(f.head_dim, 0.5F, 1.5F);
        k_norm = random.uniforms(f.head_dim, 0.5F, 1.5F);
        for (int p = 0; p < kPositions; ++p) {
            for (int i = 0; i < f.n_rot / 2; ++i)
                rope.push_back(static_cast<float>(std::cos(angle(p, i))));
            for (int i = 0; i < f.n_rot / 2; ++i)
                rope.push_back(static_cast<float>(std::sin(angle(p, i))));
        }
    }
    double angle(int position, int pair) const {
        return position * std::pow(10000.0, -2.0 * pair / form.n_rot);
    }
};

struct Inputs {
    std::vector<float> q, k, v;
    Inputs(const Form& form, int rows, std::uint64_t seed) {
        Random random(seed);
        q = random.normals(std::int64_t{rows} * form.q_width(), 2.0F);
        k = random.normals(std::int64_t{rows} * form.kv_width(), 2.0F);
        v = random.normals(std::int64_t{rows} * form.kv_width());
    }
};

/// Normed and rotated head.
std::vector<double> prepared(const Layer& layer, const float* head, const std::vector<float>& norm,
                             int position) {
    const Form& f = layer.form;
    std::vector<double> out(head, head + f.head_dim);
    if (f.has_norm) {
        double squares = 0.0;
        for (const double value : out)
            squares += value * value;
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] *= norm[i] / std::sqrt(squares / f.head_dim + 1e-6);
    }
    for (int i = 0; i < f.n_rot / 2; ++i) {
        const bool half = f.pairing == RopePairing::kHalfSplit;
        double& a = out[static_cast<std::size_t>(half ? i : 2 * i)];
        double& b = out[static_cast<std::size_t>(half ? i + f.n_rot / 2 : 2 * i + 1)];
        const double angle = layer.angle(position, i);
        const double rotated = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = rotated;
    }
    return out;
}

/// All rows of one sequence.
std::vector<double> naive(const Layer& layer, const Inputs& in, int rows, int position_offset = 0) {
    const Form& f = layer.form;
    std::vector<double> y;
    std::vector<std::vector<double>> keys;  // [row * n_kv + head]
    for (int t = 0; t < rows; ++t) {
        for (int g = 0; g < f.n_kv; ++g)
            keys.push_back(
                prepared(layer, &in.k[static_cast<std::size_t>(t * f.kv_width() + g * f.head_dim)],
                         layer.k_norm, t + position_offset));
        for (int h = 0; h < f.n_h; ++h) {
            const int stride = f.head_dim * (f.has_gate ? 2 : 1);
            const float* raw = &in.q[static_cast<std::size_t>(t * f.q_width() + h * stride)];
            const std::vector<double> q = prepared(layer, raw, layer.q_norm, t + position_offset);
            const int g = h / (f.n_h / f.n_kv);
            double total = 0.0;
            std::vector<double> out(static_cast<std::size_t>(f.head_dim));
            for (int s = 0; s <= t; ++s) {
                double score = 0.0;
                for (std::size_t i = 0; i < out.size(); ++i)
                    score += q[i] * keys[static_cast<std::size_t>(s * f.n_kv + g)][i];
                const double weight = std::exp(score / std::sqrt(double(f.head_dim)));
                total += weight;
                for (std::size_t i = 0; i < out.size(); ++i)
                    out[i] += weight *
                              in.v[static_cast<std::size_t>(s * f.kv_width() + g * f.head_dim) + i];
            }
            for (std::size_t i = 0; i < out.size(); ++i) {
                const double gate =
                    f.has_gate ? 1.0 / (1.0 + std::exp(-double{raw[out.size() + i]})) : 1.0;
                y.push_back(out[i] / total * gate);
            }
        }
    }
    return y;
}

struct Piece {
    const Inputs* inputs;
    int begin;
    int rows;
    std::vector<std::int32_t> blocks;
    int position_offset = 0;
};

class Runner {
public:
    static constexpr std::int64_t kBlocks = 40;

    explicit Runner(const Layer& layer, BackendOptions options = {.rows = 256})
        : layer_(layer), backend_(make_backend(options)) {
        const Form& f = layer.form;
        const std::vector<std::int64_t> shape = {kBlocks, f.n_kv, f.block_tokens, f.head_dim};
        kv = {.k = backend_->allocate(f.kv_type, shape), .v = backend_->allocate(f.kv_type, shape)};
        // NaN in every page: whatever is read without having been written shows.
        for (const TensorView& view : {kv.k, kv.v})
            std::memset(view.data, 0xff,
                        static_cast<std::size_t>(kBlocks * view.row_stride) *
                            (f.kv_type == DType::kF16 ? 2 : 4));
        EXPECT_FALSE(backend_->prepare(limits_of(options)).has_value());
    }

    std::vector<std::vector<float>> run(const std::vector<Piece>& pieces) {
        const Form& f = layer_.form;
        std::vector<SequencePart> parts;
        std::vector<float> q;
        std::vector<float> k;
        std::vector<float> v;
        const auto append = [](std::vector<float>& to, const std::vector<float>& from, int row,
                               int width) {
            to.insert(to.end(), from.begin() + std::int64_t{row} * width,
                      from.begin() + std::int64_t{row + 1} * width);
        };
        for (const Piece& piece : pieces) {
            parts.push_back({.kv_len_before = piece.begin,
                             .rows = piece.rows,
                             .blocks = piece.blocks,
                             .position_offset = piece.position_offset});
            for (int t = piece.begin; t < piece.begin + piece.rows; ++t) {
                append(q, piece.inputs->q, t, f.q_width());
                append(k, piece.inputs->k, t, f.kv_width());
                append(v, piece.inputs->v, t, f.kv_width());
            }
        }
        const Step step(parts, 24);
        const std::int64_t rows = step.descriptor.rows;
        GuardedRows y(rows, f.n_h * f.head_dim);
        backend_->begin_step(step.descriptor);
        backend_->attention({.n_h = f.n_h,
                             .n_kv = f.n_kv,
                             .head_dim = f.head_dim,
                             .n_rot = f.n_rot,
                             .has_gate = f.has_gate,
                             .norm_eps = 1e-6F,
                             .q = view_of(q.data(), rows, f.q_width()),
                             .k = view_of(k.data(), rows, f.kv_width()),
                             .v = view_of(v.data(), rows, f.kv_width()),
                             .q_norm = f.has_norm ? vector_of(layer_.q_norm) : TensorView{},
                             .k_norm = f.has_norm ? vector_of(layer_.k_norm) : TensorView{},
                             .rope = view_of(layer_.rope.data(), kPositions, f.n_rot),
                             .pairing = f.pairing,
                             .kv = kv,
                             .y = y.view()});
        backend_->finish_step();
        EXPECT_TRUE(y.guards_are_intact());
        std::vector<std::vector<float>> results;
        for (std::size_t s = 0; s < pieces.size(); ++s)
            results.push_back(y.rows(step.row_begin[s], step.row_begin[s + 1]));
        return results;
    }

    KvLayer kv;

private:
    Layer layer_;
    std::unique_ptr<Backend> backend_;
};

const std::vector<std::int32_t> kScattered = {31, 2, 17, 5, 38, 0, 9, 22, 14, 7, 3, 26, 11};
const std::vector<std::int32_t> kOthers = {4, 39, 1, 30, 12, 28, 6, 33, 19, 24, 8, 35, 20};

std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// f32: sums of at most 256 terms and one exponential, seen 3e-7. f16 pages round K and V to 11
// bits: 3e-4 on average; scores of a few units then move their weights by about 1e-3.
constexpr double kF32Limit = 1e-5;
constexpr double kF16Limit = 2e-3;

TEST(AttentionTest, AgreesForEveryFormOfHeads) {
    const Form forms[] = {
        {},
        {.n_h = 9, .n_kv = 3, .has_gate = false, .has_norm = false},
        {.n_h = 14, .n_kv = 2, .has_gate = false, .has_norm = false},
        {.n_h = 4, .n_kv = 4},
        {.n_h = 12, .n_kv = 2, .head_dim = 64, .n_rot = 64},  // groups of 6
        {.n_h = 16, .n_kv = 1, .head_dim = 16, .n_rot = 16},
        {.pairing = RopePairing::kAdjacent},
        {.n_h = 4,
         .n_kv = 2,
         .head_dim = 64,
         .n_rot = 64,
         .has_gate = false,
         .has_norm = false,
         .pairing = RopePairing::kAdjacent,
         .kv_type = DType::kF16,
         .block_tokens = 32},
        {.n_h = 2, .n_kv = 1, .head_dim = 37, .n_rot = 10},  // no whole vectors
        {.n_h = 2, .n_kv = 1, .head_dim = 37, .n_rot = 10, .kv_type = DType::kF16},
        {.n_h = 6, .n_kv = 2, .head_dim = 256, .n_rot = 64, .kv_type = DType::kF16},
        {.block_tokens = 128}};
    constexpr int kRows = 45;
    for (const Form& form : forms) {
        SCOPED_TRACE("n_h " + std::to_string(form.n_h) + " D " + std::to_string(form.head_dim));
        const Layer layer(form);
        const Inputs in(form, kRows, 4);
        const std::vector<double> expected = naive(layer, in, kRows);
        const bool is_f16 = form.kv_type == DType::kF16;
        const double limit = is_f16 ? kF16Limit : kF32Limit;
        for (const std::string& target : cpu::simd_targets()) {
            cpu::set_simd_target_for_test(target);
            Runner fast(layer, {.rows = 64, .inputs_max = 2048});
            const double error =
                relative_error(fast.run({{&in, 0, kRows, kScattered}})[0], expected);
            EXPECT_LE(error, limit) << target;
            if (is_f16) {
                EXPECT_GT(error, 1e-6) << "pages in f16 must show";
            }
        }
        cpu::set_simd_target_for_test("");
        Runner reference(layer,
                         {.accumulator = CpuAccumulator::kDouble, .rows = 64, .inputs_max = 2048});
        EXPECT_LE(relative_error(reference.run({{&in, 0, kRows, kScattered}})[0], expected),
                  is_f16 ? kF16Limit : 1e-6);
    }
}

TEST(AttentionTest, AgreesAroundPageBorders) {
    const Layer layer(Form{});
    for (const int rows : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 190}) {
        const Inputs in(layer.form, rows, static_cast<std::uint64_t>(rows));
        Runner runner(layer);
        EXPECT_LE(
            relative_error(runner.run({{&in, 0, rows, kScattered}})[0], naive(layer, in, rows)),
            kF32Limit)
            << rows << " rows";
    }
}

TEST(AttentionTest, PositionsMayDifferFromPlacesInTheKv) {
    const Layer layer(Form{});
    const Inputs in(layer.form, 20, 6);
    Runner runner(layer);
    const std::vector<float> out = runner.run({{&in, 0, 20, kScattered, 3}})[0];
    EXPECT_LE(relative_error(out, naive(layer, in, 20, 3)), kF32Limit);
}

TEST(AttentionTest, ASplitAtAnyPositionEqualsTheWholeBitForBit) {
    constexpr int kRows = 39;
    const Form forms[] = {
        {.kv_type = DType::kF16},
        {.kv_type = DType::kF32},
        {.n_h = 6, .n_kv = 2, .head_dim = 37, .n_rot = 10, .kv_type = DType::kF16}};
    for (const Form& form : forms) {
        const Layer layer(form);
        const Inputs in(layer.form, kRows, 12);
        for (const CpuAccumulator accumulator : {CpuAccumulator::kFloat, CpuAccumulator::kDouble}) {
            Runner whole(layer, {.accumulator = accumulator});
            const std::vector<float> expected = whole.run({{&in, 0, kRows, kScattered}})[0];
            for (int at = 1; at < kRows; ++at) {
                Runner split(layer, {.accumulator = accumulator});
                const std::vector<float> first = split.run({{&in, 0, at, kScattered}})[0];
                const std::vector<float> second = split.run({{&in, at, kRows - at, kScattered}})[0];
                EXPECT_EQ(first_difference(joined(first, second), expected), "") << "at " << at;
            }
        }
    }
}

TEST(AttentionTest, BatchedEqualsAloneWhateverTheThreadsAndThePages) {
    const Layer layer(Form{.n_h = 12, .n_kv = 2, .kv_type = DType::kF16});
    const Inputs a(layer.form, 50, 1);
    const Inputs b(layer.form, 50, 2);
    Runner alone_a(layer);
    Runner alone_b(layer);
    const std::vector<float> expected_a = alone_a.run({{&a, 0, 50, kScattered}})[0];
    const std::vector<float> expected_b = alone_b.run({{&b, 0, 50, kScattered}})[0];
    for (const int threads : {1, 2, 3}) {
        Runner both(layer, {.threads = threads});
        const auto first = both.run({{&a, 0, 40, kScattered}, {&b, 0, 7, kOthers}});
        const auto second = both.run({{&b, 7, 42, kOthers}, {&a, 40, 9, kScattered}});
        const auto third = both.run({{&a, 49, 1, kScattered}, {&b, 49, 1, kOthers}});
        EXPECT_EQ(first_difference(joined(joined(first[0], second[1]), third[0]), expected_a), "");
        EXPECT_EQ(first_difference(joined(joined(first[1], second[0]), third[1]), expected_b), "");
    }
}

TEST(AttentionTest, NanOfOneSequenceStaysInIt) {
    const Layer layer(Form{});
    const Inputs good(layer.form, 20, 1);
    Inputs bad(layer.form, 20, 2);
    bad.k[5] = std::nanf("");
    Runner alone(layer);
    Runner both(layer);
    const auto expected = alone.run({{&good, 0, 20, kOthers}});
    const auto out = both.run({{&bad, 0, 20, kScattered}, {&good, 0, 20, kOthers}});
    EXPECT_EQ(first_difference(out[1], expected[0]), "");
    EXPECT_TRUE(std::isnan(out[0][0])) << "a NaN key is not hidden";
}

}  // namespace
}  // namespace kernels::test

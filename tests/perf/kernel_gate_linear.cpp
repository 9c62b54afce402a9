// linear: every type over the shared shapes, the demo model's and real ones; and mutated weights.
//
// A matrix is held against the reference once, with the most rows; each row count then runs twice
// over poisoned outputs and must repeat the rows bit for bit.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/kernel_set.h"
#include "kernels/quant/format.h"
#include "tests/kernel/kernel_support.h"
#include "tests/kernel/shapes.h"
#include "tests/perf/kernel_gate_cases.h"

namespace kernels::gate {
namespace {

using test::Random;
using test::Step;

constexpr std::int64_t kPrefillLeast = 17;
constexpr int kPrefillRowCounts[] = {17, 33, 64, 65, 96, 127, 128, 129, 511, 512, 513, 2048};
constexpr int kRowCounts[] = {1, 2, 3, 5, 8, 9, 12, 13, 16, 17, 33, 64, 65};

struct SegmentShape {
    DType dtype;
    std::int64_t n;
};

struct LinearForm {
    std::vector<SegmentShape> segments;
    std::int64_t k = 0;
    int rows_max = 65;
    Epilogue epilogue = Epilogue::kStore;
    bool has_norm = false;
    bool has_bias = false;
    bool is_aligned = true;   // rows of x for wide loads
    bool is_prefill = false;  // by cuBLASLt whatever the table says
    // Rows of x and residual times 2^20 or 2^-20, some: binary16 needs a power of two for them.
    bool has_wild_rows = false;
    std::int64_t n() const {
        std::int64_t sum = 0;
        for (const SegmentShape& segment : segments)
            sum += segment.n;
        return sum;
    }
};

std::string text_of(const LinearForm& form) {
    std::string text;
    for (const SegmentShape& segment : form.segments)
        text += std::string(text.empty() ? "" : "+") + std::string(name_of(segment.dtype)) + " " +
                std::to_string(segment.n);
    text += " x " + std::to_string(form.k);
    if (form.epilogue == Epilogue::kAddResidual) text += " add";
    if (form.epilogue == Epilogue::kSwiGlu) text += " swiglu";
    if (form.has_norm) text += " norm";
    if (form.has_bias) text += " bias";
    if (!form.is_aligned) text += " odd";
    if (form.is_prefill) text += " prefill";
    if (form.has_wild_rows) text += " wild";
    return text;
}

/// A packed matrix and its other inputs; owns the blocks both backends were given.
struct LinearCase {
    LinearForm form;
    std::vector<std::vector<std::uint8_t>> blocks;
    Pair::Matrices matrices;
    std::vector<float> x, other_x, residual, norm, bias;
};

float row_factor(const LinearForm& form, std::int64_t row) {
    if (!form.has_wild_rows || row % 3 == 0) return 1.0F;
    return row % 3 == 1 ? 0x1p20F : 0x1p-20F;
}

void multiply_rows(const LinearForm& form, std::int64_t rows, std::vector<float>& values,
                   bool inverse) {
    const auto width = static_cast<std::int64_t>(values.size()) / rows;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float factor = row_factor(form, static_cast<std::int64_t>(i) / width);
        values[i] *= inverse ? 1.0F / factor : factor;
    }
}

std::shared_ptr<LinearCase> make_case(Pair& pair, const LinearForm& form, std::uint64_t seed) {
    auto made = std::make_shared<LinearCase>();
    Random random(seed);
    made->form = form;
    std::vector<MatrixSource> sources;
    for (const SegmentShape& segment : form.segments)
        made->blocks.push_back(test::random_blocks(segment.dtype, segment.n * form.k, random));
    for (std::size_t i = 0; i < form.segments.size(); ++i)
        sources.push_back({.name = "gate",
                           .dtype = form.segments[i].dtype,
                           .blocks = made->blocks[i].data(),
                           .n = form.segments[i].n,
                           .k = form.k});
    made->matrices = pair.pack(sources);
    const std::int64_t outputs = form.epilogue == Epilogue::kSwiGlu ? form.n() / 2 : form.n();
    // Small products keep SwiGLU where it curves instead of saturating.
    const float scale = form.has_norm ? 3.0F : 1.0F / std::sqrt(static_cast<float>(form.k));
    made->x = random.normals(form.rows_max * form.k, scale);
    made->other_x = random.normals(form.rows_max * form.k, scale);
    made->residual = random.normals(form.rows_max * outputs);
    for (std::vector<float>* rows : {&made->x, &made->other_x, &made->residual})
        multiply_rows(form, form.rows_max, *rows, false);
    if (form.has_norm) made->norm = random.uniforms(form.k, 0.01F, 0.03F);
    if (form.has_bias) made->bias = random.normals(form.n());
    return made;
}

struct LinearRun {
    std::vector<float> out;  // [rows, outputs]
    bool guards_are_intact = true;
};

LinearArgs args_of(const LinearForm& form, const MatrixView& matrix, const TensorView& x,
                   const TensorView& norm, const TensorView& bias, const TensorView& y) {
    return {.x = x,
            .norm_weight = norm,
            .norm_eps = 1e-6F,
            .w = matrix,
            .bias = bias,
            .epilogue = form.epilogue,
            .y = y};
}

Rows initial_output(const LinearCase& c, int rows) {
    const std::int64_t outputs = c.form.epilogue == Epilogue::kSwiGlu ? c.form.n() / 2 : c.form.n();
    // Without a wish, cuBLASLt may write to y itself where rows begin at 16 bytes.
    constexpr std::int64_t kAlignedGuard = 20;
    Rows y(rows, outputs, c.form.is_prefill && c.form.is_aligned ? kAlignedGuard : Rows::kGuard);
    if (c.form.epilogue == Epilogue::kAddResidual) y.set(c.residual);
    return y;
}

LinearRun run_cpu(Pair& pair, LinearCase& c, int rows) {
    Rows x(rows, c.form.k, 0, c.x);
    Rows y = initial_output(c, rows);
    const Step step = Step::of_rows(rows);
    TensorView norm, bias;
    if (c.form.has_norm) norm = test::vector_of(c.norm);
    if (c.form.has_bias) bias = test::vector_of(c.bias);
    pair.cpu().begin_step(step.descriptor);
    pair.cpu().linear(args_of(c.form, c.matrices.cpu, x.view(), norm, bias, y.view()));
    pair.cpu().finish_step();
    return {y.all(), y.guards_are_intact()};
}

/// Twice on one output buffer when `stale_first`: other inputs leave plausible wrong answers.
LinearRun run_cuda(Pair& pair, LinearCase& c, const MatrixView& matrix, int rows,
                   bool stale_first) {
    pair.reset();
    const std::int64_t guard = c.form.is_aligned ? 0 : Rows::kGuard;
    Rows x(rows, c.form.k, guard, c.x);
    Rows other(rows, c.form.k, guard, c.other_x);
    Rows y = initial_output(c, rows);
    const TensorView x_device = pair.place(x);
    const TensorView other_device = pair.place(other);
    const TensorView y_device = pair.place(y);
    TensorView norm, bias;
    if (c.form.has_norm) norm = pair.place(test::vector_of(c.norm));
    if (c.form.has_bias) bias = pair.place(test::vector_of(c.bias));
    const Step step = Step::of_rows(rows);
    pair.cuda().begin_step(step.descriptor);
    if (stale_first && c.form.epilogue != Epilogue::kAddResidual)
        pair.cuda().linear(args_of(c.form, matrix, other_device, norm, bias, y_device));
    pair.cuda().linear(args_of(c.form, matrix, x_device, norm, bias, y_device));
    pair.cuda().finish_step();
    pair.fetch(y, y_device);
    return {y.all(), y.guards_are_intact()};
}

double norm_of(const std::vector<float>& values) {
    double sum = 0.0;
    for (const float value : values)
        sum += double{value} * double{value};
    return std::sqrt(sum);
}

/// Relative to the reference; with x as int8 to rows of the usual size at least. Codes of types
/// with minima are all positive, and one row's outputs are then nearly multiples of the sum of its
/// x, which may be small by chance while the errors are not.
double error_at(const Pair& pair, const LinearRun& reference, const LinearForm& form,
                const std::vector<float>& out, const std::vector<float>& expected) {
    const double error = relative_error(out, expected);
    if (!pair.has_lanes()) return error;
    const double own = norm_of(expected);
    const double usual =
        norm_of(reference.out) *
        std::sqrt(static_cast<double>(expected.size()) / static_cast<double>(reference.out.size()));
    return own > 0.0 && !form.has_wild_rows ? error * own / std::max(own, usual) : error;
}

CaseResult run_case(Pair& pair, LinearCase& c) {
    CaseResult result{.op = "linear", .shape = text_of(c.form)};
    for (const SegmentShape& segment : c.form.segments)
        result.limit = std::max(result.limit, pair.product_limit(segment.dtype));
    // A norm over few outputs may be small by cancellation while the errors are not.
    constexpr std::int64_t kFewOutputs = 64;
    if (c.form.n() < kFewOutputs) result.limit *= 10.0;
    const LinearRun reference = run_cpu(pair, c, c.form.rows_max);
    const auto width = reference.out.size() / static_cast<std::size_t>(c.form.rows_max);
    result.may_be_exact = reference.out.size() < 64 || c.form.k < 32;
    // One numerics id for few rows, another above, one for each bucket of cuBLASLt's; the plain
    // path has one for all.
    const bool has_two_ids = result.limit > pair.product_limit(DType::kF32);
    pair.cuda().set_prefill_rows_min(c.form.is_prefill ? kPrefillLeast : 0);
    std::map<std::uint64_t, std::vector<float>> wholes;
    const std::span<const int> counts = c.form.is_prefill ? std::span<const int>(kPrefillRowCounts)
                                                          : std::span<const int>(kRowCounts);
    for (std::size_t i = counts.size(); i-- > 0;) {
        const int rows = counts[i];
        if (rows > c.form.rows_max) continue;
        const std::uint64_t prefill = pair.cuda().prefill_numerics(
            {.x = {}, .w = c.matrices.cuda, .epilogue = c.form.epilogue, .y = {}}, rows);
        if (prefill != 0) result.limit = std::max(result.limit, pair.prefill_limit());
        const auto count = static_cast<std::ptrdiff_t>(width) * rows;
        std::vector<float> expected(reference.out.begin(), reference.out.begin() + count);
        const LinearRun first = run_cuda(pair, c, c.matrices.cuda, rows, false);
        const LinearRun second = run_cuda(pair, c, c.matrices.cuda, rows, true);
        const std::string at = "M=" + std::to_string(rows);
        std::vector<float> tame = first.out;
        multiply_rows(c.form, rows, tame, true);
        multiply_rows(c.form, rows, expected, true);
        const double error = error_at(pair, reference, c.form, tame, expected);
        result.see_error(error);
        double limit = 0.0;
        for (const SegmentShape& segment : c.form.segments)
            limit = std::max(limit, pair.product_limit(segment.dtype, rows));
        if (c.form.n() < kFewOutputs) limit *= 10.0;
        if (pair.has_lanes() && !(error <= limit))
            result.complain(at + " is off by " + std::to_string(error));
        if (!first.guards_are_intact || !second.guards_are_intact)
            result.complain(at + " wrote past its rows");
        if (const auto where = first_difference(first.out, second.out); !where.empty())
            result.complain(at + " differs from run to run " + where);
        std::vector<float>& most = wholes[prefill != 0                             ? prefill
                                          : has_two_ids && rows <= pair.few_rows() ? 1
                                                                                   : 0];
        if (most.empty()) most = first.out;
        const std::vector<float> rows_of_whole(most.begin(), most.begin() + count);
        if (const auto where = first_difference(first.out, rows_of_whole); !where.empty())
            result.complain(at + " depends on the other rows " + where);
    }
    pair.cuda().set_prefill_rows_min(0);
    return result;
}

/// Epilogue, norm, bias and alignment take turns.
LinearForm varied(LinearForm form, std::size_t turn) {
    constexpr Epilogue kEpilogues[] = {Epilogue::kStore, Epilogue::kAddResidual, Epilogue::kSwiGlu};
    form.epilogue = kEpilogues[turn % 3];
    if (form.epilogue == Epilogue::kSwiGlu && form.n() % 2 != 0) form.epilogue = Epilogue::kStore;
    form.has_norm = turn % 2 == 1;
    form.has_bias = turn / 2 % 2 == 1;
    form.is_aligned = turn / 3 % 2 == 0;
    return form;
}

std::vector<LinearForm> forms(const CaseOptions& options) {
    std::vector<LinearForm> all;
    for (const DType dtype : test::kWeightTypes) {
        std::size_t turn = 0;
        std::vector<std::pair<std::int64_t, std::int64_t>> seen;
        for (const test::LinearShape& shape : test::linear_shapes(dtype)) {
            const std::pair side{shape.n, shape.k};
            if (std::ranges::find(seen, side) != seen.end()) continue;
            seen.push_back(side);
            if (options.small && shape.n * shape.k > 40000) continue;
            const int rows = shape.n * shape.k < 20000 ? 9 : 65;
            all.push_back(
                varied({.segments = {{dtype, shape.n}}, .k = shape.k, .rows_max = rows}, turn++));
        }
    }
    // The demo model: in-projection in four segments of three types, q/k/v, gate/up, down.
    const DType xs = DType::kIQ4_XS;
    all.push_back(
        {.segments = {{xs, 2048}, {DType::kQ6_K, 1024}, {DType::kF32, 8}, {DType::kF32, 8}},
         .k = 256,
         .rows_max = options.small ? 9 : 65,
         .has_norm = true});
    all.push_back({.segments = {{DType::kF16, 24}, {DType::kQ8_0, 40}},  // a type across the middle
                   .k = 256,
                   .epilogue = Epilogue::kSwiGlu,
                   .has_bias = true});
    all.push_back({.segments = {{xs, 1024}, {xs, 1024}},
                   .k = 256,
                   .rows_max = options.small ? 9 : 65,
                   .epilogue = Epilogue::kSwiGlu,
                   .has_norm = true});
    if (options.small) return all;
    // 9B and 27B; the wide ones with fewer rows, as the reference is slow on purpose.
    all.push_back({.segments = {{xs, 12288}, {xs, 12288}},
                   .k = 4096,
                   .rows_max = 9,
                   .epilogue = Epilogue::kSwiGlu,
                   .has_norm = true});
    all.push_back({.segments = {{xs, 10240}, {xs, 6144}, {DType::kF32, 48}, {DType::kF32, 48}},
                   .k = 5120,
                   .rows_max = 17,
                   .has_norm = true});
    all.push_back({.segments = {{xs, 12288}, {DType::kQ6_K, 1024}, {DType::kQ6_K, 1024}},
                   .k = 5120,
                   .rows_max = 17,
                   .has_norm = true});
    all.push_back(
        {.segments = {{xs, 5120}}, .k = 17408, .rows_max = 65, .epilogue = Epilogue::kAddResidual});
    all.push_back(
        {.segments = {{xs, 5120}}, .k = 6144, .rows_max = 65, .epilogue = Epilogue::kAddResidual});
    for (const DType dtype : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ8_0, DType::kBF16})
        all.push_back({.segments = {{dtype, 5120}}, .k = 6144, .rows_max = 9});
    all.push_back({.segments = {{DType::kQ6_K, 248320}}, .k = 1024, .rows_max = 3});  // 0.8B, head
    // Two types as one launch; the in-projection and q/k/v of the 27B.
    for (const cuda::MatmulMix& mix : cuda::kMatmulMixes)
        for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kAddResidual})
            all.push_back({.segments = {{mix.second, 72}, {mix.first, 520}},
                           .k = 1536,
                           .rows_max = 9,
                           .epilogue = epilogue});
    all.push_back({.segments = {{DType::kQ5_K, 10240}, {xs, 6240}},
                   .k = 5120,
                   .rows_max = 9,
                   .has_norm = true});
    all.push_back({.segments = {{xs, 13312}, {DType::kQ5_K, 1024}},
                   .k = 5120,
                   .rows_max = 9,
                   .has_norm = true});
    // So many inputs that eight rows of a half of them fill shared memory: matmul_mma.
    for (const DType dtype : cuda::kMatmulTypes)
        all.push_back({.segments = {{dtype, 64}}, .k = 24576, .rows_max = 9});
    // So many outputs that blocks own whole tiles, one more than divides.
    for (const DType dtype : {DType::kIQ4_XS, DType::kQ5_K, DType::kQ6_K, DType::kQ8_0})
        all.push_back({.segments = {{dtype, 33809}}, .k = 768, .rows_max = 9, .has_norm = true});
    all.push_back({.segments = {{xs, 17408}, {xs, 17408}},
                   .k = 512,
                   .rows_max = 9,
                   .epilogue = Epilogue::kSwiGlu,
                   .has_bias = true});
    return all;
}

}  // namespace

std::vector<Case> linear_cases(Pair& pair, const CaseOptions& options) {
    std::vector<Case> cases;
    std::uint64_t seed = 1000;
    for (const LinearForm& form : forms(options))
        cases.push_back(
            [&pair, made = make_case(pair, form, seed++)] { return run_case(pair, *made); });
    return cases;
}

std::vector<Case> prefill_cases(Pair& pair, const CaseOptions& options) {
    std::vector<LinearForm> all;
    const auto add = [&](LinearForm form, std::size_t turn) {
        form = varied(std::move(form), turn);
        form.is_prefill = true;
        all.push_back(std::move(form));
    };
    std::size_t turn = 0;
    for (const DType dtype : test::kWeightTypes) {
        if (dtype == DType::kF32) continue;  // alone it keeps f32 products
        const std::int64_t block = format_of(dtype).block_values;
        for (const auto& [n, k] :
             {std::pair{37, 576}, {64, 896}, {17, 960}, {256, 768}, {132, 256}})
            if (k % block == 0)
                add({.segments = {{dtype, n}}, .k = k, .rows_max = options.small ? 33 : 513},
                    turn++);
    }
    const DType xs = DType::kIQ4_XS;
    const auto rows = [&](int most) { return options.small ? 33 : most; };
    for (std::size_t i = 0; i < 6; ++i) {  // every epilogue, aligned and not, over segments
        add({.segments = {{xs, 64}, {xs, 64}}, .k = 256, .rows_max = rows(2048)}, turn++);
        add({.segments = {{xs, 128}, {DType::kQ6_K, 36}, {DType::kF32, 8}, {DType::kF32, 8}},
             .k = 512,
             .rows_max = rows(129)},
            turn++);
        add({.segments = {{DType::kF16, 24}, {DType::kQ8_0, 40}}, .k = 256, .rows_max = rows(129)},
            turn++);
    }
    for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kAddResidual})
        for (const bool is_aligned : {true, false})
            all.push_back({.segments = {{xs, 96}},
                           .k = 512,
                           .rows_max = rows(129),
                           .epilogue = epilogue,
                           .is_aligned = is_aligned,
                           .is_prefill = true,
                           .has_wild_rows = true});
    if (!options.small) {
        all.push_back({.segments = {{xs, 256}},
                       .k = 17408,
                       .rows_max = 513,
                       .epilogue = Epilogue::kAddResidual,
                       .is_prefill = true});
        all.push_back({.segments = {{xs, 5120}}, .k = 6144, .rows_max = 65, .is_prefill = true});
        // An in-projection: four segments multiplied at once.
        all.push_back({.segments = {{DType::kQ5_K, 2048}, {xs, 1040}, {xs, 48}, {DType::kF32, 48}},
                       .k = 5120,
                       .rows_max = 130,
                       .has_norm = true,
                       .is_prefill = true});
    }
    std::vector<Case> cases;
    std::uint64_t seed = 9000;
    for (const LinearForm& form : all)
        cases.push_back(
            [&pair, made = make_case(pair, form, seed++)] { return run_case(pair, *made); });
    return cases;
}

namespace {

using Bytes = std::vector<std::uint8_t>;

/// Alters the first row of a matrix, whose blocks have `block` bytes.
struct Mutation {
    const char* name;
    DType dtype;
    std::size_t block;
    std::function<void(Bytes& bytes, std::size_t block)> alter;
};

constexpr std::int64_t kMutatedOutputs = 37;
constexpr std::int64_t kMutatedInputs = 768;

/// Bits of a range of bytes of every block of the first row.
auto flip(std::size_t first, std::size_t last, std::uint8_t bits) {
    return [=](Bytes& b, std::size_t block) {
        const std::size_t row = b.size() / kMutatedOutputs;
        for (std::size_t at = 0; at < row; at += block)
            for (std::size_t i = first; i < last; ++i)
                b[at + i] = static_cast<std::uint8_t>(b[at + i] ^ bits);
    };
}

std::vector<Mutation> mutations() {
    const DType xs = DType::kIQ4_XS;
    constexpr std::size_t kXs = 136;  // bytes of an IQ4_XS block
    return {
        {"scale sign lost", xs, kXs, [](Bytes& b, std::size_t) { b[1] ^= 0x80U; }},
        {"nibbles swapped", xs, kXs,
         [](Bytes& b, std::size_t block) {
             for (std::size_t i = 8; i < block; ++i)
                 b[i] = static_cast<std::uint8_t>(b[i] << 4 | b[i] >> 4);
         }},
        {"sub-block scale off", xs, kXs, [](Bytes& b, std::size_t) { b[4] ^= 8U; }},
        {"sub-blocks swapped", xs, kXs,
         [](Bytes& b, std::size_t) {
             std::swap_ranges(b.begin() + 8, b.begin() + 24, b.begin() + 24);
         }},
        {"last record skipped", xs, kXs,
         [](Bytes& b, std::size_t block) {
             const auto row = static_cast<std::ptrdiff_t>(b.size() / kMutatedOutputs);
             std::fill(b.begin() + row - static_cast<std::ptrdiff_t>(block), b.begin() + row,
                       std::uint8_t{0});
         }},
        {"row off by one", xs, kXs,
         [](Bytes& b, std::size_t) {
             const auto row = static_cast<std::ptrdiff_t>(b.size() / kMutatedOutputs);
             std::rotate(b.begin(), b.begin() + row, b.end());
         }},
        {"minimum's sign lost", DType::kQ4_K, 144, flip(3, 4, 0x80)},
        {"fifth bits lost", DType::kQ5_K, 176, flip(16, 48, 0xFF)},
        {"sixth bits lost", DType::kQ6_K, 210, flip(128, 192, 0xAA)},
        {"scale of sixteen lost", DType::kQ6_K, 210, flip(192, 193, 0x40)},
        {"signs of codes lost", DType::kQ8_0, 34, flip(2, 34, 0x80)},
        {"offset lost", DType::kQ4_0, 18, flip(2, 18, 0x88)},
        {"upper levels lost", DType::kIQ4_NL, 18, flip(2, 18, 0x80)},
    };
}

}  // namespace

std::vector<Case> mutation_cases(Pair& pair) {
    std::vector<Case> cases;
    // Of each of the two ways on sm_70.
    const std::vector<int> row_counts = pair.has_lanes() ? std::vector{3, 17} : std::vector{3};
    for (const int rows : row_counts)
        for (const Mutation& mutation : mutations()) {
            auto made = make_case(pair,
                                  {.segments = {{mutation.dtype, kMutatedOutputs}},
                                   .k = kMutatedInputs,
                                   .rows_max = rows},
                                  7);
            auto altered = std::make_shared<Bytes>(made->blocks[0]);
            mutation.alter(*altered, mutation.block);
            const MatrixSource source{.name = "mutation",
                                      .dtype = mutation.dtype,
                                      .blocks = altered->data(),
                                      .n = kMutatedOutputs,
                                      .k = kMutatedInputs};
            const MatrixView matrix = pair.pack_cuda({&source, 1});
            // The blocks live as long as the case: packing may still read them.
            cases.push_back([&pair, made, altered, matrix, rows, mutation] {
                CaseResult result{.op = "mutation",
                                  .shape = std::string(name_of(mutation.dtype)) + " " +
                                           mutation.name + ", M=" + std::to_string(rows),
                                  .limit = 10.0};
                const LinearRun reference = run_cpu(pair, *made, rows);
                const LinearRun run = run_cuda(pair, *made, matrix, rows, false);
                // All mutations alter the first output: seen is what exceeds its limit there.
                std::vector<float> out, expected;
                for (std::size_t m = 0; m < static_cast<std::size_t>(rows); ++m) {
                    out.push_back(run.out[m * kMutatedOutputs]);
                    expected.push_back(reference.out[m * kMutatedOutputs]);
                }
                result.see_error(relative_error(out, expected));
                if (result.error <= pair.product_limit(mutation.dtype, rows))
                    result.complain("was not seen");
                return result;
            });
        }
    return cases;
}

}  // namespace kernels::gate

// The rest of the CPU backend: embed, head, mtp_join, sample, what it refuses and how it says so,
// memory that starts as zeros, and that a step allocates nothing.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/quant/decode.h"
#include "tests/kernel/kernel_support.h"
#include "tests/kernel/shapes.h"

namespace {

// Counts every allocation of the process, on any thread; see AStepAllocatesNothing.
std::atomic<std::int64_t> allocation_count{0};

void* counted(std::size_t bytes) {
    allocation_count.fetch_add(1, std::memory_order_relaxed);
    void* result = std::malloc(bytes);
    if (result == nullptr) throw std::bad_alloc();
    return result;
}

}  // namespace

void* operator new(std::size_t bytes) {
    return counted(bytes);
}
void* operator new[](std::size_t bytes) {
    return counted(bytes);
}
void operator delete(void* pointer) noexcept {
    std::free(pointer);
}
void operator delete[](void* pointer) noexcept {
    std::free(pointer);
}
void operator delete(void* pointer, std::size_t /*bytes*/) noexcept {
    std::free(pointer);
}
void operator delete[](void* pointer, std::size_t /*bytes*/) noexcept {
    std::free(pointer);
}

namespace kernels::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kVocabulary = 48;

std::vector<double> rms_normed(const float* x, const std::vector<float>& weight) {
    double squares = 0.0;
    for (std::size_t i = 0; i < weight.size(); ++i)
        squares += double{x[i]} * x[i];
    std::vector<double> out;
    for (std::size_t i = 0; i < weight.size(); ++i)
        out.push_back(x[i] / std::sqrt(squares / double(weight.size()) + 1e-6) * weight[i]);
    return out;
}

/// A table of embeddings, and a backend that has it packed and is ready.
struct Table {
    std::vector<std::uint8_t> blocks;
    std::unique_ptr<Backend> backend;
    MatrixView view;
    DType dtype;

    explicit Table(DType type, const BackendOptions& options = {}) : dtype(type) {
        Random random(3);
        blocks = random_blocks(type, kVocabulary * kWidth, random);
        backend = make_backend(options);
        const MatrixSource source{"token_embd", type, blocks.data(), kVocabulary, kWidth};
        EXPECT_FALSE(backend->pack({&source, 1}, view).has_value());
        EXPECT_FALSE(backend->prepare(limits_of(options)).has_value());
    }
    std::vector<float> row(std::int64_t token) const {
        std::vector<float> out(kWidth);
        decode_row(dtype, blocks.data() + token * row_bytes(dtype, kWidth), out.data(), kWidth);
        return out;
    }
};

TEST(EmbedTest, RowsAreTheTablesRowsExactlyInEveryType) {
    for (const DType dtype : kWeightTypes) {
        SCOPED_TRACE(name_of(dtype));
        Table table(dtype);
        Step step = Step::of_rows(4);
        step.token = {7, 0, 47, -1};
        step.link();
        GuardedRows x(4, kWidth);
        table.backend->begin_step(step.descriptor);
        table.backend->embed({.table = table.view, .x = x.view()});
        table.backend->finish_step();
        EXPECT_EQ(first_difference(x.rows(0, 1), table.row(7)), "");
        EXPECT_EQ(first_difference(x.rows(1, 2), table.row(0)), "");
        EXPECT_EQ(first_difference(x.rows(2, 3), table.row(47)), "");
        EXPECT_EQ(x.rows(3, 4), std::vector<float>(kWidth, 0.0F)) << "a row without a token";
        EXPECT_TRUE(x.guards_are_intact());
    }
}

TEST(HeadTest, HiddenOfEveryRowAndLogitsOfTheChosenOnes) {
    Table table(DType::kF32, {.threads = 2});
    Random random(4);
    const std::vector<float> x = random.normals(5 * kWidth);
    const std::vector<float> norm = random.uniforms(kWidth, 0.5F, 1.5F);
    Step step = Step::of_rows(5);
    step.logit_row = {1, 4};
    step.descriptor.wants_logits = true;
    step.link();
    GuardedRows hidden(5, kWidth);
    const std::vector<std::int64_t> shape = {8, kVocabulary};
    const TensorView logits = table.backend->allocate(DType::kF32, shape);
    table.backend->begin_step(step.descriptor);
    table.backend->head({.x = view_of(x.data(), 5, kWidth),
                         .norm_weight = vector_of(norm),
                         .norm_eps = 1e-6F,
                         .w = table.view,
                         .hidden = hidden.view(),
                         .logits = logits});
    const StepOutputs& outputs = table.backend->finish_step();
    ASSERT_EQ(outputs.logits.size(), 2U * kVocabulary);
    EXPECT_TRUE(outputs.sampled.empty());
    for (std::int64_t m = 0; m < 5; ++m)
        EXPECT_LE(
            relative_error(hidden.rows(m, m + 1), rms_normed(&x[std::size_t(m * kWidth)], norm)),
            1e-6);
    for (std::size_t i = 0; i < 2; ++i) {
        const std::vector<double> h =
            rms_normed(&x[static_cast<std::size_t>(step.logit_row[i]) * kWidth], norm);
        std::vector<double> expected;
        for (std::int64_t n = 0; n < kVocabulary; ++n) {
            const std::vector<float> w = table.row(n);
            double sum = 0.0;
            for (std::size_t j = 0; j < w.size(); ++j)
                sum += w[j] * h[j];
            expected.push_back(sum);
        }
        const auto begin = outputs.logits.begin() + static_cast<std::ptrdiff_t>(i) * kVocabulary;
        EXPECT_LE(relative_error({begin, begin + kVocabulary}, expected), 1e-5);
    }
}

TEST(HeadTest, WithoutAMatrixOnlyHiddenIsWritten) {
    Table table(DType::kF32);
    const std::vector<float> x(2 * kWidth, 3.0F);
    const std::vector<float> norm(kWidth, 1.0F);
    GuardedRows hidden(2, kWidth);
    const Step step = Step::of_rows(2);
    table.backend->begin_step(step.descriptor);
    table.backend->head({.x = view_of(x.data(), 2, kWidth),
                         .norm_weight = vector_of(norm),
                         .norm_eps = 0.0F,
                         .hidden = hidden.view()});
    EXPECT_TRUE(table.backend->finish_step().logits.empty());
    EXPECT_EQ(hidden.all(), std::vector<float>(2 * kWidth, 1.0F));
}

TEST(MtpJoinTest, EmbeddingHalfFirstEachNormedByItself) {
    Table table(DType::kQ8_0);
    Random random(6);
    const std::vector<float> hidden = random.normals(3 * kWidth);
    const std::vector<float> embed_norm = random.uniforms(kWidth, 0.5F, 1.5F);
    const std::vector<float> hidden_norm = random.uniforms(kWidth, 0.5F, 1.5F);
    Step step = Step::of_rows(2);
    step.token = {5, 31};
    step.hidden_row = {2, 0};
    step.link();
    GuardedRows joined(2, 2 * kWidth);
    table.backend->begin_step(step.descriptor);
    table.backend->mtp_join({.table = table.view,
                             .embed_norm_weight = vector_of(embed_norm),
                             .hidden_norm_weight = vector_of(hidden_norm),
                             .norm_eps = 1e-6F,
                             .hidden = view_of(hidden.data(), 3, kWidth),
                             .joined = joined.view()});
    table.backend->finish_step();
    for (std::int64_t m = 0; m < 2; ++m) {
        std::vector<double> expected =
            rms_normed(table.row(step.token[std::size_t(m)]).data(), embed_norm);
        const std::int64_t row = step.hidden_row[std::size_t(m)];
        const std::vector<double> second =
            rms_normed(&hidden[std::size_t(row * kWidth)], hidden_norm);
        expected.insert(expected.end(), second.begin(), second.end());
        EXPECT_LE(relative_error(joined.rows(m, m + 1), expected), 1e-6);
    }
    EXPECT_TRUE(joined.guards_are_intact());
}

TEST(SampleTest, DrawsPerRowAndReportsARowWithoutAFiniteLogit) {
    Table table(DType::kF32, {.threads = 3});
    Step step = Step::of_rows(3);
    step.logit_row = {0, 1, 2};
    step.sampling.resize(3);
    for (SamplingRow& row : step.sampling)
        row.temperature = 0.0F;
    step.link();
    const std::vector<std::int64_t> shape = {3, kVocabulary};
    const TensorView logits = table.backend->allocate(DType::kF32, shape);
    logits.row<float>(0)[11] = 2.0F;
    logits.row<float>(0)[47] = 3.0F;  // padding of the table
    std::fill(logits.row<float>(1), logits.row<float>(1) + kVocabulary, std::nanf(""));
    logits.row<float>(2)[30] = 1.0F;
    table.backend->begin_step(step.descriptor);
    table.backend->sample({.logits = logits, .vocabulary_used = 40});
    const StepOutputs& outputs = table.backend->finish_step();
    ASSERT_EQ(outputs.sampled.size(), 3U);
    EXPECT_EQ(outputs.sampled[0], 11);
    EXPECT_EQ(outputs.sampled[2], 30);
    EXPECT_THAT(outputs.error, ElementsAre(0, 1, 0));
    EXPECT_TRUE(outputs.logits.empty()) << "not asked for";
    EXPECT_TRUE(outputs.logprobs.empty()) << "not asked for";
    step.sampling[2].top_logprobs = 2;
    step.link();
    table.backend->begin_step(step.descriptor);
    table.backend->sample({.logits = logits, .vocabulary_used = 40});
    const StepOutputs& again = table.backend->finish_step();
    ASSERT_EQ(again.logprobs.size(), 3U);
    EXPECT_NEAR(again.logprobs[2].drawn, 1.0 - std::log(39.0 + std::exp(1.0)), 1e-6);
    EXPECT_EQ(again.logprobs[2].top_count, 2);
    EXPECT_EQ(again.logprobs[2].top[0].token, 30);
    EXPECT_EQ(again.logprobs[2].top[1].token, 0);
}

// ---------------------------------------------------------------------------------------------
// Load

TEST(CpuBackendTest, SaysWhatItIs) {
    const DeviceInfo info = make_backend({.threads = 2})->device();
    EXPECT_THAT(info.name, StartsWith("cpu ("));
    EXPECT_THAT(info.name, HasSubstr("2 threads"));
    EXPECT_GT(info.memory_bytes_free, 0U);
    EXPECT_THAT(make_backend({.accumulator = CpuAccumulator::kDouble})->device().name,
                HasSubstr("double"));
}

TEST(CpuBackendTest, AllocationsAreZeroAlignedAndLazy) {
    const auto backend = make_backend({});
    const std::vector<std::int64_t> small = {3, 5};
    for (int i = 0; i < 100; ++i) {
        const TensorView view = backend->allocate(DType::kF16, small);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % 64, 0U);
        EXPECT_EQ(view.row_stride, 5);
        for (int j = 0; j < 15; ++j)
            EXPECT_EQ(view.as<std::uint16_t>()[j], 0);
        std::memset(view.data, 0xff, 30);  // the next one must not see it
    }
    // 64 GB of address space: fine as long as nobody touches it.
    const std::vector<std::int64_t> pool = {1 << 17, 2, 64, 1024};
    const TensorView view = backend->allocate(DType::kF32, pool);
    EXPECT_EQ(view.row<float>((1 << 17) - 1)[0], 0.0F);
}

TEST(CpuBackendTest, UploadsKeepTheirValues) {
    const auto backend = make_backend({});
    const std::vector<std::int64_t> shape = {2, 3};
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    const TensorView view = backend->upload_f32(values, shape);
    EXPECT_EQ(view.row<float>(1)[2], 6.0F);
}

TEST(CpuBackendTest, ItemsAreCopiedReadAndWrittenWholeAndAlone) {
    const auto backend = make_backend({});
    const std::vector<std::int64_t> shape = {3, 2, 5};
    for (const DType dtype : {DType::kF32, DType::kF16}) {
        const TensorView view = backend->allocate(dtype, shape);
        const std::size_t bytes = dtype == DType::kF32 ? 40 : 20;
        std::vector<std::byte> item(bytes);
        for (std::size_t i = 0; i < bytes; ++i)
            item[i] = static_cast<std::byte>(i + 1);
        backend->write_item(view, 1, item);
        backend->copy_item(view, 1, 2);
        backend->copy_item(view, 2, 2);
        std::vector<std::byte> read(bytes);
        backend->read_item(view, 2, read);
        EXPECT_EQ(read, item);
        backend->read_item(view, 0, read);
        EXPECT_EQ(read, std::vector<std::byte>(bytes)) << "the neighbour";
    }
}

TEST(CpuBackendTest, ARowOfAStridedViewIsAnItem) {
    const auto backend = make_backend({});
    const std::vector<std::int64_t> shape = {3, 8};
    const TensorView whole = backend->allocate(DType::kF32, shape);
    const TensorView view = columns(whole, 2, 3);
    whole.row<float>(0)[2] = 1.0F;
    whole.row<float>(0)[4] = 3.0F;
    backend->copy_item(view, 0, 2);
    EXPECT_EQ(std::vector<float>(whole.row<float>(2), whole.row<float>(2) + 8),
              (std::vector<float>{0, 0, 1, 0, 3, 0, 0, 0}));
}

TEST(CpuBackendTest, ACoreOutOfReachIsAnError) {
    EXPECT_THROW(make_cpu_backend({.threads = 1, .cores = {100000}}), std::runtime_error);
    EXPECT_THROW(make_cpu_backend({.threads = 1, .cores = {-1}}), std::runtime_error);
}

std::string refusal_of(const std::vector<MatrixSource>& sources) {
    MatrixView view;
    const std::optional<Refusal> refusal = make_backend({})->pack(sources, view);
    EXPECT_TRUE(view.empty() == refusal.has_value());
    return refusal.has_value() ? refusal->text() : "";
}

TEST(RefusalTest, HasFourParts) {
    const Refusal refusal{"blk.3.attn_q: linear", "type IQ3_S", "is not supported",
                          "re-quantise it to IQ4_XS"};
    EXPECT_EQ(refusal.text(),
              "blk.3.attn_q: linear: type IQ3_S is not supported; re-quantise it to IQ4_XS");
}

TEST(RefusalTest, NamesTheTypeItHasNoKernelFor) {
    const std::vector<std::uint8_t> blocks(4096);
    EXPECT_EQ(refusal_of({{"blk.3.attn_q", static_cast<DType>(21), blocks.data(), 8, 256}}),
              "blk.3.attn_q: linear: type IQ3_S is not supported; re-quantise it to IQ4_XS");
    EXPECT_THAT(refusal_of({{"t", DType::kI32, blocks.data(), 8, 256}}),
                HasSubstr("type I32 is not supported"));
    EXPECT_THAT(refusal_of({{"t", static_cast<DType>(999), blocks.data(), 8, 256}}),
                HasSubstr("type 999 is not supported"));
}

TEST(RefusalTest, InputsMustBeWholeBlocks) {
    const std::vector<std::uint8_t> blocks(4096);
    EXPECT_THAT(refusal_of({{"t", DType::kIQ4_XS, blocks.data(), 8, 576}}),
                HasSubstr("shape 8 x 576 is not a whole number of IQ4_XS blocks of 256 inputs"));
    EXPECT_THAT(refusal_of({{"t", DType::kQ8_0, blocks.data(), 8, 33}}), HasSubstr("blocks of 32"));
}

TEST(RefusalTest, EmptySidesAndMissingWeightsAreRefused) {
    const std::vector<std::uint8_t> blocks(4096);
    EXPECT_THAT(refusal_of({{"t", DType::kF32, blocks.data(), 0, 32}}), HasSubstr("empty side"));
    EXPECT_THAT(refusal_of({{"t", DType::kF32, blocks.data(), 8, 0}}), HasSubstr("empty side"));
    EXPECT_THAT(refusal_of({{"t", DType::kF32, blocks.data(), -1, 32}}), HasSubstr("empty side"));
    EXPECT_THAT(refusal_of({{"t", DType::kF32, nullptr, 8, 32}}), HasSubstr("no weights"));
    EXPECT_THAT(refusal_of({}), HasSubstr("0 segments"));
}

TEST(RefusalTest, SegmentsMustShareTheirInputs) {
    const std::vector<std::uint8_t> blocks(8192);
    const MatrixSource a{"a", DType::kF32, blocks.data(), 4, 64};
    const MatrixSource b{"b", DType::kF32, blocks.data(), 4, 96};
    EXPECT_THAT(refusal_of({a, b}), StartsWith("b: linear: shape 4 x 96 differs"));
    EXPECT_THAT(refusal_of({a, a, a, a, a}), HasSubstr("5 segments"));
    EXPECT_EQ(refusal_of({a, a, a, a}), "");
}

TEST(RefusalTest, StepLimitsMustBePositiveAndCoverTheMatrices) {
    StepLimits limits = limits_of({});
    limits.rows = 0;
    EXPECT_THAT(make_backend({})->prepare(limits)->text(), HasSubstr("rows = 0"));
    const auto backend = make_backend({});
    const std::vector<std::uint8_t> blocks(4096 * 4);
    const MatrixSource source{"wide", DType::kF32, blocks.data(), 1, 4096};
    MatrixView view;
    ASSERT_FALSE(backend->pack({&source, 1}, view).has_value());
    EXPECT_THAT(backend->prepare(limits_of({.inputs_max = 1024}))->text(),
                HasSubstr("below the 4096 inputs"));
}

// ---------------------------------------------------------------------------------------------

TEST(CpuBackendTest, AStepAllocatesNothing) {
    Table table(DType::kIQ4_XS, {.threads = 2});
    Backend& backend = *table.backend;
    Random random(9);
    const std::vector<float> norm(kWidth, 1.0F);
    const auto allocate = [&](std::vector<std::int64_t> shape) {
        return backend.allocate(DType::kF32, shape);
    };
    const TensorView x = allocate({8, kWidth});
    const TensorView y = allocate({8, kVocabulary});
    const TensorView hidden = allocate({8, kWidth});
    const TensorView pool = allocate({4, 2, 16, 32});
    const TensorView rope = allocate({64, 32});
    const TensorView state = allocate({4, 4, 32, 32});
    const TensorView conv_ring = allocate({4, 6, kWidth});
    const TensorView replay = allocate({4, 3, 2 * 32 + 4 * 32 + 4});
    const TensorView conv_w = allocate({kWidth, 4});
    const TensorView heads = allocate({8, 128});
    Step step({{.rows = 3, .state_slot = 1, .blocks = {2}},
               {.kv_len_before = 4, .rows = 1, .state_slot = 2, .blocks = {0}}});
    step.logit_row = {2, 3};
    const std::vector<std::int32_t> drafted = {3, 4};
    step.sampling = {SamplingRow{.top_k = 5, .top_logprobs = 20},
                     SamplingRow{.temperature = 0.0F,
                                 .repetition_penalty = 1.1F,
                                 .top_logprobs = 0,
                                 .drafted = drafted}};
    step.replay_rows = {0, 2};
    step.commit = {0, 1};
    step.link();
    const auto run = [&] {
        backend.begin_step(step.descriptor);
        backend.embed({.table = table.view, .x = x});
        backend.linear(
            {.x = x, .norm_weight = vector_of(norm), .norm_eps = 1e-6F, .w = table.view, .y = y});
        backend.attention({.n_h = 4,
                           .n_kv = 2,
                           .head_dim = 32,
                           .n_rot = 32,
                           .q = columns(x, 0, 128),
                           .k = columns(x, 0, 64),
                           .v = columns(x, 64, 64),
                           .rope = rope,
                           .kv = {pool, pool},
                           .y = heads});
        backend.delta_net({.n_k = 2,
                           .n_v = 4,
                           .state_size = 32,
                           .conv_kernel = 4,
                           .norm_eps = 1e-6F,
                           .u = x,
                           .z = columns(x, 0, 128),
                           .beta = columns(x, 0, 4),
                           .alpha = columns(x, 4, 4),
                           .conv_w = conv_w,
                           .dt_bias = vector_of(norm),
                           .a = vector_of(norm),
                           .norm_weight = vector_of(norm),
                           .state = state,
                           .conv_ring = conv_ring,
                           .replay = replay,
                           .y = heads});
        backend.head({.x = x,
                      .norm_weight = vector_of(norm),
                      .norm_eps = 1e-6F,
                      .w = table.view,
                      .hidden = hidden,
                      .logits = y});
        backend.sample({.logits = y, .vocabulary_used = kVocabulary});
        return backend.finish_step().sampled.size();
    };
    const std::int64_t before = allocation_count.load();
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(run(), 2U);
    EXPECT_EQ(allocation_count.load() - before, 0);
}

}  // namespace
}  // namespace kernels::test

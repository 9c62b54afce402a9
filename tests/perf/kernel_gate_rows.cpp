// embed, mtp_join, head with sample and log-probabilities, and items moved between steps.
#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "kernels/quant/format.h"
#include "kernels/sampling.h"
#include "tests/kernel/kernel_support.h"
#include "tests/kernel/shapes.h"
#include "tests/perf/kernel_gate_cases.h"

namespace kernels::gate {
namespace {

using test::Random;
using test::Step;

constexpr std::int64_t kVocabulary = 70;
constexpr std::int64_t kWidth = 768;
constexpr int kRowsUsed = 13;

struct Table {
    std::vector<std::uint8_t> blocks;
    Pair::Matrices matrices;
};

std::shared_ptr<Table> make_table(Pair& pair, DType dtype, std::int64_t n, std::uint64_t seed) {
    auto table = std::make_shared<Table>();
    Random random(seed);
    table->blocks = test::random_blocks(dtype, n * kWidth, random);
    const MatrixSource source{
        .name = "table", .dtype = dtype, .blocks = table->blocks.data(), .n = n, .k = kWidth};
    table->matrices = pair.pack({&source, 1});
    return table;
}

Step token_step() {
    Step step = Step::of_rows(kRowsUsed);
    for (std::size_t i = 0; i < step.token.size(); ++i)
        step.token[i] = static_cast<std::int32_t>((i * 29) % kVocabulary);
    step.token[4] = -1;  // a row without a token
    step.token[5] = static_cast<std::int32_t>(kVocabulary) - 1;
    step.link();
    return step;
}

CaseResult run_embed(Pair& pair, const Table& table, DType dtype) {
    CaseResult result{.op = "embed",
                      .shape = std::string(name_of(dtype)) + " bit for bit",
                      .limit = 0.0,
                      .may_be_exact = true};
    const Step step = token_step();
    Rows expected(kRowsUsed, kWidth);
    pair.cpu().begin_step(step.descriptor);
    pair.cpu().embed({.table = table.matrices.cpu, .x = expected.view()});
    pair.cpu().finish_step();
    pair.reset();
    Rows x(kRowsUsed, kWidth);
    const TensorView device = pair.place(x);
    pair.cuda().begin_step(step.descriptor);
    pair.cuda().embed({.table = table.matrices.cuda, .x = device});
    pair.cuda().finish_step();
    pair.fetch(x, device);
    result.see_error(relative_error(x.all(), expected.all()));
    if (const auto where = first_difference(x.all(), expected.all()); !where.empty())
        result.complain("differs " + where);
    if (!x.guards_are_intact()) result.complain("wrote past its rows");
    return result;
}

CaseResult run_mtp_join(Pair& pair, const Table& table) {
    CaseResult result{.op = "mtp_join", .shape = "IQ4_XS 70 x 768", .limit = 1e-6};
    Random random(5);
    Step step = token_step();
    for (int m = 0; m < kRowsUsed; ++m)
        step.hidden_row.push_back(kRowsUsed + 3 - m);  // of a buffer with more rows
    step.link();
    const std::vector<float> embed_norm = random.uniforms(kWidth, 0.5F, 1.5F);
    const std::vector<float> hidden_norm = random.uniforms(kWidth, 0.5F, 1.5F);
    constexpr std::int64_t kHiddenRows = kRowsUsed + 4;
    Rows hidden(kHiddenRows, kWidth, Rows::kGuard, random.normals(kHiddenRows * kWidth));
    Rows expected(kRowsUsed, 2 * kWidth);
    MtpJoinArgs args{.table = table.matrices.cpu,
                     .embed_norm_weight = test::vector_of(embed_norm),
                     .hidden_norm_weight = test::vector_of(hidden_norm),
                     .norm_eps = 1e-6F,
                     .hidden = hidden.view(),
                     .joined = expected.view()};
    pair.cpu().begin_step(step.descriptor);
    pair.cpu().mtp_join(args);
    pair.cpu().finish_step();
    pair.reset();
    Rows joined(kRowsUsed, 2 * kWidth);
    args.table = table.matrices.cuda;
    args.embed_norm_weight = pair.place(args.embed_norm_weight);
    args.hidden_norm_weight = pair.place(args.hidden_norm_weight);
    args.hidden = pair.place(hidden);
    args.joined = pair.place(joined);
    pair.cuda().begin_step(step.descriptor);
    pair.cuda().mtp_join(args);
    pair.cuda().finish_step();
    pair.fetch(joined, args.joined);
    result.see_error(relative_error(joined.all(), expected.all()));
    if (!joined.guards_are_intact()) result.complain("wrote past its rows");
    return result;
}

SamplingRow sampling_row(std::size_t i) {
    SamplingRow row;
    row.temperature = i % 2 == 0 ? 0.0F : 0.8F;
    row.top_k = i % 3 == 0 ? 20 : 0;
    row.top_p = i % 4 == 1 ? 0.9F : 1.0F;
    row.seed = 77 + i;
    row.draw_index = i;
    row.top_logprobs = static_cast<std::int32_t>(i) - 1;  // the first row does not ask
    return row;
}

/// The tokens must be those the shared rules draw from the logits that came back.
void check_samples(const StepOutputs& outputs, const Step& step, std::int64_t vocabulary,
                   CaseResult& result) {
    SampleScratch scratch(static_cast<std::int32_t>(vocabulary));
    const auto width = static_cast<std::size_t>(vocabulary);
    if (outputs.sampled.size() != step.logit_row.size()) {
        result.complain("drew " + std::to_string(outputs.sampled.size()) + " tokens");
        return;
    }
    for (std::size_t i = 0; i < outputs.sampled.size(); ++i) {
        const SampledToken expected =
            sample_row(outputs.logits.subspan(i * width, width), step.sampling[i],
                       static_cast<std::int32_t>(vocabulary) - 3, scratch);
        if (outputs.sampled[i] != expected.token || outputs.error[i] != 0)
            result.complain("row " + std::to_string(i) + " drew another token");
        if (step.sampling[i].top_logprobs < 0) continue;
        const RowLogprobs logprobs = row_logprobs(outputs.logits.subspan(i * width, width),
                                                  static_cast<std::int32_t>(vocabulary) - 3,
                                                  expected, step.sampling[i].top_logprobs);
        if (outputs.logprobs.size() != outputs.sampled.size() ||
            outputs.logprobs[i].drawn != logprobs.drawn ||
            outputs.logprobs[i].top_count != logprobs.top_count)
            result.complain("row " + std::to_string(i) + " has other log-probabilities");
    }
}

CaseResult run_items(Pair& pair) {
    CaseResult result{
        .op = "items", .shape = "4 x 96, copy, read, write", .limit = 0.0, .may_be_exact = true};
    constexpr std::int64_t kItems = 4;
    constexpr std::int64_t kValues = 96;
    Random random(8);
    std::vector<float> expected = random.normals(kItems * kValues);
    const std::vector<float> written = random.normals(kValues);
    pair.reset();
    const TensorView device =
        pair.place(host_view(DType::kF32, {kItems, kValues}, expected.data()));
    pair.cuda().write_item(device, 1, std::as_bytes(std::span(written)));
    pair.cuda().copy_item(device, 1, 3);
    pair.cuda().copy_item(device, 0, 1);
    std::vector<float> read(static_cast<std::size_t>(kValues));
    pair.cuda().read_item(device, 3, std::as_writable_bytes(std::span(read)));
    if (!first_difference(read, written).empty()) result.complain("read another item");
    std::copy_n(expected.begin(), kValues, expected.begin() + kValues);
    std::copy(written.begin(), written.end(), expected.begin() + 3 * kValues);
    std::vector<float> all(expected.size());
    pair.fetch(host_view(DType::kF32, {kItems, kValues}, all.data()), device);
    result.see_error(relative_error(all, expected));
    return result;
}

CaseResult run_head(Pair& pair, const Table& table, std::int64_t vocabulary) {
    CaseResult result{.op = "head", .shape = "Q6_K 4096 x 768, 6 of 13 rows"};
    result.limit = pair.product_limit(DType::kQ6_K);
    Random random(6);
    Step step = token_step();
    step.logit_row = {0, 3, 4, 7, 11, 12};
    for (std::size_t i = 0; i < step.logit_row.size(); ++i)
        step.sampling.push_back(sampling_row(i));
    step.descriptor.wants_logits = true;
    step.link();
    const auto logit_rows = static_cast<std::int64_t>(step.logit_row.size());
    const std::vector<float> norm = random.uniforms(kWidth, 0.01F, 0.05F);
    Rows x(kRowsUsed, kWidth, Rows::kGuard, random.normals(kRowsUsed * kWidth));
    Rows hidden_expected(kRowsUsed, kWidth);
    Rows logits_expected(logit_rows, vocabulary, 0);
    HeadArgs args{.x = x.view(),
                  .norm_weight = test::vector_of(norm),
                  .norm_eps = 1e-6F,
                  .w = table.matrices.cpu,
                  .hidden = hidden_expected.view(),
                  .logits = logits_expected.view()};
    pair.cpu().begin_step(step.descriptor);
    pair.cpu().head(args);
    pair.cpu().finish_step();
    pair.reset();
    Rows hidden(kRowsUsed, kWidth);
    Rows logits(logit_rows, vocabulary, 0);
    args.w = table.matrices.cuda;
    args.x = pair.place(x);
    args.norm_weight = pair.place(args.norm_weight);
    args.hidden = pair.place(hidden);
    args.logits = pair.place(logits);
    pair.cuda().begin_step(step.descriptor);
    pair.cuda().head(args);
    pair.cuda().sample(
        {.logits = args.logits, .vocabulary_used = static_cast<std::int32_t>(vocabulary) - 3});
    const StepOutputs outputs = pair.cuda().finish_step();
    pair.fetch(hidden, args.hidden);
    pair.fetch(logits, args.logits);
    if (!(relative_error(hidden.all(), hidden_expected.all()) <= 1e-5))
        result.complain("normed other hidden rows");
    result.see_error(relative_error(logits.all(), logits_expected.all()));
    if (!hidden.guards_are_intact()) result.complain("wrote past its rows");
    const std::vector<float> returned(outputs.logits.begin(), outputs.logits.end());
    if (!first_difference(returned, logits.all()).empty())
        result.complain("returned other logits than it computed");
    check_samples(outputs, step, vocabulary, result);
    return result;
}

}  // namespace

std::vector<Case> row_cases(Pair& pair) {
    std::vector<Case> cases;
    std::uint64_t seed = 50;
    for (const DType dtype : test::kWeightTypes) {
        auto table = make_table(pair, dtype, kVocabulary, seed++);
        cases.push_back([&pair, table, dtype] { return run_embed(pair, *table, dtype); });
        if (dtype == DType::kIQ4_XS)
            cases.push_back([&pair, table] { return run_mtp_join(pair, *table); });
    }
    constexpr std::int64_t kHeadVocabulary = 4096;
    auto head = make_table(pair, DType::kQ6_K, kHeadVocabulary, seed);
    cases.push_back([&pair, head] { return run_head(pair, *head, kHeadVocabulary); });
    cases.push_back([&pair] { return run_items(pair); });
    return cases;
}

}  // namespace kernels::gate

// attention: a mixed batch over pages in any order against the reference, pages included; every
// element the step must not write stays as it was; a batch equals its sequences alone, a verify
// step its rows as single steps. What pages hold past the sequences is no number.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "kernels/quant/half.h"
#include "tests/kernel/kernel_support.h"
#include "tests/perf/kernel_gate_cases.h"

namespace kernels::gate {
namespace {

using test::Random;
using test::SequencePart;
using test::Step;

// f32 against double. Keys near a tie of binary16 may round apart, one unit in 2^-11 of few values.
constexpr double kLimitF32 = 1e-5;
constexpr double kLimitF16 = 2e-4;
// attention_decode: queries and weights rounded to binary16, 2^-11 / sqrt(3) = 2.8e-4 each.
constexpr double kLimitMma = 2e-3;

// Sequences of more rows go to attention_prefill.
constexpr std::int32_t kStepRowsMax = 16;

struct HeadForm {
    std::int32_t n_h, n_kv, head_dim, n_rot;
    bool has_gate = true;
    bool has_norm = true;
    RopePairing pairing = RopePairing::kHalfSplit;
    DType kv_type = DType::kF16;
    std::int32_t block_tokens = 16;
    std::int64_t q_width() const { return std::int64_t{n_h} * head_dim * (has_gate ? 2 : 1); }
    std::int64_t kv_width() const { return std::int64_t{n_kv} * head_dim; }
};

struct Span {
    std::int32_t kv_len_before;
    std::int32_t rows;
};

/// A layer's inputs and pages, and the step over them.
struct AttentionData {
    HeadForm form;
    std::int64_t rows = 0;
    std::int64_t blocks = 1;  // block 0 belongs to nobody
    std::int64_t positions = 0;
    std::vector<SequencePart> parts;
    std::vector<float> q, k, v, q_norm, k_norm, rope;
    std::vector<std::byte> k_pages, v_pages;

    /// `is_shared`: all sequences but the first take the first one's pages where they can.
    AttentionData(const HeadForm& f, const std::vector<Span>& spans, std::uint64_t seed,
                  bool is_shared)
        : form(f) {
        Random random(seed);
        for (const Span& span : spans) {
            const std::int32_t tokens = span.kv_len_before + span.rows;
            SequencePart part{.kv_len_before = span.kv_len_before, .rows = span.rows};
            for (std::int32_t t = 0; t < tokens; t += f.block_tokens)
                part.blocks.push_back(static_cast<std::int32_t>(blocks++));
            std::ranges::reverse(part.blocks);
            if (is_shared && !parts.empty()) share(part);
            parts.push_back(part);
            rows += span.rows;
            positions = std::max<std::int64_t>(positions, tokens);
        }
        q = random.normals(rows * f.q_width(), f.has_norm ? 2.0F : 0.7F);
        k = random.normals(rows * f.kv_width(), f.has_norm ? 2.0F : 0.7F);
        v = random.normals(rows * f.kv_width());
        q_norm = random.uniforms(f.head_dim, 0.5F, 1.5F);
        k_norm = random.uniforms(f.head_dim, 0.5F, 1.5F);
        k_pages = random_pages(random);
        v_pages = random_pages(random);
        poison();
        make_rope();
    }
    void share(SequencePart& part) {
        const std::size_t full = static_cast<std::size_t>(part.kv_len_before / form.block_tokens);
        blocks -= static_cast<std::int64_t>(full);
        for (std::size_t i = 0; i < part.blocks.size(); ++i)
            part.blocks[i] = i < full
                                 ? parts[0].blocks[i]
                                 : static_cast<std::int32_t>(blocks - 1 - std::int64_t(i - full));
    }
    /// Places of tokens that are not there yet.
    void poison() {
        const std::size_t width = form.kv_type == DType::kF32 ? 4 : 2;
        for (const SequencePart& part : parts)
            for (std::size_t b = 0; b < part.blocks.size(); ++b)
                for (std::int64_t t = 0; t < form.block_tokens; ++t) {
                    if (static_cast<std::int64_t>(b) * form.block_tokens + t < part.kv_len_before)
                        continue;
                    for (std::int64_t h = 0; h < form.n_kv; ++h) {
                        const std::int64_t token =
                            (part.blocks[b] * std::int64_t{form.n_kv} + h) * form.block_tokens + t;
                        const auto at = static_cast<std::ptrdiff_t>(
                            static_cast<std::size_t>(token * form.head_dim) * width);
                        const auto bytes = static_cast<std::ptrdiff_t>(
                            static_cast<std::size_t>(form.head_dim) * width);
                        for (std::vector<std::byte>* pages : {&k_pages, &v_pages})
                            std::fill_n(pages->begin() + at, bytes, std::byte{0xff});  // NaN
                    }
                }
    }
    std::int64_t page_values() const { return blocks * form.kv_width() * form.block_tokens; }
    std::vector<std::byte> random_pages(Random& random) const {
        // A piece of an odd length over and over: drawing every value of long caches takes longer
        // than all else.
        const std::vector<float> piece =
            random.normals(std::min<std::int64_t>(page_values(), 1'000'003));
        std::vector<float> values(static_cast<std::size_t>(page_values()));
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = piece[i % piece.size()];
        if (form.kv_type == DType::kF32) {
            const auto bytes = std::as_bytes(std::span(values));
            return {bytes.begin(), bytes.end()};
        }
        std::vector<std::uint16_t> halves(values.size());
        std::ranges::transform(values, halves.begin(), f32_to_f16);
        const auto bytes = std::as_bytes(std::span(halves));
        return {bytes.begin(), bytes.end()};
    }
    void make_rope() {
        std::vector<double> frequencies;
        for (int i = 0; i < form.n_rot / 2; ++i)
            frequencies.push_back(std::pow(1e6, -2.0 * i / form.n_rot));
        for (std::int64_t p = 0; p < positions; ++p)
            for (const bool is_sine : {false, true})
                for (const double frequency : frequencies) {
                    const double angle = static_cast<double>(p) * frequency;
                    rope.push_back(static_cast<float>(is_sine ? std::sin(angle) : std::cos(angle)));
                }
    }
    TensorView pages(std::vector<std::byte>& bytes) const {
        return host_view(form.kv_type, {blocks, form.n_kv, form.block_tokens, form.head_dim},
                         bytes.data());
    }
    /// What is no number reads as zero.
    std::vector<float> floats(const std::vector<std::byte>& bytes) const {
        std::vector<float> result(static_cast<std::size_t>(page_values()));
        for (std::size_t i = 0; i < result.size(); ++i) {
            if (form.kv_type == DType::kF32) {
                std::memcpy(&result[i], &bytes[i * 4], 4);
            } else {
                std::uint16_t half = 0;
                std::memcpy(&half, &bytes[i * 2], 2);
                result[i] = f16_to_f32(half);
            }
            if (std::isnan(result[i])) result[i] = 0.0F;
        }
        return result;
    }
};

struct AttentionResult {
    std::vector<float> y;
    std::vector<std::byte> k_pages, v_pages;
    bool guards_are_intact = true;
};

template <class Place, class PlaceRows>
AttentionArgs args_of(AttentionData& d, Rows& q, Rows& k, Rows& v, Place place,
                      PlaceRows place_rows) {
    const HeadForm& f = d.form;
    AttentionArgs args;
    args.n_h = f.n_h;
    args.n_kv = f.n_kv;
    args.head_dim = f.head_dim;
    args.n_rot = f.n_rot;
    args.has_gate = f.has_gate;
    args.norm_eps = 1e-6F;
    args.q = place_rows(q);
    args.k = place_rows(k);
    args.v = place_rows(v);
    if (f.has_norm) {
        args.q_norm = place(test::vector_of(d.q_norm));
        args.k_norm = place(test::vector_of(d.k_norm));
    }
    args.rope = place(host_view(DType::kF32, {d.positions, f.n_rot}, d.rope.data()));
    args.pairing = f.pairing;
    return args;
}

struct AttentionRows {
    Rows q, k, v, y;
    explicit AttentionRows(const AttentionData& d)
        : q(d.rows, d.form.q_width(), Rows::kGuard, d.q),
          k(d.rows, d.form.kv_width(), Rows::kGuard, d.k),
          v(d.rows, d.form.kv_width(), Rows::kGuard, d.v),
          y(d.rows, std::int64_t{d.form.n_h} * d.form.head_dim) {}
};

Step step_of(const std::vector<SequencePart>& parts) {
    return Step(parts, kLimits.blocks_per_seq);
}

AttentionResult run_cpu(Pair& pair, AttentionData& d) {
    AttentionRows rows(d);
    AttentionResult result{.y = {}, .k_pages = d.k_pages, .v_pages = d.v_pages};
    AttentionArgs args = args_of(
        d, rows.q, rows.k, rows.v, [](const TensorView& view) { return view; },
        [](Rows& r) { return r.view(); });
    args.kv = {.k = d.pages(result.k_pages), .v = d.pages(result.v_pages)};
    args.y = rows.y.view();
    const Step step = step_of(d.parts);
    pair.cpu().begin_step(step.descriptor);
    pair.cpu().attention(args);
    pair.cpu().finish_step();
    result.y = rows.y.all();
    return result;
}

enum class Cut { kOneStep, kSequences, kRows, kHalves };

/// All sequences in one step, each in a step of its own, each row, or each sequence in two parts
/// of more than 16 rows.
AttentionResult run_cuda(Pair& pair, AttentionData& d, Cut cut) {
    pair.reset();
    AttentionRows rows(d);
    AttentionResult result{.y = {}, .k_pages = d.k_pages, .v_pages = d.v_pages};
    const AttentionArgs whole = [&] {
        AttentionArgs args = args_of(
            d, rows.q, rows.k, rows.v, [&](const TensorView& view) { return pair.place(view); },
            [&](Rows& r) { return pair.place(r); });
        args.kv = {.k = pair.place(d.pages(result.k_pages)),
                   .v = pair.place(d.pages(result.v_pages))};
        args.y = pair.place(rows.y);
        return args;
    }();
    std::vector<std::vector<SequencePart>> steps;
    if (cut == Cut::kOneStep) steps.push_back(d.parts);
    for (const SequencePart& part : d.parts) {
        if (cut == Cut::kSequences) steps.push_back({part});
        for (std::int32_t i = 0; i < part.rows && cut == Cut::kRows; ++i) {
            SequencePart row = part;
            row.kv_len_before += i;
            row.rows = 1;
            steps.push_back({row});
        }
        if (cut != Cut::kHalves) continue;
        SequencePart half = part;
        for (const std::int32_t count : {part.rows / 2, part.rows - part.rows / 2}) {
            half.rows = count;
            steps.push_back({half});
            half.kv_len_before += count;
        }
    }
    std::int64_t begin = 0;
    for (const auto& parts : steps) {
        const Step step = step_of(parts);
        AttentionArgs args = whole;
        for (TensorView AttentionArgs::*part :
             {&AttentionArgs::q, &AttentionArgs::k, &AttentionArgs::v, &AttentionArgs::y}) {
            (args.*part).data = (whole.*part).row<float>(begin);
            (args.*part).shape[0] = step.descriptor.rows;
        }
        pair.cuda().begin_step(step.descriptor);
        pair.cuda().attention(args);
        pair.cuda().finish_step();
        begin += step.descriptor.rows;
    }
    pair.fetch(rows.y, whole.y);
    pair.fetch(d.pages(result.k_pages), whole.kv.k);
    pair.fetch(d.pages(result.v_pages), whole.kv.v);
    result.y = rows.y.all();
    result.guards_are_intact = rows.y.guards_are_intact();
    return result;
}

/// Elements of the pages the step did not append must be as they were.
void check_pages(const AttentionData& d, const AttentionResult& cuda,
                 const AttentionResult& expected, CaseResult& result) {
    result.see_error(relative_error(d.floats(cuda.k_pages), d.floats(expected.k_pages)));
    if (cuda.v_pages != expected.v_pages) result.complain("V pages differ");
    const std::vector<float> before = d.floats(d.k_pages);
    const std::vector<float> after = d.floats(cuda.k_pages);
    const std::vector<float> reference = d.floats(expected.k_pages);
    std::int64_t strays = 0;
    for (std::size_t i = 0; i < before.size(); ++i)
        if (reference[i] == before[i] && after[i] != before[i]) ++strays;
    // An appended value may equal the one before by chance; more than a few are strays.
    if (strays > 3) result.complain(std::to_string(strays) + " K elements written elsewhere");
}

std::string text_of(const HeadForm& f) {
    return std::to_string(f.n_h) + "/" + std::to_string(f.n_kv) + " heads of " +
           std::to_string(f.head_dim) + ", rot " + std::to_string(f.n_rot) +
           (f.kv_type == DType::kF16 ? ", f16" : ", f32") + (f.has_gate ? ", gate" : "") +
           (f.pairing == RopePairing::kAdjacent ? ", adjacent" : "");
}

bool has_decode(Pair& pair, const HeadForm& form) {
    const std::vector<KernelEntry> entries = pair.cuda().armed_kernels();
    const bool is_armed = std::ranges::any_of(entries, [](const KernelEntry& entry) {
        return entry.name == "attention_decode" && entry.state == KernelState::kArmed;
    });
    return is_armed && form.kv_type == DType::kF16 && form.block_tokens >= 16 &&
           (form.head_dim == 64 || form.head_dim == 128 || form.head_dim == 256);
}

CaseResult run_case(Pair& pair, const HeadForm& form, const std::vector<Span>& spans,
                    const std::string& what, bool is_shared) {
    CaseResult result{.op = "attention", .shape = text_of(form) + what};
    result.limit = form.kv_type == DType::kF16 ? kLimitF16 : kLimitF32;
    if (has_decode(pair, form)) result.limit = kLimitMma;
    AttentionData data(form, spans, 400, is_shared);
    const AttentionResult expected = run_cpu(pair, data);
    const AttentionResult first = run_cuda(pair, data, Cut::kOneStep);
    const AttentionResult second = run_cuda(pair, data, Cut::kOneStep);
    const AttentionResult alone = run_cuda(pair, data, Cut::kSequences);
    const bool is_step =
        std::ranges::all_of(spans, [](const Span& s) { return s.rows <= kStepRowsMax; });
    if (is_step) {
        const AttentionResult rows = run_cuda(pair, data, Cut::kRows);
        if (const auto where = first_difference(first.y, rows.y); !where.empty())
            result.complain("verify differs from single steps " + where);
    }
    if (has_decode(pair, form) &&
        std::ranges::all_of(spans, [](const Span& s) { return s.rows / 2 > kStepRowsMax; })) {
        const AttentionResult halves = run_cuda(pair, data, Cut::kHalves);
        if (const auto where = first_difference(first.y, halves.y); !where.empty())
            result.complain("depends on how a prompt is cut " + where);
    }
    result.see_error(relative_error(first.y, expected.y));
    if (!first.guards_are_intact) result.complain("wrote past its rows");
    check_pages(data, first, expected, result);
    if (const auto where = first_difference(first.y, second.y); !where.empty())
        result.complain("differs from run to run " + where);
    if (const auto where = first_difference(first.y, alone.y); !where.empty())
        result.complain("depends on the batch " + where);
    return result;
}

}  // namespace

std::vector<Case> attention_cases(Pair& pair, const CaseOptions& options) {
    const std::vector<Span> batch = {{0, 1},  {0, 5},  {1, 1},   {15, 1},
                                     {15, 3}, {16, 1}, {200, 2}, {0, 33}};
    std::vector<HeadForm> forms = {
        {.n_h = 2, .n_kv = 1, .head_dim = 32, .n_rot = 16},
        {.n_h = 3,
         .n_kv = 3,
         .head_dim = 64,
         .n_rot = 64,
         .has_gate = false,
         .has_norm = false,
         .pairing = RopePairing::kAdjacent,
         .kv_type = DType::kF32},
        {.n_h = 4, .n_kv = 2, .head_dim = 80, .n_rot = 80, .has_gate = false, .block_tokens = 1},
        {.n_h = 4, .n_kv = 1, .head_dim = 128, .n_rot = 128, .has_gate = false, .block_tokens = 32},
        {.n_h = 4, .n_kv = 2, .head_dim = 256, .n_rot = 64, .kv_type = DType::kF32}};
    std::vector<Case> cases;
    const auto add = [&](const HeadForm& form, const std::vector<Span>& spans,
                         const std::string& what, bool is_shared = false) {
        cases.push_back([&pair, form, spans, what, is_shared] {
            return run_case(pair, form, spans, what, is_shared);
        });
    };
    for (const HeadForm& form : forms)
        add(form, batch, ", batch");
    // Around units of 128 tokens and groups of 16 units; every number of rows; 1 to 16 heads a
    // group.
    const std::vector<Span> edges = {{0, 16},   {63, 1},   {111, 1}, {112, 16}, {120, 9}, {126, 5},
                                     {127, 1},  {127, 2},  {128, 1}, {129, 3},  {250, 7}, {255, 4},
                                     {256, 10}, {383, 12}, {500, 6}, {639, 8}};
    add({.n_h = 16, .n_kv = 1, .head_dim = 64, .n_rot = 64, .block_tokens = 32}, edges, ", edges");
    add({.n_h = 5, .n_kv = 1, .head_dim = 128, .n_rot = 128, .has_norm = false}, edges, ", edges");
    add({.n_h = 6, .n_kv = 2, .head_dim = 256, .n_rot = 64, .block_tokens = 64}, edges, ", edges");
    if (options.small) return cases;
    const std::vector<Span> groups = {{2047, 1}, {2046, 5}, {2048, 1}, {4094, 4},
                                      {4095, 1}, {4096, 1}, {6200, 3}, {1, 1}};
    add({.n_h = 7, .n_kv = 1, .head_dim = 64, .n_rot = 64, .block_tokens = 64}, groups, ", groups");
    add({.n_h = 4, .n_kv = 2, .head_dim = 128, .n_rot = 64, .block_tokens = 16}, groups,
        ", groups");
    add({.n_h = 24, .n_kv = 4, .head_dim = 256, .n_rot = 64, .block_tokens = 64}, groups,
        ", groups");
    add({.n_h = 12, .n_kv = 2, .head_dim = 256, .n_rot = 64, .block_tokens = 64}, {{131071, 1}},
        ", 128K");
    add({.n_h = 2, .n_kv = 1, .head_dim = 256, .n_rot = 64, .block_tokens = 64}, {{262139, 5}},
        ", 256K");
    // More results of groups than the scratch holds: whole heads go to blocks.
    add({.n_h = 8, .n_kv = 4, .head_dim = 256, .n_rot = 64, .block_tokens = 64},
        std::vector<Span>(16, Span{.kv_len_before = 68000, .rows = 2}), ", 16 x 66K", true);
    const HeadForm demo{.n_h = 4, .n_kv = 2, .head_dim = 256, .n_rot = 64, .block_tokens = 64};
    const HeadForm model_27b{
        .n_h = 24, .n_kv = 4, .head_dim = 256, .n_rot = 64, .block_tokens = 64};
    add(demo, batch, ", batch");
    add(model_27b, batch, ", batch");
    add(model_27b, {{4095, 1}, {4096, 2}, {63, 1}, {64, 1}}, ", 4K");
    add({.n_h = 9, .n_kv = 3, .head_dim = 64, .n_rot = 64, .has_gate = false, .has_norm = false},
        {{1000, 4}, {0, 64}}, ", SmolLM2");
    // Chunks: around tiles of 64 tokens and 128 columns, behind cached prefixes, beside steps.
    const std::vector<Span> chunks = {{0, 17},    {0, 64},    {1, 63},   {63, 65},
                                      {64, 33},   {100, 127}, {127, 18}, {0, 3},
                                      {300, 129}, {16, 1},    {513, 22}, {5, 200}};
    add({.n_h = 6, .n_kv = 2, .head_dim = 64, .n_rot = 64, .has_norm = false, .block_tokens = 16},
        chunks, ", chunks");
    add({.n_h = 5,
         .n_kv = 1,
         .head_dim = 128,
         .n_rot = 128,
         .has_gate = false,
         .pairing = RopePairing::kAdjacent,
         .block_tokens = 32},
        chunks, ", chunks");
    add({.n_h = 17, .n_kv = 1, .head_dim = 128, .n_rot = 64, .block_tokens = 128}, {{40, 70}},
        ", chunks");
    add(model_27b, chunks, ", chunks");
    add(model_27b, {{0, 512}, {3000, 300}}, ", prompt");
    add({.n_h = 6, .n_kv = 1, .head_dim = 256, .n_rot = 64, .block_tokens = 64},
        {{32000, 150}, {777, 1}}, ", 32K");
    add({.n_h = 14, .n_kv = 2, .head_dim = 64, .n_rot = 64, .has_gate = false, .has_norm = false},
        {{255, 1}, {256, 1}, {257, 5}}, ", Qwen2.5-0.5B");
    return cases;
}

}  // namespace kernels::gate

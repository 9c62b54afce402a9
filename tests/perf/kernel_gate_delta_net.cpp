// delta_net: a mixed batch against the reference, states, convolution rings and replay buffers
// included; slots outside the step untouched; a prompt in three steps equal to one, bit for bit;
// and verify steps with replay equal to single steps, bit for bit, whatever is accepted.
#include <cmath>
#include <string>

#include "tests/perf/kernel_gate_delta_data.h"

namespace kernels::gate {
namespace {

using test::SequencePart;
using test::Step;

CaseResult run_batch(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net",
                      .shape = form.text() + ", batch",
                      .limit = form.has_chunk() ? kChunkLimit : kNetLimit};
    std::vector<SequencePart> parts = {
        {.kv_len_before = 0, .rows = 7, .state_slot = 3},
        {.kv_len_before = 0, .rows = 1, .state_slot = 1},
        {.kv_len_before = 40, .rows = 1, .state_slot = 6},
        {.kv_len_before = 9, .rows = 5, .state_slot = 2},
        {.kv_len_before = 2, .rows = 2, .state_slot = 5},  // shorter than the convolution
        {.kv_len_before = 0, .rows = 33, .state_slot = 7}};
    // Verifies after a verify step; only replays. Added here, slot 4 is left for the neighbour.
    parts[3].replay_rows = 3;
    parts[3].commits = false;
    parts[2].rows = 0;
    parts[2].replay_rows = 5;
    NetData data(form, 48, 300);
    check_step(pair, data, parts, {0, 4}, result);
    return result;
}

/// Sequences of 1 to 16 rows in one step, fresh ones and others, some of which may be taken back.
CaseResult run_lengths(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net", .shape = form.text() + ", 1..16 rows", .limit = kNetLimit};
    std::vector<SequencePart> parts;
    std::int64_t rows = 0;
    for (std::int32_t length = 1; length <= 16; ++length) {
        const bool commits = length > 1 + NetForm::kDrafts || length % 2 == 0;
        const std::int32_t before = length % 3 == 0 ? 0 : 4 * length;
        parts.push_back({.kv_len_before = before,
                         .rows = length,
                         .state_slot = 17 - length,
                         .replay_rows = before == 0 ? 0 : length % 4,
                         .commits = commits});
        rows += length;
    }
    NetData data(form, rows, 303);
    check_step(pair, data, parts, {}, result);
    return result;
}

/// 41 rows in steps of at most 16 have the bits of single steps.
CaseResult run_steps(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net",
                      .shape = form.text() + ", steps and single rows",
                      .limit = 0.0,
                      .may_be_exact = true};
    constexpr std::int32_t kRows = 41;
    NetData data(form, kRows, 304);
    result.see_error(0.0);
    compare(run_cuda(pair, data, pieces_of(std::vector<std::int32_t>(kRows, 1))),
            run_cuda(pair, data, pieces_of({16, 1, 2, 5, 15, 2})), "depends on the steps", result);
    return result;
}

CaseResult run_split(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net",
                      .shape = form.text() + ", 130 rows",
                      .limit = form.has_chunk() ? kChunkLimit : kNetLimit};
    constexpr std::int32_t kRows = 130;
    NetData data(form, kRows, 301);
    const std::vector<SequencePart> whole = {{.kv_len_before = 0, .rows = kRows, .state_slot = 2}};
    const NetResult expected = run_cpu(pair, data, Step(whole));
    const NetResult once = run_cuda(pair, data, one_piece(whole));
    const NetResult split = run_cuda(pair, data, pieces_of({64, 1, 2, 63}));
    result.see_error(relative_error(once.y, expected.y));
    result.see_error(relative_error(once.state, expected.state));
    // Short steps and long ones go to different kernels: equal within the tolerance.
    result.see_error(relative_error(split.y, once.y));
    result.see_error(relative_error(split.state, once.state));
    if (const auto where = first_difference(once.conv_ring, split.conv_ring); !where.empty())
        result.complain("the ring depends on how the prompt is split " + where);
    return result;
}

/// Rows of a vector [rows, columns].
std::vector<float> rows_of(const std::vector<float>& values, std::int64_t columns,
                           std::int64_t begin, std::int64_t end) {
    return {values.begin() + begin * columns, values.begin() + end * columns};
}

/// A prompt of 10, then verify rounds of 1..5 rows with 0..rows of them accepted, against single
/// steps over the same accepted rows. The inputs hold each round's rows, rejected ones included;
/// `single` are those of the accepted ones.
CaseResult run_verify(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net",
                      .shape = form.text() + ", verify and replay",
                      .limit = 0.0,
                      .may_be_exact = true};
    constexpr std::int32_t kPrompt = 10;
    std::vector<std::pair<std::int32_t, std::int32_t>> rounds;  // rows, accepted
    std::int32_t rows = kPrompt;
    std::int32_t accepted_rows = kPrompt;
    for (std::int32_t n = 1; n <= 1 + NetForm::kDrafts; ++n)
        for (std::int32_t accepted = 0; accepted <= n; ++accepted) {
            rounds.emplace_back(n, accepted);
            rows += n;
            accepted_rows += accepted;
        }
    NetData data(form, rows + 1, 302);  // one row more ends it with a committed step
    NetData single = data;
    single.rows = accepted_rows + 1;
    std::vector<std::int64_t> taken;  // rows of `data` that a single step takes
    std::vector<NetPiece> verify;
    verify.push_back({.step = Step({{.rows = kPrompt, .state_slot = 2}})});
    for (std::int64_t m = 0; m < kPrompt; ++m)
        taken.push_back(m);
    std::int32_t begin = kPrompt;
    std::int32_t done = kPrompt;
    std::int32_t replays = 0;
    for (const auto& [n, accepted] : rounds) {
        verify.push_back({.step = Step({{.kv_len_before = done,
                                         .rows = n,
                                         .state_slot = 2,
                                         .replay_rows = replays,
                                         .commits = false}}),
                          .begin = begin});
        for (std::int32_t m = begin; m < begin + accepted; ++m)
            taken.push_back(m);
        begin += n;
        done += accepted;
        replays = accepted;
    }
    verify.push_back(
        {.step =
             Step({{.kv_len_before = done, .rows = 1, .state_slot = 2, .replay_rows = replays}}),
         .begin = begin});
    taken.push_back(begin);
    const auto take = [&](std::vector<float> NetData::*part, std::int64_t columns) {
        (single.*part).clear();
        for (const std::int64_t m : taken) {
            const std::vector<float> row = rows_of(data.*part, columns, m, m + 1);
            (single.*part).insert((single.*part).end(), row.begin(), row.end());
        }
    };
    take(&NetData::u, form.conv_dim());
    take(&NetData::z, form.value_dim());
    take(&NetData::beta, form.n_v);
    take(&NetData::alpha, form.n_v);
    std::vector<NetPiece> steps;
    steps.push_back({.step = Step({{.rows = kPrompt, .state_slot = 2}})});
    for (std::int32_t m = kPrompt; m < static_cast<std::int32_t>(single.rows); ++m)
        steps.push_back({.step = Step({{.kv_len_before = m, .state_slot = 2}}), .begin = m});

    const NetResult verified = run_cuda(pair, data, verify);
    const NetResult plain = run_cuda(pair, single, steps);
    result.see_error(0.0);
    if (const auto where = first_difference(verified.state, plain.state); !where.empty())
        result.complain("state differs from single steps " + where);
    for (std::size_t i = 0; i < taken.size(); ++i)
        if (const auto where = first_difference(
                rows_of(verified.y, form.value_dim(), taken[i], taken[i] + 1),
                rows_of(plain.y, form.value_dim(), std::int64_t(i), std::int64_t(i) + 1));
            !where.empty())
            result.complain("row " + std::to_string(i) + " differs from single steps " + where);
    if (!verified.guards_are_intact) result.complain("wrote past its rows");
    return result;
}

}  // namespace

std::vector<Case> delta_net_cases(Pair& pair, const CaseOptions& options) {
    std::vector<NetForm> forms = {
        {.n_k = 1, .n_v = 1, .state_size = 16, .conv_kernel = 2},
        {.n_k = 2, .n_v = 6, .state_size = 32, .order = HeadOrder::kGrouped},
        {.n_k = 2, .n_v = 4, .state_size = 40},  // lanes and columns without work
        {.n_k = 3, .n_v = 3, .state_size = 64, .conv_kernel = 8},
        {.n_k = 2, .n_v = 4, .state_size = 96},
        {.n_k = 2, .n_v = 2, .state_size = 128},
        {.n_k = 2, .n_v = 4, .state_size = 128},
        {.n_k = 2, .n_v = 6, .state_size = 128, .ring_spare = 0},
        {.n_k = 2, .n_v = 6, .state_size = 128, .order = HeadOrder::kGrouped},
        {.n_k = 1, .n_v = 4, .state_size = 128}};
    if (!options.small) {
        forms.push_back({.n_k = 4, .n_v = 8, .state_size = 128});    // demo
        forms.push_back({.n_k = 16, .n_v = 32, .state_size = 128});  // 9B
        forms.push_back({.n_k = 16, .n_v = 48, .state_size = 128});  // 27B
        forms.push_back({.n_k = 16, .n_v = 32, .state_size = 128, .order = HeadOrder::kGrouped});
    }
    std::vector<Case> cases;
    for (const NetForm& form : forms) {
        cases.push_back([&pair, form] { return run_batch(pair, form); });
        cases.push_back([&pair, form] { return run_lengths(pair, form); });
        cases.push_back([&pair, form] { return run_steps(pair, form); });
        cases.push_back([&pair, form] { return run_split(pair, form); });
        cases.push_back([&pair, form] { return run_verify(pair, form); });
    }
    return cases;
}

}  // namespace kernels::gate

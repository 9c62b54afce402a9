// delta_chunk: sequences of more than 16 rows, alone and beside short ones, at the edges of chunks,
// fresh, carried on and with rows to replay first, against the reference; the same bits from run to
// run, in any company, and however a prompt is cut at multiples of a chunk.
#include <algorithm>
#include <string>

#include "tests/perf/kernel_gate_delta_data.h"

namespace kernels::gate {
namespace {

using test::SequencePart;
using test::Step;

constexpr int kUntouched = 19;  // no case uses these slots
constexpr int kScratch = 0;

CaseResult case_of(const NetForm& form, const std::string& what) {
    return {.op = "delta_chunk", .shape = form.text() + ", " + what, .limit = kChunkLimit};
}

/// Each length as a sequence of its own: fresh, carried on, with rows to replay, in turn.
CaseResult run_edges(Pair& pair, const NetForm& form) {
    CaseResult result = case_of(form, "edges of chunks, mixed");
    std::vector<SequencePart> parts;
    std::int32_t rows = 0;
    for (const std::int32_t length : {17, 63, 1, 64, 65, 5, 127, 128, 16, 129, 2, 18}) {
        const auto index = static_cast<std::int32_t>(parts.size());
        SequencePart part{.kv_len_before = index % 3 == 0 ? 0 : 2 * index - 1,
                          .rows = length,
                          .state_slot = 18 - index};
        if (part.kv_len_before > 4) part.replay_rows = index % 4 + 1;
        if (length <= 5) part.commits = index % 2 == 0;
        parts.push_back(part);
        rows += length;
    }
    NetData data(form, rows, 310);
    check_step(pair, data, parts, {kScratch, kUntouched}, result);
    return result;
}

CaseResult run_long(Pair& pair, const NetForm& form, std::int32_t rows) {
    CaseResult result = case_of(form, std::to_string(rows) + " rows");
    NetData data(form, rows, 311);
    check_step(pair, data, {{.kv_len_before = 3, .rows = rows, .state_slot = 2}},
               {kScratch, kUntouched}, result);
    return result;
}

/// 1000 rows, more chunks than a launch takes: cut at multiples of 64 rows or joined by others in
/// the step they keep their bits; cut anywhere they stay within the limit.
CaseResult run_cuts(Pair& pair, const NetForm& form) {
    CaseResult result = case_of(form, "1000 rows, cut");
    // The plain kernel walks row by row and knows no chunks.
    result.may_be_exact =
        std::ranges::none_of(pair.cuda().armed_kernels(), [](const KernelEntry& entry) {
            return entry.name == "delta_chunk" && entry.state == KernelState::kArmed;
        });
    constexpr std::int32_t kRows = 1000;
    NetData data(form, kRows + 90, 312);
    const NetResult whole = run_cuda(pair, data, pieces_of({kRows}));
    const auto own_rows = [&](const NetResult& of) {
        return std::vector<float>(of.y.begin(), of.y.begin() + kRows * form.value_dim());
    };
    const auto own_state = [&](const NetResult& of) {
        const auto size = static_cast<std::ptrdiff_t>(of.state.size()) / kNetSlots;
        return std::vector<float>(of.state.begin() + 2 * size, of.state.begin() + 3 * size);
    };
    const auto expect_same = [&](const NetResult& other, const std::string& what) {
        if (const auto where = first_difference(own_rows(whole), own_rows(other)); !where.empty())
            result.complain(what + ": y differs " + where);
        if (const auto where = first_difference(own_state(whole), own_state(other)); !where.empty())
            result.complain(what + ": state differs " + where);
    };
    expect_same(run_cuda(pair, data, pieces_of({64, 192, 512, 232})), "cut at chunks");
    expect_same(run_cuda(pair, data,
                         one_piece({{.rows = kRows, .state_slot = 2},
                                    {.kv_len_before = 8, .rows = 70, .state_slot = 3},
                                    {.kv_len_before = 9, .rows = 20, .state_slot = 4}})),
                "beside others");
    const NetResult cut = run_cuda(pair, data, pieces_of({17, 1, 63, 100, 5, 814}));
    result.see_error(relative_error(own_rows(cut), own_rows(whole)));
    result.see_error(relative_error(own_state(cut), own_state(whole)));
    if (const auto where = first_difference(whole.conv_ring, cut.conv_ring); !where.empty())
        result.complain("the ring depends on the cut " + where);
    return result;
}

}  // namespace

std::vector<Case> delta_chunk_cases(Pair& pair, const CaseOptions& options) {
    std::vector<NetForm> forms = {
        {.n_k = 1, .n_v = 1, .state_size = 128},
        {.n_k = 2, .n_v = 4, .state_size = 128, .ring_spare = 0},
        {.n_k = 2, .n_v = 6, .state_size = 128},
        {.n_k = 2, .n_v = 6, .state_size = 128, .order = HeadOrder::kGrouped},
        {.n_k = 1, .n_v = 4, .state_size = 128, .order = HeadOrder::kGrouped}};
    if (!options.small) {
        forms.push_back({.n_k = 4, .n_v = 8, .state_size = 128});    // demo
        forms.push_back({.n_k = 16, .n_v = 32, .state_size = 128});  // 9B
        forms.push_back({.n_k = 16, .n_v = 48, .state_size = 128});  // 27B
    }
    std::vector<Case> cases;
    for (const NetForm& form : forms) {
        cases.push_back([&pair, form] { return run_edges(pair, form); });
        if (!options.small || form.n_v <= 4)
            cases.push_back([&pair, form] { return run_cuts(pair, form); });
    }
    cases.push_back([&pair, form = forms[1]] { return run_long(pair, form, 193); });
    if (options.small) return cases;
    cases.push_back([&pair, form = forms[0]] { return run_long(pair, form, 8192); });
    cases.push_back([&pair, form = forms.back()] { return run_long(pair, form, 1000); });
    return cases;
}

}  // namespace kernels::gate

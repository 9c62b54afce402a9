// delta_net: a mixed batch against the reference, states, convolution rings and replay buffers
// included; slots outside the step untouched; a prompt in three steps equal to one, bit for bit;
// and verify steps with replay equal to single steps, bit for bit, whatever is accepted.
#include <cmath>
#include <string>

#include "tests/kernel/kernel_support.h"
#include "tests/perf/kernel_gate_cases.h"

namespace kernels::gate {
namespace {

using test::Random;
using test::SequencePart;
using test::Step;

// State and outputs are f32 on both sides, the reference rounds the state once a row.
constexpr double kLimit = 1e-5;

struct NetForm {
    std::int32_t n_k, n_v, state_size;
    std::int32_t conv_kernel = 4;
    HeadOrder order = HeadOrder::kTiled;
    std::int64_t conv_dim() const { return std::int64_t{2 * n_k + n_v} * state_size; }
    std::int64_t value_dim() const { return std::int64_t{n_v} * state_size; }
    std::int64_t replay_row() const { return std::int64_t{n_k + n_v} * state_size + n_v; }
    std::int32_t ring_spare = 1;  // rows above what the seam asks for
    std::int64_t ring() const { return conv_kernel + kDrafts + ring_spare; }
    static constexpr std::int64_t kDrafts = 4;
};

constexpr std::int64_t kSlots = 20;

/// Inputs of a step and the memory before it.
struct NetData {
    NetForm form;
    std::int64_t rows;
    std::vector<float> u, z, beta, alpha, conv_w, dt_bias, a, norm, state, conv_ring, replay;

    NetData(const NetForm& f, std::int64_t row_count, std::uint64_t seed)
        : form(f), rows(row_count) {
        Random random(seed);
        u = random.normals(rows * f.conv_dim());
        z = random.normals(rows * f.value_dim());
        beta = random.normals(rows * f.n_v);
        alpha = random.normals(rows * f.n_v);
        conv_w = random.normals(f.conv_dim() * f.conv_kernel, 0.5F);
        dt_bias = random.normals(f.n_v);
        a = random.uniforms(f.n_v, -1.0F, -0.05F);
        norm = random.uniforms(f.state_size, 0.5F, 1.5F);
        state = random.normals(kSlots * f.value_dim() * f.state_size, 0.2F);
        conv_ring = random.normals(kSlots * f.ring() * f.conv_dim());
        replay = random.normals(kSlots * (1 + NetForm::kDrafts) * f.replay_row(), 0.1F);
    }
};

struct NetResult {
    std::vector<float> y, state, conv_ring, replay;
    bool guards_are_intact = true;
};

/// `place` turns a host tensor into one of the backend; identity on the CPU.
template <class Place, class PlaceRows>
DeltaNetArgs args_of(NetData& d, Rows& u, Rows& z, Rows& beta, Rows& alpha, Place place,
                     PlaceRows place_rows) {
    const NetForm& f = d.form;
    DeltaNetArgs args;
    args.n_k = f.n_k;
    args.n_v = f.n_v;
    args.state_size = f.state_size;
    args.conv_kernel = f.conv_kernel;
    args.norm_eps = 1e-6F;
    args.u = place_rows(u);
    args.z = place_rows(z);
    args.beta = place_rows(beta);
    args.alpha = place_rows(alpha);
    args.conv_w = place(host_view(DType::kF32, {f.conv_dim(), f.conv_kernel}, d.conv_w.data()));
    args.dt_bias = place(test::vector_of(d.dt_bias));
    args.a = place(test::vector_of(d.a));
    args.norm_weight = place(test::vector_of(d.norm));
    args.head_order = f.order;
    return args;
}

struct NetRows {
    Rows u, z, beta, alpha;
    explicit NetRows(const NetData& d)
        : u(d.rows, d.form.conv_dim(), Rows::kGuard, d.u),
          z(d.rows, d.form.value_dim(), Rows::kGuard, d.z),
          beta(d.rows, d.form.n_v, Rows::kGuard, d.beta),
          alpha(d.rows, d.form.n_v, Rows::kGuard, d.alpha) {}
};

TensorView state_view(const NetForm& f, std::vector<float>& state) {
    return host_view(DType::kF32, {kSlots, f.n_v, f.state_size, f.state_size}, state.data());
}
TensorView ring_view(const NetForm& f, std::vector<float>& conv_ring) {
    return host_view(DType::kF32, {kSlots, f.ring(), f.conv_dim()}, conv_ring.data());
}
TensorView replay_view(const NetForm& f, std::vector<float>& replay) {
    return host_view(DType::kF32, {kSlots, 1 + NetForm::kDrafts, f.replay_row()}, replay.data());
}

NetResult run_cpu(Pair& pair, NetData& d, const Step& step) {
    NetRows rows(d);
    Rows y(d.rows, d.form.value_dim());
    NetResult result{.y = {}, .state = d.state, .conv_ring = d.conv_ring, .replay = d.replay};
    DeltaNetArgs args = args_of(
        d, rows.u, rows.z, rows.beta, rows.alpha, [](const TensorView& v) { return v; },
        [](Rows& r) { return r.view(); });
    args.state = state_view(d.form, result.state);
    args.conv_ring = ring_view(d.form, result.conv_ring);
    args.replay = replay_view(d.form, result.replay);
    args.y = y.view();
    pair.cpu().begin_step(step.descriptor);
    pair.cpu().delta_net(args);
    pair.cpu().finish_step();
    result.y = y.all();
    return result;
}

/// Rows [begin, end) of a view.
TensorView slice(TensorView view, std::int64_t begin, std::int64_t count) {
    view.data = view.row<float>(begin);
    view.shape[0] = count;
    return view;
}

struct Piece {
    Step step;
    std::int64_t begin = 0;  // first row of the inputs it takes
};

NetResult run_cuda(Pair& pair, NetData& d, const std::vector<Piece>& pieces) {
    pair.reset();
    NetRows rows(d);
    Rows y(d.rows, d.form.value_dim());
    NetResult result{.y = {}, .state = d.state, .conv_ring = d.conv_ring, .replay = d.replay};
    const DeltaNetArgs whole = args_of(
        d, rows.u, rows.z, rows.beta, rows.alpha,
        [&](const TensorView& v) { return pair.place(v); }, [&](Rows& r) { return pair.place(r); });
    const TensorView state = pair.place(state_view(d.form, result.state));
    const TensorView ring = pair.place(ring_view(d.form, result.conv_ring));
    const TensorView replay = pair.place(replay_view(d.form, result.replay));
    const TensorView y_device = pair.place(y);
    for (const Piece& piece : pieces) {
        DeltaNetArgs args = whole;
        const std::int64_t count = piece.step.descriptor.rows;
        for (TensorView DeltaNetArgs::*part :
             {&DeltaNetArgs::u, &DeltaNetArgs::z, &DeltaNetArgs::beta, &DeltaNetArgs::alpha})
            args.*part = slice(whole.*part, piece.begin, count);
        args.state = state;
        args.conv_ring = ring;
        args.replay = replay;
        args.y = slice(y_device, piece.begin, count);
        pair.cuda().begin_step(piece.step.descriptor);
        pair.cuda().delta_net(args);
        pair.cuda().finish_step();
    }
    pair.fetch(y, y_device);
    pair.fetch(state_view(d.form, result.state), state);
    pair.fetch(ring_view(d.form, result.conv_ring), ring);
    pair.fetch(replay_view(d.form, result.replay), replay);
    result.y = y.all();
    result.guards_are_intact = y.guards_are_intact();
    return result;
}

std::vector<Piece> one_piece(const std::vector<SequencePart>& parts) {
    std::vector<Piece> pieces;
    pieces.push_back({.step = Step(parts)});
    return pieces;
}

std::string text_of(const NetForm& f) {
    return std::to_string(f.n_k) + "/" + std::to_string(f.n_v) + " heads of " +
           std::to_string(f.state_size) + ", conv " + std::to_string(f.conv_kernel) +
           (f.order == HeadOrder::kGrouped ? ", grouped" : ", tiled") +
           (f.ring_spare == 0 ? ", smallest ring" : "");
}

void compare(const NetResult& a, const NetResult& b, const std::string& what, CaseResult& result) {
    for (const auto part :
         {&NetResult::y, &NetResult::state, &NetResult::conv_ring, &NetResult::replay})
        if (const auto where = first_difference(a.*part, b.*part); !where.empty())
            result.complain(what + " " + where);
}

CaseResult run_batch(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net", .shape = text_of(form) + ", batch", .limit = kLimit};
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
    const Step step(parts);
    const NetResult expected = run_cpu(pair, data, step);
    const NetResult first = run_cuda(pair, data, one_piece(parts));
    const NetResult second = run_cuda(pair, data, one_piece(parts));
    result.see_error(relative_error(first.y, expected.y));
    result.see_error(relative_error(first.state, expected.state));
    if (!first.guards_are_intact) result.complain("wrote past its rows");
    result.see_error(relative_error(first.replay, expected.replay));
    if (const auto where = first_difference(first.conv_ring, expected.conv_ring); !where.empty())
        result.complain("convolution ring differs " + where);
    const auto same = [&](const std::vector<float>& a, const std::vector<float>& b, int index) {
        const auto begin = static_cast<std::ptrdiff_t>(a.size()) / kSlots * index;
        const auto end = static_cast<std::ptrdiff_t>(a.size()) / kSlots * (index + 1);
        return first_difference({a.begin() + begin, a.begin() + end},
                                {b.begin() + begin, b.begin() + end})
            .empty();
    };
    for (const int untouched : {0, 4})
        if (!same(first.state, data.state, untouched) ||
            !same(first.conv_ring, data.conv_ring, untouched) ||
            !same(first.replay, data.replay, untouched))
            result.complain("touched slot " + std::to_string(untouched));
    compare(first, second, "differs from run to run", result);
    return result;
}

/// Sequences of 1 to 16 rows in one step, fresh ones and others, some of which may be taken back.
CaseResult run_lengths(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net", .shape = text_of(form) + ", 1..16 rows", .limit = kLimit};
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
    const NetResult expected = run_cpu(pair, data, Step(parts));
    const NetResult first = run_cuda(pair, data, one_piece(parts));
    const NetResult second = run_cuda(pair, data, one_piece(parts));
    result.see_error(relative_error(first.y, expected.y));
    result.see_error(relative_error(first.state, expected.state));
    result.see_error(relative_error(first.replay, expected.replay));
    if (const auto where = first_difference(first.conv_ring, expected.conv_ring); !where.empty())
        result.complain("convolution ring differs " + where);
    if (!first.guards_are_intact) result.complain("wrote past its rows");
    compare(first, second, "differs from run to run", result);
    return result;
}

/// 41 rows in steps of at most 16 have the bits of single steps.
CaseResult run_steps(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net",
                      .shape = text_of(form) + ", steps and single rows",
                      .limit = 0.0,
                      .may_be_exact = true};
    constexpr std::int32_t kRows = 41;
    NetData data(form, kRows, 304);
    const auto pieces_of = [](const std::vector<std::int32_t>& lengths) {
        std::vector<Piece> pieces;
        std::int32_t done = 0;
        for (const std::int32_t rows : lengths) {
            pieces.push_back(
                {.step = Step({{.kv_len_before = done, .rows = rows, .state_slot = 2}}),
                 .begin = done});
            done += rows;
        }
        return pieces;
    };
    result.see_error(0.0);
    compare(run_cuda(pair, data, pieces_of(std::vector<std::int32_t>(kRows, 1))),
            run_cuda(pair, data, pieces_of({16, 1, 2, 5, 15, 2})), "depends on the steps", result);
    return result;
}

CaseResult run_split(Pair& pair, const NetForm& form) {
    CaseResult result{.op = "delta_net", .shape = text_of(form) + ", 130 rows", .limit = kLimit};
    constexpr std::int32_t kRows = 130;
    NetData data(form, kRows, 301);
    const std::vector<SequencePart> whole = {{.kv_len_before = 0, .rows = kRows, .state_slot = 2}};
    std::vector<Piece> pieces;
    std::int32_t done = 0;
    for (const std::int32_t rows : {64, 1, 2, 63}) {
        pieces.push_back({.step = Step({{.kv_len_before = done, .rows = rows, .state_slot = 2}}),
                          .begin = done});
        done += rows;
    }
    const NetResult expected = run_cpu(pair, data, Step(whole));
    const NetResult once = run_cuda(pair, data, one_piece(whole));
    const NetResult split = run_cuda(pair, data, pieces);
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
                      .shape = text_of(form) + ", verify and replay",
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
    std::vector<Piece> verify;
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
    std::vector<Piece> steps;
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

#include "tests/perf/kernel_gate_delta_data.h"

#include <cstddef>

namespace kernels::gate {
namespace {

using test::Random;
using test::SequencePart;
using test::Step;

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
    return host_view(DType::kF32, {kNetSlots, f.n_v, f.state_size, f.state_size}, state.data());
}
TensorView ring_view(const NetForm& f, std::vector<float>& conv_ring) {
    return host_view(DType::kF32, {kNetSlots, f.ring(), f.conv_dim()}, conv_ring.data());
}
TensorView replay_view(const NetForm& f, std::vector<float>& replay) {
    return host_view(DType::kF32, {kNetSlots, 1 + NetForm::kDrafts, f.replay_row()}, replay.data());
}

/// Rows [begin, end) of a view.
TensorView slice(TensorView view, std::int64_t begin, std::int64_t count) {
    view.data = view.row<float>(begin);
    view.shape[0] = count;
    return view;
}

}  // namespace

std::string NetForm::text() const {
    return std::to_string(n_k) + "/" + std::to_string(n_v) + " heads of " +
           std::to_string(state_size) + ", conv " + std::to_string(conv_kernel) +
           (order == HeadOrder::kGrouped ? ", grouped" : ", tiled") +
           (ring_spare == 0 ? ", smallest ring" : "");
}

NetData::NetData(const NetForm& f, std::int64_t row_count, std::uint64_t seed)
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
    state = random.normals(kNetSlots * f.value_dim() * f.state_size, 0.2F);
    conv_ring = random.normals(kNetSlots * f.ring() * f.conv_dim());
    replay = random.normals(kNetSlots * (1 + NetForm::kDrafts) * f.replay_row(), 0.1F);
}

std::vector<NetPiece> one_piece(const std::vector<SequencePart>& parts) {
    std::vector<NetPiece> pieces;
    pieces.push_back({.step = Step(parts)});
    return pieces;
}

std::vector<NetPiece> pieces_of(const std::vector<std::int32_t>& lengths) {
    std::vector<NetPiece> pieces;
    std::int32_t done = 0;
    for (const std::int32_t rows : lengths) {
        pieces.push_back({.step = Step({{.kv_len_before = done, .rows = rows, .state_slot = 2}}),
                          .begin = done});
        done += rows;
    }
    return pieces;
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

NetResult run_cuda(Pair& pair, NetData& d, const std::vector<NetPiece>& pieces) {
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
    for (const NetPiece& piece : pieces) {
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

void compare(const NetResult& a, const NetResult& b, const std::string& what, CaseResult& result) {
    for (const auto part :
         {&NetResult::y, &NetResult::state, &NetResult::conv_ring, &NetResult::replay})
        if (const auto where = first_difference(a.*part, b.*part); !where.empty())
            result.complain(what + " " + where);
}

bool is_same_slot(const std::vector<float>& now, const std::vector<float>& before, int index) {
    const auto size = static_cast<std::ptrdiff_t>(now.size()) / kNetSlots;
    const auto slot = [&](const std::vector<float>& all) {
        return std::vector<float>(all.begin() + size * index, all.begin() + size * (index + 1));
    };
    return first_difference(slot(now), slot(before)).empty();
}

void complain_of_touched(const NetResult& result, const NetData& data, int slot,
                         CaseResult& complaints) {
    if (!is_same_slot(result.state, data.state, slot) ||
        !is_same_slot(result.conv_ring, data.conv_ring, slot) ||
        !is_same_slot(result.replay, data.replay, slot))
        complaints.complain("touched slot " + std::to_string(slot));
}

void check_step(Pair& pair, NetData& data, const std::vector<SequencePart>& parts,
                std::initializer_list<int> untouched, CaseResult& result) {
    const NetResult expected = run_cpu(pair, data, Step(parts));
    const NetResult first = run_cuda(pair, data, one_piece(parts));
    const NetResult second = run_cuda(pair, data, one_piece(parts));
    result.see_error(relative_error(first.y, expected.y));
    result.see_error(relative_error(first.state, expected.state));
    result.see_error(relative_error(first.replay, expected.replay));
    if (const auto where = first_difference(first.conv_ring, expected.conv_ring); !where.empty())
        result.complain("convolution ring differs " + where);
    if (!first.guards_are_intact) result.complain("wrote past its rows");
    for (const int slot : untouched)
        complain_of_touched(first, data, slot, result);
    compare(first, second, "differs from run to run", result);
}

}  // namespace kernels::gate

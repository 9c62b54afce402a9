// A delta-net layer with random weights, inputs of sequences, and a backend that runs steps of
// them.
#pragma once

#include <memory>
#include <vector>

#include "tests/kernel/kernel_support.h"

namespace kernels::test::delta_net {

struct Form {
    int n_k = 2;
    int n_v = 4;
    int size = 16;  // state_size
    int conv_kernel = 4;
    HeadOrder order = HeadOrder::kTiled;
    int drafts = 4;  // of a verify step, at most
    int conv_dim() const { return (2 * n_k + n_v) * size; }
    int values() const { return n_v * size; }
    /// The least that lets a verify step lose all its rows.
    int ring() const { return conv_kernel + drafts; }
};

/// Weights of one layer.
struct Layer {
    Form form;
    std::vector<float> conv_w, dt_bias, a, norm;

    explicit Layer(const Form& f) : form(f) {
        Random random(5);
        conv_w = random.normals(f.conv_dim() * f.conv_kernel, 0.5F);
        dt_bias = random.normals(f.n_v);
        a = random.uniforms(f.n_v, -2.0F, -0.01F);
        norm = random.uniforms(f.size, 0.5F, 1.5F);
    }
};

/// Projections of one sequence.
struct Inputs {
    std::vector<float> u, z, beta, alpha;

    Inputs(const Form& form, int rows, std::uint64_t seed) {
        Random random(seed);
        u = random.normals(std::int64_t{rows} * form.conv_dim());
        z = random.normals(std::int64_t{rows} * form.values());
        beta = random.normals(std::int64_t{rows} * form.n_v);
        alpha = random.normals(std::int64_t{rows} * form.n_v);
    }
};

/// Rows begin .. begin + rows - 1 of some sequence's inputs, going to a slot.
struct Piece {
    const Inputs* inputs = nullptr;
    int begin = 0;
    int rows = 0;
    int slot = 0;
    int replay_rows = 0;
    bool commits = true;
};

/// A step's rows as the model lays them out: u, z, beta, alpha are columns of one fused row.
struct FusedStep {
    Step step;
    std::vector<float> values;
    int width;

    FusedStep(const Form& f, const std::vector<Piece>& pieces)
        : step(parts_of(pieces)), width(f.conv_dim() + f.values() + 2 * f.n_v) {
        const auto append = [&](const std::vector<float>& from, int row, int count) {
            values.insert(values.end(), from.begin() + std::int64_t{row} * count,
                          from.begin() + std::int64_t{row + 1} * count);
        };
        for (const Piece& piece : pieces)
            for (int t = piece.begin; t < piece.begin + piece.rows; ++t) {
                append(piece.inputs->u, t, f.conv_dim());
                append(piece.inputs->z, t, f.values());
                append(piece.inputs->beta, t, f.n_v);
                append(piece.inputs->alpha, t, f.n_v);
            }
    }

private:
    static std::vector<SequencePart> parts_of(const std::vector<Piece>& pieces) {
        std::vector<SequencePart> parts;
        for (const Piece& piece : pieces)
            parts.push_back({.kv_len_before = piece.begin,
                             .rows = piece.rows,
                             .state_slot = piece.slot,
                             .replay_rows = piece.replay_rows,
                             .commits = piece.commits});
        return parts;
    }
};

/// A backend with state slots; `run` is one step.
class Runner {
public:
    static constexpr std::int64_t kSlots = 6;

    explicit Runner(const Layer& layer, BackendOptions options = {}) : layer_(layer) {
        backend_ = make_backend(options);
        const Form& f = layer.form;
        state = backend_->allocate(DType::kF32,
                                   std::vector<std::int64_t>{kSlots, f.n_v, f.size, f.size});
        conv_ring = backend_->allocate(
            DType::kF32, std::vector<std::int64_t>{kSlots, layer.form.ring(), f.conv_dim()});
        replay = backend_->allocate(
            DType::kF32,
            std::vector<std::int64_t>{kSlots, 1 + f.drafts, (f.n_k + f.n_v) * f.size + f.n_v});
        EXPECT_FALSE(backend_->prepare(limits_of(options)).has_value());
    }

    void poison_slots(float value) {
        for (const TensorView& view : {state, conv_ring, replay})
            std::fill(view.as<float>(), view.as<float>() + kSlots * view.row_stride, value);
    }

    std::vector<float> state_of(int index) const { return values_of(state, index); }

    /// State and convolution ring.
    std::vector<float> slot(int index) const {
        std::vector<float> values = state_of(index);
        const std::vector<float> ring = values_of(conv_ring, index);
        values.insert(values.end(), ring.begin(), ring.end());
        return values;
    }
    /// The replay buffer too.
    std::vector<float> everything_of(int index) const {
        std::vector<float> values = slot(index);
        const std::vector<float> rows = values_of(replay, index);
        values.insert(values.end(), rows.begin(), rows.end());
        return values;
    }

    /// One step.
    std::vector<std::vector<float>> run(const std::vector<Piece>& pieces) {
        const Form& f = layer_.form;
        const FusedStep fused(f, pieces);
        const Step& step = fused.step;
        const TensorView all = view_of(fused.values.data(), step.descriptor.rows, fused.width);
        GuardedRows y(step.descriptor.rows, f.values());
        backend_->begin_step(step.descriptor);
        backend_->delta_net({.n_k = f.n_k,
                             .n_v = f.n_v,
                             .state_size = f.size,
                             .conv_kernel = f.conv_kernel,
                             .norm_eps = 1e-6F,
                             .u = columns(all, 0, f.conv_dim()),
                             .z = columns(all, f.conv_dim(), f.values()),
                             .beta = columns(all, f.conv_dim() + f.values(), f.n_v),
                             .alpha = columns(all, f.conv_dim() + f.values() + f.n_v, f.n_v),
                             .conv_w = view_of(layer_.conv_w.data(), f.conv_dim(), f.conv_kernel),
                             .dt_bias = vector_of(layer_.dt_bias),
                             .a = vector_of(layer_.a),
                             .norm_weight = vector_of(layer_.norm),
                             .state = state,
                             .conv_ring = conv_ring,
                             .replay = replay,
                             .head_order = f.order,
                             .y = y.view()});
        backend_->finish_step();
        EXPECT_TRUE(y.guards_are_intact());
        std::vector<std::vector<float>> results;
        for (std::size_t s = 0; s < pieces.size(); ++s)
            results.push_back(y.rows(step.row_begin[s], step.row_begin[s + 1]));
        return results;
    }

    TensorView state, conv_ring, replay;

private:
    static std::vector<float> values_of(const TensorView& view, int index) {
        return {view.row<float>(index), view.row<float>(index) + view.row_stride};
    }

    Layer layer_;
    std::unique_ptr<Backend> backend_;
};

inline std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

}  // namespace kernels::test::delta_net

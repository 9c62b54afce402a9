// The forward passes, written once as straight lines over the backend.
//
//   tokens ─ embed ─▶ x [M, H] ─▶ each layer: x += mixer(norm x);  x += ffn(norm x) ─▶ head ─▶
//   hidden, logits
//
// `Activations` are the buffers between the operations: made once at load for the largest step.
#pragma once

#include "kernels/backend.h"
#include "replica/model/config.h"
#include "replica/model/weights.h"

namespace replica {

/// KV pages and recurrent state of one layer; which of the two depends on its kind.
struct LayerMemory {
    kernels::KvLayer kv;
    kernels::TensorView state;      // [slots, n_v, state_size, state_size] f32
    kernels::TensorView conv_ring;  // [slots, conv_kernel + drafts, conv_dim] f32
    kernels::TensorView replay;     // [slots, 1 + drafts, keys, deltas, decays] f32; empty without
};

struct ModelMemory {
    std::vector<LayerMemory> layers;  // as ModelConfig.layers
    std::vector<LayerMemory> mtp;     // as ModelConfig.mtp_layers, or empty when none is run
};

struct Activations {
    kernels::TensorView x;           // [M, H] the residual stream
    kernels::TensorView in;          // [M, widest stacked projection]
    kernels::TensorView mixed;       // [M, widest mixer output]
    kernels::TensorView ff;          // [M, widest F]
    kernels::TensorView hidden;      // [M + kept rows, H] after the final norm
    kernels::TensorView logits;      // [logit rows, V]
    kernels::TensorView joined;      // [M, 2H], MTP only
    kernels::TensorView mtp_hidden;  // [M, H], MTP only: feeds a chained draft
};

/// Everything a pass reads and writes. References outlive the pass.
struct ForwardContext {
    kernels::Backend& backend;
    const ModelConfig& config;
    const ModelWeights& weights;
    const ModelMemory& memory;
    const Activations& buffers;
};

/// The trunk: hidden for every row of the step, logits for its logit rows. Between begin_step and
/// finish_step.
void forward_trunk(const ForwardContext& context);

/// MTP block `index`: row m joins its token (position p + 1 of the text) with the row of `hidden`
/// that the step's hidden_row names (a hidden state of position p) and predicts the token after;
/// its KV position is p. Between begin_step and finish_step of a step whose tokens are those.
/// Logits go to the step's logit rows.
void forward_mtp(const ForwardContext& context, std::size_t index,
                 const kernels::TensorView& hidden);

/// The delta-net layers alone, over a step without rows: states take accepted rows over.
void forward_replay(const ForwardContext& context);

}  // namespace replica

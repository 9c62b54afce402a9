#include "replica/model/forward.h"

namespace replica {
namespace {

using kernels::columns;
using kernels::Epilogue;
using kernels::TensorView;

/// The first `width` columns of a buffer, packed: rows of different widths share one buffer.
TensorView narrowed(const TensorView& buffer, std::int64_t width) {
    return columns(buffer, 0, width);
}

TensorView mix_delta_net(const ForwardContext& c, const LayerWeights& layer,
                         const LayerMemory& memory, const TensorView& in) {
    const DeltaNetConfig& net = *c.config.delta_net;
    // in [M, conv_dim | n_v * state_size | n_v | n_v]
    const std::int64_t z_begin = net.conv_dim();
    const std::int64_t beta_begin = z_begin + net.value_dim();
    const std::int64_t alpha_begin = beta_begin + net.value_heads;
    const TensorView mixed = narrowed(c.buffers.mixed, net.value_dim());
    c.backend.delta_net({.n_k = net.key_heads,
                         .n_v = net.value_heads,
                         .state_size = net.state_size,
                         .conv_kernel = net.conv_kernel,
                         .norm_eps = c.config.norm_eps,
                         .u = columns(in, 0, net.conv_dim()),
                         .z = columns(in, z_begin, net.value_dim()),
                         .beta = columns(in, beta_begin, net.value_heads),
                         .alpha = columns(in, alpha_begin, net.value_heads),
                         .conv_w = layer.delta_net.conv,
                         .dt_bias = layer.delta_net.dt_bias,
                         .a = layer.delta_net.a,
                         .norm_weight = layer.delta_net.norm,
                         .state = memory.state,
                         .conv_ring = memory.conv_ring,
                         .replay = memory.replay,
                         .head_order = kernels::HeadOrder::kTiled,
                         .y = mixed});
    return mixed;
}

TensorView mix_attention(const ForwardContext& c, const LayerConfig& layer_config,
                         const LayerWeights& layer, const LayerMemory& memory,
                         const TensorView& in) {
    const std::int64_t head_dim = c.config.head_dim;
    const std::int64_t q_width = head_dim * layer_config.heads * (c.config.has_output_gate ? 2 : 1);
    const std::int64_t kv_width = head_dim * layer_config.kv_heads;
    const TensorView mixed = narrowed(c.buffers.mixed, head_dim * layer_config.heads);
    c.backend.attention({.n_h = layer_config.heads,
                         .n_kv = layer_config.kv_heads,
                         .head_dim = c.config.head_dim,
                         .n_rot = c.config.n_rot,
                         .has_gate = c.config.has_output_gate,
                         .norm_eps = c.config.norm_eps,
                         .q = columns(in, 0, q_width),
                         .k = columns(in, q_width, kv_width),
                         .v = columns(in, q_width + kv_width, kv_width),
                         .q_norm = layer.attention.q_norm,
                         .k_norm = layer.attention.k_norm,
                         .rope = c.weights.rope,
                         .pairing = c.config.rope_pairing,
                         .kv = memory.kv,
                         .y = mixed});
    return mixed;
}

void forward_layer(const ForwardContext& c, const LayerConfig& config, const LayerWeights& layer,
                   const LayerMemory& memory) {
    const TensorView& x = c.buffers.x;
    const TensorView in = narrowed(c.buffers.in, layer.in.n);
    c.backend.linear({.x = x,
                      .norm_weight = layer.mixer_norm,
                      .norm_eps = c.config.norm_eps,
                      .w = layer.in,
                      .bias = layer.in_bias,
                      .epilogue = Epilogue::kStore,
                      .y = in});
    const TensorView mixed = config.kind == LayerKind::kDeltaNet
                                 ? mix_delta_net(c, layer, memory, in)
                                 : mix_attention(c, config, layer, memory, in);
    c.backend.linear({.x = mixed,
                      .w = layer.out,
                      .bias = layer.out_bias,
                      .epilogue = Epilogue::kAddResidual,
                      .y = x});

    const TensorView ff = narrowed(c.buffers.ff, config.ff_width);
    c.backend.linear({.x = x,
                      .norm_weight = layer.ffn_norm,
                      .norm_eps = c.config.norm_eps,
                      .w = layer.gate_up,
                      .bias = layer.gate_up_bias,
                      .epilogue = Epilogue::kSwiGlu,
                      .y = ff});
    c.backend.linear({.x = ff,
                      .w = layer.down,
                      .bias = layer.down_bias,
                      .epilogue = Epilogue::kAddResidual,
                      .y = x});
}

}  // namespace

void forward_trunk(const ForwardContext& c) {
    c.backend.embed({.table = c.weights.embedding, .x = c.buffers.x});
    for (std::size_t i = 0; i < c.config.layers.size(); ++i) {
        forward_layer(c, c.config.layers[i], c.weights.layers[i], c.memory.layers[i]);
    }
    c.backend.head({.x = c.buffers.x,
                    .norm_weight = c.weights.output_norm,
                    .norm_eps = c.config.norm_eps,
                    .w = c.weights.head,
                    .hidden = c.buffers.hidden,
                    .logits = c.buffers.logits});
}

void forward_mtp(const ForwardContext& c, std::size_t index, const TensorView& hidden) {
    const MtpWeights& mtp = c.weights.mtp[index];
    c.backend.mtp_join({.table = mtp.embedding,
                        .embed_norm_weight = mtp.embed_norm,
                        .hidden_norm_weight = mtp.hidden_norm,
                        .norm_eps = c.config.norm_eps,
                        .hidden = hidden,
                        .joined = c.buffers.joined});
    c.backend.linear(
        {.x = c.buffers.joined, .w = mtp.join, .epilogue = Epilogue::kStore, .y = c.buffers.x});
    forward_layer(c, c.config.mtp_layers[index], mtp.layer, c.memory.mtp[index]);
    c.backend.head({.x = c.buffers.x,
                    .norm_weight = mtp.head_norm,
                    .norm_eps = c.config.norm_eps,
                    .w = mtp.head,
                    .hidden = c.buffers.mtp_hidden,
                    .logits = c.buffers.logits});
}

void forward_replay(const ForwardContext& c) {
    for (std::size_t i = 0; i < c.config.layers.size(); ++i) {
        if (c.config.layers[i].kind != LayerKind::kDeltaNet) continue;
        const LayerWeights& layer = c.weights.layers[i];
        mix_delta_net(c, layer, c.memory.layers[i], narrowed(c.buffers.in, layer.in.n));
    }
}

}  // namespace replica

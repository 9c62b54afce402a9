// A model's weights on a backend, grouped the way the forward pass reads them.
//
// Projections that read the same input are stacked into one matrix, in file order of their rows:
//   delta net   in  = [ qkv | z | beta | alpha ]     attention   in = [ q (+gate) | k | v ]     ffn
//   in = [ gate | up ]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "kernels/backend.h"
#include "replica/model/config.h"
#include "replica/model/error.h"

namespace replica {

struct DeltaNetWeights {
    kernels::TensorView conv, dt_bias, a, norm;  // [conv_dim, kernel], [n_v], [n_v], [state_size]
};

struct AttentionWeights {
    kernels::TensorView q_norm, k_norm;  // [D]; empty where the architecture has none
};

struct LayerWeights {
    kernels::TensorView mixer_norm;  // [H], before the mixer
    kernels::MatrixView in;          // the stacked projections above
    kernels::TensorView in_bias;     // [N of in]; empty = none
    DeltaNetWeights delta_net;       // delta-net layers only
    AttentionWeights attention;      // attention layers only
    kernels::MatrixView out;         // mixer output -> H
    kernels::TensorView out_bias;
    kernels::TensorView ffn_norm;       // [H]
    kernels::MatrixView gate_up, down;  // [2F, H], [H, F]
    kernels::TensorView gate_up_bias, down_bias;
};

struct MtpWeights {
    LayerWeights layer;
    kernels::TensorView embed_norm, hidden_norm, head_norm;  // [H]
    kernels::MatrixView join;                                // eh_proj [H, 2H]
    kernels::MatrixView embedding, head;  // the trunk's where the file has none of its own
};

struct ModelWeights {
    kernels::MatrixView embedding, head;  // the same matrix when tied
    kernels::TensorView output_norm;
    kernels::TensorView rope;  // [positions, n_rot]
    std::vector<LayerWeights> layers;
    std::vector<MtpWeights> mtp;
    std::int32_t inputs_max = 0;        // largest K of any matrix
    std::vector<std::string> warnings;  // tensors of the file that nothing reads
};

/// Bytes done of all; called a few hundred times at most, on the loading thread.
using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// What of a file is placed.
struct WeightParts {
    bool with_mtp = true;  // blocks that only drafts use
};

/// Device memory of weights.
struct WeightNeed {
    std::uint64_t kept_bytes = 0;
    std::uint64_t loading_bytes = 0;  // beside them, until the backend is prepared
    std::int32_t inputs_max = 0;      // largest K of any matrix
};
/// What load_weights takes; reads no weights. Tensors that are missing or wrong count nothing:
/// loading names them.
WeightNeed measure_weights(const GgufFile& file, const ModelConfig& config,
                           kernels::Backend& backend, const WeightParts& parts);

/// Puts every tensor of `parts` on the backend. `positions` is the length of the rotary table. A
/// missing or misshapen tensor, a type the backend refuses, or a tensor that would change the
/// result if ignored is an error. The file must outlive the backend (the CPU backend reads blocks
/// in place).
tl::expected<ModelWeights, ModelError> load_weights(const GgufFile& file, const ModelConfig& config,
                                                    kernels::Backend& backend,
                                                    std::int32_t positions,
                                                    const WeightParts& parts,
                                                    const LoadProgress& progress);

}  // namespace replica

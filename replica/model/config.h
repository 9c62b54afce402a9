// A model's hyperparameters, read from GGUF metadata and checked before anything is built from
// them.
//
// Four architectures, two kinds of layer:
//   qwen35               three gated-delta-net layers, then one attention layer, repeated; MTP
//   blocks behind llama qwen2 qwen3    attention layers only
// Per-layer values (head counts, feed-forward width) are kept per block, since files may store
// arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "kernels/backend.h"
#include "replica/model/error.h"

namespace replica {

class GgufFile;

enum class Arch { kQwen35, kLlama, kQwen2, kQwen3 };
enum class LayerKind { kAttention, kDeltaNet };

std::string_view arch_name(Arch arch);

/// Stretching of rotary positions beyond the trained context.
struct RopeScaling {
    enum class Kind { kNone, kLinear, kYarn };
    Kind kind = Kind::kNone;
    double factor = 1.0;
    double attention_factor = 1.0;
    std::int32_t original_context = 0;  // YaRN only
};

struct LayerConfig {
    LayerKind kind = LayerKind::kAttention;
    std::int32_t heads = 0;     // query heads, attention layers
    std::int32_t kv_heads = 0;  // divides `heads`
    std::int32_t ff_width = 0;  // F
};

/// Sizes of the gated delta net, the same in every such layer.
struct DeltaNetConfig {
    std::int32_t state_size = 0;   // head size of q, k and v
    std::int32_t key_heads = 0;    // n_k
    std::int32_t value_heads = 0;  // n_v, a multiple of n_k
    std::int32_t conv_kernel = 0;
    std::int32_t key_dim() const { return key_heads * state_size; }
    std::int32_t value_dim() const { return value_heads * state_size; }
    std::int32_t conv_dim() const { return 2 * key_dim() + value_dim(); }
};

struct ModelConfig {
    Arch arch = Arch::kLlama;
    std::string name;
    std::vector<LayerConfig> layers;  // the trunk
    std::vector<LayerConfig>
        mtp_layers;               // trailing blocks, always attention; not part of the trunk pass
    std::int32_t width = 0;       // H
    std::int32_t vocabulary = 0;  // V, rows of token_embd
    std::int32_t context_train = 0;
    std::int32_t head_dim = 0;  // D
    std::int32_t n_rot = 0;     // rotated dimensions of each head
    float norm_eps = 0.0F;
    double rope_base = 10000.0;
    RopeScaling rope_scaling;
    kernels::RopePairing rope_pairing = kernels::RopePairing::kHalfSplit;
    bool has_output_gate = false;  // attention output times sigmoid(gate), gate from attn_q
    bool has_qk_norm = false;
    std::optional<DeltaNetConfig> delta_net;

    bool has_recurrent_state() const { return delta_net.has_value(); }
    /// Attention layers of the trunk and the MTP blocks: each has its own KV pages.
    std::int32_t kv_layer_count() const;
};

/// Reads and checks the hyperparameters. `token_embd` must be there: its rows are the vocabulary.
tl::expected<ModelConfig, ModelError> read_model_config(const GgufFile& file);

}  // namespace replica

// The tensors a `qwen35` model consists of, from its hyperparameters: names, shapes, and which are
// optional. `synth` makes them, `verify` compares a file with them.
//
//     token_embd ─▶ blk.0 ... blk.L-1 (GDN, every interval-th full attention) ─▶ output_norm,
//     output
//                                                      └─▶ blk.L: the MTP block, full attention
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/gguf/error.h"
#include "replica/gguf/metadata.h"

namespace replica {

/// Hyperparameters in the order of the metadata keys; letters as in the model's formulas.
struct Qwen35Shape {
    std::int64_t layers = 0;      // L, without MTP blocks
    std::int64_t mtp_blocks = 0;  // 0 or 1 in published models
    std::int64_t width = 0;       // H
    std::int64_t ffn_width = 0;   // F
    std::int64_t heads = 0, kv_heads = 0, head_size = 256;
    std::int64_t attention_interval = 4;
    std::int64_t key_heads = 16, value_heads = 0;  // of the delta net
    std::int64_t state_size = 128, conv_kernel = 4;
    std::int64_t vocabulary = 248320;
    bool has_output = false;  // a matrix of its own for the logits; else tied to token_embd

    std::int64_t conv_width() const { return (2 * key_heads + value_heads) * state_size; }
    std::int64_t value_width() const { return value_heads * state_size; }
    bool is_attention(std::int64_t block) const {
        return block >= layers || (block + 1) % attention_interval == 0;
    }
};

struct ExpectedTensor {
    std::string name;
    std::vector<std::int64_t> ne;
    bool is_optional = false;
};

/// In the order our files list them.
std::vector<ExpectedTensor> qwen35_tensors(const Qwen35Shape& shape);

/// Bounds that keep every product of two sizes far from overflow.
inline constexpr std::int64_t kSizeMax = std::int64_t{1} << 24;
inline constexpr std::int64_t kBlocksMax = 1024;

/// A size to read from metadata, within 1..most; `absent` is its value without the key, nullptr for
/// a required one.
struct SizeField {
    std::string key;
    std::int64_t* value;
    std::int64_t most;
    const std::int64_t* absent = nullptr;
};

/// Accepts an array of `layers` equal entries, too; entries that differ are kUnsupported.
GgufResult<void> read_size(const GgufMetadata& metadata, std::int64_t layers,
                           const SizeField& field);

/// From a file's metadata; errors name the key.
GgufResult<Qwen35Shape> qwen35_shape_of(const GgufMetadata& metadata);

/// The public models: "0.8b", "2b", "4b", "9b", "27b".
struct PublicShape {
    std::string_view name;
    Qwen35Shape shape;  // with the MTP block
};
std::span<const PublicShape> public_shapes();
const PublicShape* find_public_shape(std::string_view name);

}  // namespace replica

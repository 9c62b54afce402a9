#include "replica/gguf/tool/qwen35_shape.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace replica {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr Qwen35Shape public_shape(std::int64_t layers, std::int64_t width, std::int64_t ffn_width,
                                   std::int64_t heads, std::int64_t kv_heads,
                                   std::int64_t value_heads, bool has_output) {
    Qwen35Shape shape;
    shape.layers = layers;
    shape.mtp_blocks = 1;
    shape.width = width;
    shape.ffn_width = ffn_width;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.value_heads = value_heads;
    shape.has_output = has_output;
    return shape;
}

constexpr std::array kPublicShapes = {
    PublicShape{"0.8b", public_shape(24, 1024, 3584, 8, 2, 16, false)},
    PublicShape{"2b", public_shape(24, 2048, 6144, 8, 2, 16, false)},
    PublicShape{"4b", public_shape(32, 2560, 9216, 16, 4, 32, false)},
    PublicShape{"9b", public_shape(32, 4096, 12288, 16, 4, 32, true)},
    PublicShape{"27b", public_shape(64, 5120, 17408, 24, 4, 48, true)},
};

class TensorList {
public:
    void add(std::string name, Shape ne, bool is_optional = false) {
        tensors_.push_back({prefix_ + std::move(name), std::move(ne), is_optional});
    }
    void begin_block(std::int64_t block) { prefix_ = "blk." + std::to_string(block) + "."; }
    std::vector<ExpectedTensor> take() { return std::move(tensors_); }

private:
    std::string prefix_;
    std::vector<ExpectedTensor> tensors_;
};

void add_attention(const Qwen35Shape& s, TensorList& list) {
    list.add("attn_q.weight", {s.width, 2 * s.head_size * s.heads});
    list.add("attn_k.weight", {s.width, s.head_size * s.kv_heads});
    list.add("attn_v.weight", {s.width, s.head_size * s.kv_heads});
    list.add("attn_output.weight", {s.head_size * s.heads, s.width});
    list.add("attn_q_norm.weight", {s.head_size});
    list.add("attn_k_norm.weight", {s.head_size});
}

void add_delta_net(const Qwen35Shape& s, TensorList& list) {
    list.add("attn_qkv.weight", {s.width, s.conv_width()});
    list.add("attn_gate.weight", {s.width, s.value_width()});
    list.add("ssm_alpha.weight", {s.width, s.value_heads});
    list.add("ssm_beta.weight", {s.width, s.value_heads});
    list.add("ssm_conv1d.weight", {s.conv_kernel, s.conv_width()});
    list.add("ssm_dt.bias", {s.value_heads});
    list.add("ssm_a", {s.value_heads});
    list.add("ssm_norm.weight", {s.state_size});
    list.add("ssm_out.weight", {s.value_width(), s.width});
}

void add_mtp(const Qwen35Shape& s, TensorList& list) {
    list.add("nextn.eh_proj.weight", {2 * s.width, s.width});
    list.add("nextn.enorm.weight", {s.width});
    list.add("nextn.hnorm.weight", {s.width});
    list.add("nextn.shared_head_norm.weight", {s.width}, true);
    list.add("nextn.embed_tokens.weight", {s.width, s.vocabulary}, true);
    list.add("nextn.shared_head_head.weight", {s.width, s.vocabulary}, true);
}

GgufError about(const GgufMetadata& metadata, std::string_view key, std::string why) {
    return metadata.error_about(key, std::move(why), "convert the model again");
}

}  // namespace

std::vector<ExpectedTensor> qwen35_tensors(const Qwen35Shape& shape) {
    TensorList list;
    list.add("token_embd.weight", {shape.width, shape.vocabulary});
    list.add("output_norm.weight", {shape.width});
    if (shape.has_output) list.add("output.weight", {shape.width, shape.vocabulary});
    for (std::int64_t block = 0; block < shape.layers + shape.mtp_blocks; ++block) {
        list.begin_block(block);
        list.add("attn_norm.weight", {shape.width});
        list.add("post_attention_norm.weight", {shape.width});
        list.add("ffn_gate.weight", {shape.width, shape.ffn_width});
        list.add("ffn_up.weight", {shape.width, shape.ffn_width});
        list.add("ffn_down.weight", {shape.ffn_width, shape.width});
        if (shape.is_attention(block)) {
            add_attention(shape, list);
        } else {
            add_delta_net(shape, list);
        }
        if (block >= shape.layers) add_mtp(shape, list);
    }
    return list.take();
}

GgufResult<void> read_size(const GgufMetadata& metadata, std::int64_t layers,
                           const SizeField& field) {
    const GgufEntry* entry = metadata.find(field.key);
    if (entry == nullptr && field.absent != nullptr) {
        *field.value = *field.absent;
        return {};
    }
    const std::size_t count =
        entry != nullptr && entry->type == GgufType::kArray ? static_cast<std::size_t>(layers) : 1;
    const auto values = metadata.get_u32_per_layer(field.key, count);
    if (!values) return tl::unexpected(values.error());
    if (std::ranges::adjacent_find(*values, std::not_equal_to<>()) != values->end()) {
        GgufError error = about(metadata, field.key, "differs between layers");
        error.kind = GgufErrorKind::kUnsupported;
        return tl::unexpected(std::move(error));
    }
    *field.value = values->empty() ? 0 : std::int64_t{values->front()};
    if (*field.value < 1 || *field.value > field.most) {
        return tl::unexpected(about(metadata, field.key,
                                    "is " + std::to_string(*field.value) + ", must be within 1.." +
                                        std::to_string(field.most)));
    }
    return {};
}

GgufResult<Qwen35Shape> qwen35_shape_of(const GgufMetadata& metadata) {
    Qwen35Shape shape;
    std::int64_t blocks = 0;
    std::int64_t inner = 0;
    const std::int64_t usual_interval = 4;
    const std::array fields = {
        SizeField{"qwen35.block_count", &blocks, kBlocksMax},
        SizeField{"qwen35.embedding_length", &shape.width, kSizeMax},
        SizeField{"qwen35.feed_forward_length", &shape.ffn_width, kSizeMax},
        SizeField{"qwen35.attention.head_count", &shape.heads, kSizeMax},
        SizeField{"qwen35.attention.head_count_kv", &shape.kv_heads, kSizeMax, &shape.heads},
        SizeField{"qwen35.full_attention_interval", &shape.attention_interval, kBlocksMax,
                  &usual_interval},
        SizeField{"qwen35.ssm.group_count", &shape.key_heads, kSizeMax},
        SizeField{"qwen35.ssm.time_step_rank", &shape.value_heads, kSizeMax},
        SizeField{"qwen35.ssm.state_size", &shape.state_size, kSizeMax},
        SizeField{"qwen35.ssm.conv_kernel", &shape.conv_kernel, 8},
        SizeField{"qwen35.ssm.inner_size", &inner, kSizeMax},
    };
    for (const SizeField& field : fields) {
        if (GgufResult<void> read = read_size(metadata, blocks, field); !read)
            return tl::unexpected(read.error());
    }
    const std::int64_t usual_head_size = shape.width / shape.heads;
    const SizeField head_size{"qwen35.attention.key_length", &shape.head_size, kSizeMax,
                              &usual_head_size};
    if (GgufResult<void> read = read_size(metadata, blocks, head_size); !read)
        return tl::unexpected(read.error());
    const GgufResult<std::uint32_t> mtp = metadata.get_u32_or("qwen35.nextn_predict_layers", 0);
    if (!mtp) return tl::unexpected(mtp.error());
    shape.mtp_blocks = std::int64_t{*mtp};
    shape.layers = blocks - shape.mtp_blocks;
    if (shape.layers < 1) {
        return tl::unexpected(about(metadata, "qwen35.nextn_predict_layers",
                                    "leaves no layers of the " + std::to_string(blocks)));
    }
    if (inner != shape.value_width()) {
        return tl::unexpected(about(metadata, "qwen35.ssm.inner_size",
                                    "is " + std::to_string(inner) +
                                        ", time_step_rank * state_size is " +
                                        std::to_string(shape.value_width())));
    }
    const auto tokens = metadata.get_strings("tokenizer.ggml.tokens");
    if (!tokens) return tl::unexpected(tokens.error());
    shape.vocabulary = static_cast<std::int64_t>(tokens->size());
    return shape;
}

std::span<const PublicShape> public_shapes() {
    return kPublicShapes;
}

const PublicShape* find_public_shape(std::string_view name) {
    const auto* found = std::ranges::find(kPublicShapes, name, &PublicShape::name);
    return found == kPublicShapes.end() ? nullptr : found;
}

}  // namespace replica

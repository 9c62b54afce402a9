#include "replica/gguf/tool/expected_tensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace replica {
namespace {

/// Hyperparameters of the architectures without recurrent layers.
struct DenseShape {
    std::int64_t layers = 0, width = 0, ffn_width = 0;
    std::int64_t heads = 0, kv_heads = 0, head_size = 0;
    std::int64_t vocabulary = 0;
};

GgufResult<DenseShape> dense_shape_of(const GgufMetadata& metadata, const std::string& arch) {
    DenseShape shape;
    const std::array fields = {
        SizeField{arch + ".block_count", &shape.layers, kBlocksMax},
        SizeField{arch + ".embedding_length", &shape.width, kSizeMax},
        SizeField{arch + ".feed_forward_length", &shape.ffn_width, kSizeMax},
        SizeField{arch + ".attention.head_count", &shape.heads, kSizeMax},
        SizeField{arch + ".attention.head_count_kv", &shape.kv_heads, kSizeMax, &shape.heads},
    };
    for (const SizeField& field : fields) {
        if (GgufResult<void> read = read_size(metadata, shape.layers, field); !read)
            return tl::unexpected(read.error());
    }
    const std::int64_t usual_head_size = shape.width / shape.heads;
    const SizeField head_size{arch + ".attention.key_length", &shape.head_size, kSizeMax,
                              &usual_head_size};
    if (GgufResult<void> read = read_size(metadata, shape.layers, head_size); !read)
        return tl::unexpected(read.error());
    const auto tokens = metadata.get_strings("tokenizer.ggml.tokens");
    if (!tokens) return tl::unexpected(tokens.error());
    shape.vocabulary = static_cast<std::int64_t>(tokens->size());
    return shape;
}

/// llama has no biases in practice but may; qwen2 has those of q, k and v; qwen3 has q/k norms.
std::vector<ExpectedTensor> dense_tensors(const DenseShape& s, std::string_view arch,
                                          bool has_output) {
    std::vector<ExpectedTensor> list;
    std::string prefix;
    const auto add = [&](const char* name, std::vector<std::int64_t> ne, bool is_optional = false) {
        list.push_back({prefix + name, std::move(ne), is_optional});
    };
    const std::int64_t q_width = s.head_size * s.heads;
    const std::int64_t kv_width = s.head_size * s.kv_heads;
    const bool has_biases = arch == "qwen2";
    add("token_embd.weight", {s.width, s.vocabulary});
    add("output_norm.weight", {s.width});
    if (has_output) add("output.weight", {s.width, s.vocabulary});
    add("output.bias", {s.vocabulary}, true);
    add("rope_freqs.weight", {s.head_size / 2}, true);
    for (std::int64_t block = 0; block < s.layers; ++block) {
        prefix = "blk." + std::to_string(block) + ".";
        add("attn_norm.weight", {s.width});
        add("attn_q.weight", {s.width, q_width});
        add("attn_k.weight", {s.width, kv_width});
        add("attn_v.weight", {s.width, kv_width});
        add("attn_output.weight", {q_width, s.width});
        add("attn_q.bias", {q_width}, !has_biases);
        add("attn_k.bias", {kv_width}, !has_biases);
        add("attn_v.bias", {kv_width}, !has_biases);
        add("attn_output.bias", {s.width}, true);
        add("attn_q_norm.weight", {s.head_size}, arch != "qwen3");
        add("attn_k_norm.weight", {s.head_size}, arch != "qwen3");
        add("ffn_norm.weight", {s.width});
        add("ffn_gate.weight", {s.width, s.ffn_width});
        add("ffn_up.weight", {s.width, s.ffn_width});
        add("ffn_down.weight", {s.ffn_width, s.width});
    }
    return list;
}

/// A fused attn_qkv, rows q, k, v, may stand in for three matrices where a block has no delta net.
void replace_fused(const GgufFile& file, std::vector<ExpectedTensor>& list) {
    std::vector<ExpectedTensor> result;
    std::int64_t fused_rows = 0;
    for (ExpectedTensor& tensor : list) {
        const std::size_t at = tensor.name.find(".attn_");
        const std::string_view part =
            at == std::string::npos ? std::string_view{} : std::string_view(tensor.name).substr(at);
        const bool is_part =
            part == ".attn_q.weight" || part == ".attn_k.weight" || part == ".attn_v.weight";
        const std::string fused = is_part ? tensor.name.substr(0, at) + ".attn_qkv.weight" : "";
        if (!is_part || file.find_tensor(tensor.name) != nullptr ||
            file.find_tensor(fused) == nullptr) {
            result.push_back(std::move(tensor));
            continue;
        }
        fused_rows = part == ".attn_q.weight" ? tensor.ne[1] : fused_rows + tensor.ne[1];
        if (part == ".attn_v.weight") result.push_back({fused, {tensor.ne[0], fused_rows}, false});
    }
    list = std::move(result);
}

/// A side-car file carries the MTP block alone; the trunk is in another file.
void drop_trunk_of_side_car(const GgufFile& file, const Qwen35Shape& shape,
                            std::vector<ExpectedTensor>& list) {
    if (shape.mtp_blocks == 0 || file.find_tensor("blk.0.attn_norm.weight") != nullptr) return;
    const std::string first_mtp = "blk." + std::to_string(shape.layers) + ".";
    const auto begin = std::ranges::find_if(
        list, [](const ExpectedTensor& tensor) { return tensor.name.starts_with("blk."); });
    const auto end = std::ranges::find_if(
        list, [&](const ExpectedTensor& tensor) { return tensor.name.starts_with(first_mtp); });
    list.erase(begin, end);
}

}  // namespace

GgufResult<std::vector<ExpectedTensor>> expected_tensors(const GgufFile& file) {
    const GgufMetadata& metadata = file.metadata();
    const GgufResult<std::string_view> named = metadata.get_string("general.architecture");
    if (!named) return tl::unexpected(named.error());
    const std::string arch(*named);
    const bool has_output = file.find_tensor("output.weight") != nullptr;
    const bool has_experts = metadata.contains(arch + ".expert_count");
    std::vector<ExpectedTensor> list;
    if (arch == "qwen35" && !has_experts) {
        GgufResult<Qwen35Shape> shape = qwen35_shape_of(metadata);
        if (!shape) return tl::unexpected(shape.error());
        shape->has_output = has_output;
        list = qwen35_tensors(*shape);
        drop_trunk_of_side_car(file, *shape, list);
    } else if ((arch == "llama" || arch == "qwen2" || arch == "qwen3") && !has_experts) {
        const GgufResult<DenseShape> shape = dense_shape_of(metadata, arch);
        if (!shape) return tl::unexpected(shape.error());
        list = dense_tensors(*shape, arch, has_output);
    } else {
        GgufError error = metadata.error_about("general.architecture",
                                               "is " + arch + ", whose tensors we do not know", "");
        error.kind = GgufErrorKind::kUnsupported;
        return tl::unexpected(std::move(error));
    }
    replace_fused(file, list);
    return list;
}

}  // namespace replica

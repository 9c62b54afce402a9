#include "replica/model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "replica/gguf/reader.h"

namespace replica {
namespace {

// Sanity bounds for values of untrusted files: far above every published model, far below overflow.
constexpr std::uint32_t kBlocksMax = 1024;
constexpr std::uint32_t kWidthMax = 1U << 20;
constexpr std::uint32_t kHeadsMax = 1U << 16;
constexpr std::uint32_t kHeadDimMax = 1U << 14;
constexpr std::uint32_t kContextMax = 1U << 24;
constexpr std::int64_t kVocabularyMax = 1LL << 24;

struct ArchTraits {
    std::string_view name;
    Arch arch;
    kernels::RopePairing pairing;
    bool has_qk_norm;
    bool has_output_gate;
};

constexpr std::array<ArchTraits, 4> kArchs = {{
    {"qwen35", Arch::kQwen35, kernels::RopePairing::kHalfSplit, true, true},
    {"llama", Arch::kLlama, kernels::RopePairing::kAdjacent, false, false},
    {"qwen2", Arch::kQwen2, kernels::RopePairing::kHalfSplit, false, false},
    {"qwen3", Arch::kQwen3, kernels::RopePairing::kHalfSplit, true, false},
}};

/// Reads keys of one architecture and remembers the first thing that is wrong; after that it
/// returns harmless values, so that the reading code is a straight line.
class KeyReader {
public:
    KeyReader(const GgufFile& file, std::string_view arch)
        : metadata_(file.metadata()), prefix_(std::string(arch) + ".") {}

    std::int32_t integer(std::string_view key, std::uint32_t min, std::uint32_t max) {
        return bounded(key, metadata_.get_u32(full(key)), min, max);
    }
    std::int32_t integer_or(std::string_view key, std::uint32_t absent, std::uint32_t min,
                            std::uint32_t max) {
        return bounded(key, metadata_.get_u32_or(full(key), absent), min, max);
    }
    float real_or(std::string_view key, float absent) {
        return take(metadata_.get_f32_or(full(key), absent), 1.0F);
    }
    float real(std::string_view key) { return take(metadata_.get_f32(full(key)), 1.0F); }
    std::string text_or(std::string_view key, std::string_view absent) {
        return std::string(take(metadata_.get_string_or(full(key), absent), std::string_view{}));
    }
    std::vector<std::uint32_t> per_layer(std::string_view key, std::size_t layers) {
        return take(metadata_.get_u32_per_layer(full(key), layers),
                    std::vector<std::uint32_t>(layers, 1));
    }
    std::vector<bool> flags_per_layer(std::string_view key, std::size_t layers) {
        return take(metadata_.get_bool_per_layer(full(key), layers), std::vector<bool>(layers));
    }
    std::vector<std::int32_t> integers(std::string_view key) {
        return take(metadata_.get_i32s(full(key)), std::vector<std::int32_t>{});
    }
    bool has(std::string_view key) const { return metadata_.contains(full(key)); }

    void check(bool holds, std::string_view key, const std::string& rule) {
        if (holds || error_) return;
        fail(metadata_.error_about(full(key), rule));
    }
    const std::optional<ModelError>& error() const { return error_; }

private:
    std::string full(std::string_view key) const { return prefix_ + std::string(key); }

    template <class T>
    T take(GgufResult<T> result, T fallback) {
        if (result) return *std::move(result);
        if (!error_) fail(result.error());
        return fallback;
    }
    std::int32_t bounded(std::string_view key, GgufResult<std::uint32_t> result, std::uint32_t min,
                         std::uint32_t max) {
        const std::uint32_t value = take(std::move(result), min);
        check(value >= min && value <= max, key,
              "is " + std::to_string(value) + ", must be " + std::to_string(min) + " to " +
                  std::to_string(max));
        return static_cast<std::int32_t>(std::clamp(value, min, max));
    }
    void fail(const GgufError& error) {
        error_ = ModelError{ModelErrorKind::kFile, error.what, error.why, error.fix};
    }

    const GgufMetadata& metadata_;
    std::string prefix_;
    std::optional<ModelError> error_;
};

/// Which trunk layers are delta nets. An explicit list in the file wins over the interval.
std::vector<LayerKind> layer_kinds(KeyReader& keys, std::size_t trunk, std::size_t blocks) {
    std::vector<LayerKind> kinds(trunk, LayerKind::kAttention);
    if (keys.has("attention.recurrent_layers")) {
        const std::vector<bool> recurrent =
            keys.flags_per_layer("attention.recurrent_layers", blocks);
        for (std::size_t i = 0; i < trunk; ++i) {
            if (recurrent[i]) kinds[i] = LayerKind::kDeltaNet;
        }
        return kinds;
    }
    const auto interval =
        static_cast<std::size_t>(keys.integer_or("full_attention_interval", 4, 1, kBlocksMax));
    for (std::size_t i = 0; i < trunk; ++i) {
        if ((i + 1) % interval != 0) kinds[i] = LayerKind::kDeltaNet;
    }
    return kinds;
}

DeltaNetConfig read_delta_net(KeyReader& keys) {
    DeltaNetConfig net;
    net.conv_kernel = keys.integer("ssm.conv_kernel", 2, 8);
    net.state_size = keys.integer("ssm.state_size", 1, 1024);
    net.key_heads = keys.integer("ssm.group_count", 1, 4096);
    net.value_heads = keys.integer("ssm.time_step_rank", 1, 4096);
    keys.check(net.value_heads % net.key_heads == 0, "ssm.time_step_rank",
               "is " + std::to_string(net.value_heads) +
                   ", must be a multiple of ssm.group_count " + std::to_string(net.key_heads));
    const std::int32_t inner = keys.integer("ssm.inner_size", 1, kWidthMax);
    keys.check(inner == net.value_dim(), "ssm.inner_size",
               "is " + std::to_string(inner) +
                   ", must be time_step_rank x state_size = " + std::to_string(net.value_dim()));
    return net;
}

void read_rope(KeyReader& keys, ModelConfig& config) {
    config.rope_base = static_cast<double>(keys.real_or("rope.freq_base", 10000.0F));
    keys.check(std::isfinite(config.rope_base) && config.rope_base > 1.0, "rope.freq_base",
               "must be a finite number above 1");
    config.n_rot = keys.integer_or("rope.dimension_count",
                                   static_cast<std::uint32_t>(config.head_dim), 2, kHeadDimMax);
    keys.check(config.n_rot % 2 == 0 && config.n_rot <= config.head_dim, "rope.dimension_count",
               "is " + std::to_string(config.n_rot) + ", must be even and at most the head size " +
                   std::to_string(config.head_dim));
    if (config.arch == Arch::kLlama) {
        keys.check(config.n_rot == config.head_dim, "rope.dimension_count",
                   "must equal the head size in this architecture");
    }

    const std::string type = keys.text_or("rope.scaling.type", "none");
    const float factor = keys.real_or("rope.scaling.factor", 1.0F);
    keys.check(std::isfinite(factor) && factor > 0.0F, "rope.scaling.factor",
               "must be a finite number above 0");
    config.rope_scaling.factor = static_cast<double>(factor);
    const float attention_factor = keys.real_or("rope.scaling.attn_factor", 1.0F);
    keys.check(std::isfinite(attention_factor) && attention_factor > 0.0F,
               "rope.scaling.attn_factor", "must be a finite number above 0");
    config.rope_scaling.attention_factor = static_cast<double>(attention_factor);
    if (type == "linear") {
        config.rope_scaling.kind = RopeScaling::Kind::kLinear;
    } else if (type == "yarn") {
        config.rope_scaling.kind = RopeScaling::Kind::kYarn;
        config.rope_scaling.original_context =
            keys.integer_or("rope.scaling.original_context_length",
                            static_cast<std::uint32_t>(config.context_train), 1, kContextMax);
    } else {
        keys.check(type == "none", "rope.scaling.type",
                   "is '" + type + "', supported are none, linear and yarn");
    }
}

/// Interleaved multimodal sections: for text all three positions are equal, so they need only add
/// up.
void check_rope_sections(KeyReader& keys, const ModelConfig& config) {
    const std::vector<std::int32_t> sections = keys.integers("rope.dimension_sections");
    std::int64_t sum = 0;
    bool non_negative = true;
    for (const std::int32_t section : sections) {
        non_negative = non_negative && section >= 0;
        sum += section;
    }
    keys.check(
        (sections.size() == 3 || sections.size() == 4) && non_negative && sum == config.n_rot / 2,
        "rope.dimension_sections",
        "must be 3 or 4 counts that add up to rope.dimension_count / 2 = " +
            std::to_string(config.n_rot / 2));
}

void read_layers(KeyReader& keys, ModelConfig& config) {
    const auto blocks = static_cast<std::size_t>(keys.integer("block_count", 1, kBlocksMax));
    const auto mtp = static_cast<std::size_t>(
        config.arch == Arch::kQwen35 ? keys.integer_or("nextn_predict_layers", 0, 0, kBlocksMax)
                                     : 0);
    keys.check(mtp < blocks, "nextn_predict_layers", "must be below block_count");
    const std::size_t trunk = mtp < blocks ? blocks - mtp : blocks;

    const std::vector<std::uint32_t> heads = keys.per_layer("attention.head_count", blocks);
    const std::vector<std::uint32_t> kv_heads =
        keys.has("attention.head_count_kv") ? keys.per_layer("attention.head_count_kv", blocks)
                                            : heads;
    const std::vector<std::uint32_t> widths = keys.per_layer("feed_forward_length", blocks);
    std::vector<LayerKind> kinds(trunk, LayerKind::kAttention);
    if (config.arch == Arch::kQwen35) kinds = layer_kinds(keys, trunk, blocks);
    kinds.resize(blocks, LayerKind::kAttention);

    for (std::size_t i = 0; i < blocks; ++i) {
        keys.check(widths[i] >= 1 && widths[i] <= kWidthMax, "feed_forward_length",
                   "must be 1 to " + std::to_string(kWidthMax));
        if (kinds[i] == LayerKind::kAttention) {
            keys.check(heads[i] >= 1 && heads[i] <= kHeadsMax, "attention.head_count",
                       "must be 1 to " + std::to_string(kHeadsMax) + " in attention layers");
            keys.check(kv_heads[i] >= 1 && kv_heads[i] <= heads[i] && heads[i] % kv_heads[i] == 0,
                       "attention.head_count_kv",
                       "is " + std::to_string(kv_heads[i]) + ", must divide head_count " +
                           std::to_string(heads[i]));
        }
        const LayerConfig layer{
            .kind = kinds[i],
            .heads = static_cast<std::int32_t>(std::min(heads[i], kHeadsMax)),
            .kv_heads = static_cast<std::int32_t>(std::clamp(kv_heads[i], 1U, kHeadsMax)),
            .ff_width = static_cast<std::int32_t>(std::clamp(widths[i], 1U, kWidthMax))};
        (i < trunk ? config.layers : config.mtp_layers).push_back(layer);
    }
}

void read_head_size(KeyReader& keys, ModelConfig& config) {
    std::uint32_t absent = 0;
    for (const LayerConfig& layer : config.layers) {
        if (layer.kind == LayerKind::kAttention && layer.heads > 0) {
            absent = static_cast<std::uint32_t>(config.width / layer.heads);
            break;
        }
    }
    config.head_dim = keys.integer_or("attention.key_length", absent, 1, kHeadDimMax);
    const std::int32_t value_length = keys.integer_or(
        "attention.value_length", static_cast<std::uint32_t>(config.head_dim), 1, kHeadDimMax);
    keys.check(value_length == config.head_dim, "attention.value_length",
               "is " + std::to_string(value_length) + ", must equal key_length " +
                   std::to_string(config.head_dim));
}

tl::unexpected<ModelError> refuse(const GgufError& error) {
    return tl::unexpected(ModelError{ModelErrorKind::kFile, error.what, error.why, error.fix});
}

}  // namespace

std::string_view arch_name(Arch arch) {
    for (const ArchTraits& traits : kArchs) {
        if (traits.arch == arch) return traits.name;
    }
    return "unknown";
}

std::int32_t ModelConfig::kv_layer_count() const {
    const auto attention = [](const LayerConfig& layer) {
        return layer.kind == LayerKind::kAttention;
    };
    return static_cast<std::int32_t>(std::ranges::count_if(layers, attention) +
                                     std::ranges::count_if(mtp_layers, attention));
}

tl::expected<ModelConfig, ModelError> read_model_config(const GgufFile& file) {
    const auto arch = file.metadata().get_string("general.architecture");
    if (!arch) return refuse(arch.error());
    const auto* traits = std::ranges::find(kArchs, *arch, &ArchTraits::name);
    if (traits == kArchs.end()) {
        return refuse(file.metadata().error_about(
            "general.architecture", "is '" + std::string(*arch) + "', which we do not run",
            "use a model of architecture qwen35, llama, qwen2 or qwen3"));
    }

    ModelConfig config;
    config.arch = traits->arch;
    config.rope_pairing = traits->pairing;
    config.has_qk_norm = traits->has_qk_norm;
    config.has_output_gate = traits->has_output_gate;
    if (const auto name = file.metadata().get_string_or("general.name", ""); name) {
        config.name = std::string(*name);
    }

    KeyReader keys(file, traits->name);
    config.width = keys.integer("embedding_length", 1, kWidthMax);
    config.context_train = keys.integer("context_length", 1, kContextMax);
    config.norm_eps = keys.real("attention.layer_norm_rms_epsilon");
    keys.check(std::isfinite(config.norm_eps) && config.norm_eps >= 0.0F,
               "attention.layer_norm_rms_epsilon", "must be finite and not negative");
    if (keys.has("expert_count")) {
        keys.check(keys.integer("expert_count", 0, kWidthMax) == 0, "expert_count",
                   "is not 0: mixtures of experts are not supported");
    }
    read_layers(keys, config);
    read_head_size(keys, config);
    read_rope(keys, config);
    if (config.arch == Arch::kQwen35) {
        check_rope_sections(keys, config);
        config.delta_net = read_delta_net(keys);
    }
    if (keys.error()) return tl::unexpected(*keys.error());

    const auto embedding = file.get_tensor("token_embd.weight");
    if (!embedding) return refuse(embedding.error());
    if ((*embedding)->ne[1] < 1 || (*embedding)->ne[1] > kVocabularyMax) {
        return tl::unexpected(
            ModelError{ModelErrorKind::kFile,
                       "token_embd.weight has " + std::to_string((*embedding)->ne[1]) + " rows",
                       "a vocabulary has 1 to 16,777,216 tokens", ""});
    }
    config.vocabulary = static_cast<std::int32_t>((*embedding)->ne[1]);
    return config;
}

}  // namespace replica

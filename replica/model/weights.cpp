#include "replica/model/weights.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "kernels/quant/decode.h"
#include "kernels/quant/format.h"
#include "replica/gguf/reader.h"
#include "replica/model/rope_table.h"

namespace replica {
namespace {

using kernels::MatrixSource;
using kernels::MatrixView;
using kernels::TensorView;

/// Tensors that must not be there: ignoring them would silently change the result.
constexpr std::array<std::string_view, 4> kRefusedSuffixes = {".scale", "ffn_gate_inp.weight",
                                                              "_exps.weight", "output.bias"};

/// Pages are touched once while loading, so that the first requests do not wait for the disk and
/// the progress shown is real. One byte of each suffices.
constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kProgressStepBytes = 32ULL << 20;
const LoadProgress kNoProgress;

/// Finds, checks and places tensors; remembers the first thing that is wrong and from then on does
/// nothing, so that the lists below read as straight lines.
class Loader {
public:
    Loader(const GgufFile& file, kernels::Backend& backend, const LoadProgress& progress)
        : file_(file), backend_(backend), progress_(progress), total_bytes_(file.tensor_bytes()) {
        if (backend_.device().memory_is_host) return;
        // It reads the blocks itself, faster than a walk over their pages, and tells how far it is.
        touches_pages_ = false;
        backend_.watch_loading([this](std::uint64_t bytes) { read(bytes); });
    }
    /// Measures only: counts what would be kept, reads no weights.
    struct Measure {};
    Loader(const GgufFile& file, kernels::Backend& backend, Measure)
        : file_(file), backend_(backend), progress_(kNoProgress), is_measuring_(true) {}
    ~Loader() {
        if (!touches_pages_) backend_.watch_loading({});
    }
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    struct Rows {
        std::string name;
        std::int64_t n;
    };

    bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

    TensorView vector(const std::string& name, std::initializer_list<std::int64_t> shape) {
        // Shapes are given outermost first, as views are; the file lists the contiguous dimension
        // first.
        std::vector<std::int64_t> ne(std::rbegin(shape), std::rend(shape));
        if (is_measuring_) return measured(ne);
        const std::vector<float> values = decoded(name, ne);
        if (values.empty()) return {};
        return backend_.upload_f32(values, std::span(shape.begin(), shape.size()));
    }

    /// Stacks the named matrices, all of `k` inputs.
    MatrixView matrix(std::initializer_list<Rows> segments, std::int64_t k) {
        std::vector<MatrixSource> sources;
        for (const Rows& segment : segments) {
            const GgufTensor* tensor = find(segment.name, std::array{k, segment.n});
            if (tensor == nullptr) return {};
            sources.push_back({.name = tensor->name,
                               .dtype = tensor->dtype,
                               .blocks = tensor->data,
                               .n = segment.n,
                               .k = k});
            if (!is_measuring_) advance(*tensor);
        }
        inputs_max_ = std::max(inputs_max_, k);
        if (is_measuring_) {
            kept_bytes_ += backend_.packed_bytes(sources);
            return {};
        }
        MatrixView view;
        if (const auto refusal = backend_.pack(sources, view)) {
            fail({refusal_kind(*refusal), refusal->subject + ": " + refusal->value, refusal->rule,
                  refusal->remedy});
        }
        return view;
    }

    /// Concatenates biases of stacked projections; absent ones count as zeros. Empty when all are
    /// absent.
    TensorView biases(std::initializer_list<Rows> segments) {
        if (is_measuring_) return {};  // a few KB
        std::vector<float> all;
        bool any = false;
        for (const Rows& segment : segments) {
            const std::size_t begin = all.size();
            all.resize(begin + static_cast<std::size_t>(segment.n), 0.0F);
            if (!has(segment.name)) continue;
            const std::vector<float> values = decoded(segment.name, std::array{segment.n});
            if (values.empty()) return {};
            std::ranges::copy(values, all.begin() + static_cast<std::ptrdiff_t>(begin));
            any = true;
        }
        if (!any) return {};
        const std::array shape{static_cast<std::int64_t>(all.size())};
        return backend_.upload_f32(all, shape);
    }

    std::vector<float> values(const std::string& name, std::int64_t n) {
        return decoded(name, std::array{n});
    }

    void fail(ModelError error) {
        if (!error_) error_ = std::move(error);
    }

    void check_unread_tensors(std::vector<std::string>& warnings) {
        for (const GgufTensor& tensor : file_.tensors()) {
            if (seen_.contains(tensor.name)) continue;
            const bool refused = std::ranges::any_of(
                kRefusedSuffixes, [&](std::string_view s) { return tensor.name.ends_with(s); });
            if (refused) {
                fail({ModelErrorKind::kFile, tensor.name + " is in the file",
                      "ignoring it would change the model's answers and we cannot apply it",
                      "use a conversion without it"});
            }
            warnings.push_back("tensor " + tensor.name + " is not used");
        }
    }

    /// The tensors of block `index` are known and not wanted.
    void skip_block(std::size_t index) {
        const std::string prefix = "blk." + std::to_string(index) + ".";
        for (const GgufTensor& tensor : file_.tensors()) {
            if (!tensor.name.starts_with(prefix) || !seen_.insert(tensor.name).second) continue;
            total_bytes_ -= std::min(total_bytes_, tensor.bytes);
        }
    }

    std::uint64_t kept_bytes() const { return kept_bytes_; }
    const std::optional<ModelError>& error() const { return error_; }
    std::int32_t inputs_max() const { return static_cast<std::int32_t>(inputs_max_); }

private:
    /// A small tensor's values; empty when it is missing or misshapen (the error is kept).
    std::vector<float> decoded(const std::string& name, std::span<const std::int64_t> ne) {
        const GgufTensor* tensor = find(name, ne);
        if (tensor == nullptr) return {};
        if (is_measuring_) return {};
        std::vector<float> values(static_cast<std::size_t>(tensor->elements()));
        kernels::decode_row(tensor->dtype, tensor->data, values.data(), tensor->elements());
        advance(*tensor);
        return values;
    }

    const GgufTensor* find(const std::string& name, std::span<const std::int64_t> ne) {
        if (error_) return nullptr;
        const GgufResult<const GgufTensor*> found = file_.get_tensor(name);
        if (!found) {
            fail({ModelErrorKind::kFile, found.error().what, found.error().why, found.error().fix});
            return nullptr;
        }
        const GgufTensor* tensor = *found;
        std::array<std::int64_t, 4> demanded{1, 1, 1, 1};
        std::ranges::copy(ne, demanded.begin());
        if (tensor->ne != demanded) {
            std::string text;
            for (const std::int64_t n : ne)
                text += (text.empty() ? "" : ", ") + std::to_string(n);
            fail({ModelErrorKind::kFile, tensor->name + " has shape " + tensor->shape_text(),
                  "the hyperparameters demand [" + text + "]", "convert the model again"});
            return nullptr;
        }
        return tensor;
    }

    /// Touches the tensor's pages and reports progress. A tied matrix is counted once.
    void advance(const GgufTensor& tensor) {
        if (!seen_.insert(tensor.name).second) return;
        if (!touches_pages_) return;
        for (std::uint64_t offset = 0; offset < tensor.bytes; offset += kPageBytes) {
            static_cast<void>(*reinterpret_cast<const volatile std::byte*>(tensor.data + offset));
            if (offset - reported_in_tensor_ >= kProgressStepBytes) {
                reported_in_tensor_ = offset;
                report(done_bytes_ + offset);
            }
        }
        reported_in_tensor_ = 0;
        done_bytes_ += tensor.bytes;
        report(done_bytes_);
    }
    /// The backend has read so much more.
    void read(std::uint64_t bytes) {
        done_bytes_ = std::min(done_bytes_ + bytes, total_bytes_);
        if (done_bytes_ - reported_bytes_ < kProgressStepBytes && done_bytes_ < total_bytes_)
            return;
        reported_bytes_ = done_bytes_;
        report(done_bytes_);
    }
    void report(std::uint64_t done_bytes) const {
        if (progress_) progress_(std::min(done_bytes, total_bytes_), total_bytes_);
    }
    TensorView measured(std::span<const std::int64_t> ne) {
        std::uint64_t values = 1;
        for (const std::int64_t n : ne)
            values *= static_cast<std::uint64_t>(n);
        kept_bytes_ += values * sizeof(float);
        return {};
    }

    const GgufFile& file_;
    kernels::Backend& backend_;
    const LoadProgress& progress_;
    std::unordered_set<std::string> seen_;
    std::optional<ModelError> error_;
    std::int64_t inputs_max_ = 0;
    std::uint64_t done_bytes_ = 0;
    std::uint64_t reported_in_tensor_ = 0;
    std::uint64_t total_bytes_ = 0;
    std::uint64_t reported_bytes_ = 0;
    std::uint64_t kept_bytes_ = 0;
    bool touches_pages_ = true;
    bool is_measuring_ = false;
};

void load_delta_net(Loader& load, const ModelConfig& config, const std::string& block,
                    LayerWeights& layer) {
    const DeltaNetConfig& net = *config.delta_net;
    layer.in = load.matrix({{block + "attn_qkv.weight", net.conv_dim()},
                            {block + "attn_gate.weight", net.value_dim()},
                            {block + "ssm_beta.weight", net.value_heads},
                            {block + "ssm_alpha.weight", net.value_heads}},
                           config.width);
    layer.delta_net.conv =
        load.vector(block + "ssm_conv1d.weight", {net.conv_dim(), net.conv_kernel});
    layer.delta_net.dt_bias = load.vector(block + "ssm_dt.bias", {net.value_heads});
    layer.delta_net.a = load.vector(block + "ssm_a", {net.value_heads});
    layer.delta_net.norm = load.vector(block + "ssm_norm.weight", {net.state_size});
    layer.out = load.matrix({{block + "ssm_out.weight", config.width}}, net.value_dim());
}

void load_attention(Loader& load, const ModelConfig& config, const LayerConfig& layer_config,
                    const std::string& block, LayerWeights& layer) {
    const std::int64_t out_width = std::int64_t{config.head_dim} * layer_config.heads;
    const std::int64_t q_width = out_width * (config.has_output_gate ? 2 : 1);
    const std::int64_t kv_width = std::int64_t{config.head_dim} * layer_config.kv_heads;
    if (load.has(block + "attn_qkv.weight")) {
        layer.in = load.matrix({{block + "attn_qkv.weight", q_width + 2 * kv_width}}, config.width);
        layer.in_bias = load.biases({{block + "attn_qkv.bias", q_width + 2 * kv_width}});
    } else {
        layer.in = load.matrix({{block + "attn_q.weight", q_width},
                                {block + "attn_k.weight", kv_width},
                                {block + "attn_v.weight", kv_width}},
                               config.width);
        layer.in_bias = load.biases({{block + "attn_q.bias", q_width},
                                     {block + "attn_k.bias", kv_width},
                                     {block + "attn_v.bias", kv_width}});
    }
    if (config.has_qk_norm) {
        layer.attention.q_norm = load.vector(block + "attn_q_norm.weight", {config.head_dim});
        layer.attention.k_norm = load.vector(block + "attn_k_norm.weight", {config.head_dim});
    }
    layer.out = load.matrix({{block + "attn_output.weight", config.width}}, out_width);
    layer.out_bias = load.biases({{block + "attn_output.bias", config.width}});
}

LayerWeights load_layer(Loader& load, const ModelConfig& config, const LayerConfig& layer_config,
                        std::size_t index) {
    const std::string block = "blk." + std::to_string(index) + ".";
    const std::string ffn_norm =
        config.arch == Arch::kQwen35 ? "post_attention_norm.weight" : "ffn_norm.weight";
    const std::int64_t ff = layer_config.ff_width;
    LayerWeights layer;
    layer.mixer_norm = load.vector(block + "attn_norm.weight", {config.width});
    if (layer_config.kind == LayerKind::kDeltaNet) {
        load_delta_net(load, config, block, layer);
    } else {
        load_attention(load, config, layer_config, block, layer);
    }
    layer.ffn_norm = load.vector(block + ffn_norm, {config.width});
    layer.gate_up =
        load.matrix({{block + "ffn_gate.weight", ff}, {block + "ffn_up.weight", ff}}, config.width);
    layer.gate_up_bias = load.biases({{block + "ffn_gate.bias", ff}, {block + "ffn_up.bias", ff}});
    layer.down = load.matrix({{block + "ffn_down.weight", config.width}}, ff);
    layer.down_bias = load.biases({{block + "ffn_down.bias", config.width}});
    return layer;
}

MtpWeights load_mtp(Loader& load, const ModelConfig& config, const ModelWeights& trunk,
                    std::size_t mtp_index) {
    const std::size_t index = config.layers.size() + mtp_index;
    const std::string block = "blk." + std::to_string(index) + ".nextn.";
    const std::int64_t width = config.width;
    MtpWeights mtp;
    mtp.embed_norm = load.vector(block + "enorm.weight", {width});
    mtp.hidden_norm = load.vector(block + "hnorm.weight", {width});
    mtp.join = load.matrix({{block + "eh_proj.weight", width}}, 2 * width);
    mtp.layer = load_layer(load, config, config.mtp_layers[mtp_index], index);
    mtp.head_norm = load.has(block + "shared_head_norm.weight")
                        ? load.vector(block + "shared_head_norm.weight", {width})
                        : trunk.output_norm;
    mtp.embedding = load.has(block + "embed_tokens.weight")
                        ? load.matrix({{block + "embed_tokens.weight", config.vocabulary}}, width)
                        : trunk.embedding;
    mtp.head = load.has(block + "shared_head_head.weight")
                   ? load.matrix({{block + "shared_head_head.weight", config.vocabulary}}, width)
                   : trunk.head;
    return mtp;
}

/// Embedding, last norm and head.
void load_ends(Loader& load, const ModelConfig& config, ModelWeights& weights) {
    weights.embedding = load.matrix({{"token_embd.weight", config.vocabulary}}, config.width);
    weights.output_norm = load.vector("output_norm.weight", {config.width});
    weights.head = load.has("output.weight")
                       ? load.matrix({{"output.weight", config.vocabulary}}, config.width)
                       : weights.embedding;
}

void load_blocks(Loader& load, const ModelConfig& config, const WeightParts& parts,
                 ModelWeights& weights) {
    for (std::size_t i = 0; i < config.layers.size(); ++i)
        weights.layers.push_back(load_layer(load, config, config.layers[i], i));
    if (!parts.with_mtp) return;
    for (std::size_t i = 0; i < config.mtp_layers.size(); ++i)
        weights.mtp.push_back(load_mtp(load, config, weights, i));
}

}  // namespace

WeightNeed measure_weights(const GgufFile& file, const ModelConfig& config,
                           kernels::Backend& backend, const WeightParts& parts) {
    Loader load(file, backend, Loader::Measure{});
    ModelWeights nothing;
    load_ends(load, config, nothing);
    load_blocks(load, config, parts, nothing);
    return {.kept_bytes = load.kept_bytes(),
            .loading_bytes = backend.load_bytes(),
            .inputs_max = load.inputs_max()};
}

tl::expected<ModelWeights, ModelError> load_weights(const GgufFile& file, const ModelConfig& config,
                                                    kernels::Backend& backend,
                                                    std::int32_t positions,
                                                    const WeightParts& parts,
                                                    const LoadProgress& progress) {
    Loader load(file, backend, progress);
    if (!parts.with_mtp) {
        for (std::size_t i = 0; i < config.mtp_layers.size(); ++i)
            load.skip_block(config.layers.size() + i);
    }
    ModelWeights weights;
    if (!config.mtp_layers.empty() && !load.has("blk.0.attn_norm.weight")) {
        load.fail({ModelErrorKind::kFile, "the file has no blk.0.attn_norm.weight",
                   "it is a side-car that holds only the MTP block",
                   "serve the model it belongs to"});
    }
    load_ends(load, config, weights);
    std::vector<float> divisors;
    if (config.arch == Arch::kLlama && load.has("rope_freqs.weight")) {
        divisors = load.values("rope_freqs.weight", config.n_rot / 2);
    }
    const std::array<std::int64_t, 2> rope_shape{positions, config.n_rot};
    weights.rope = backend.upload_f32(make_rope_table(config, positions, divisors), rope_shape);

    load_blocks(load, config, parts, weights);
    load.check_unread_tensors(weights.warnings);
    if (load.error()) return tl::unexpected(*load.error());
    weights.inputs_max = load.inputs_max();
    return weights;
}

}  // namespace replica

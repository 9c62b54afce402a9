#include "replica/gguf/tool/synth.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "kernels/quant/format.h"
#include "replica/gguf/tool/parallel.h"

namespace replica {
namespace {

/// A piece of work writes about this many bytes.
constexpr std::int64_t kPieceBytes = 1 << 20;

/// Deviation of the logits: enough for a distinct winner, little enough for a choice.
constexpr float kLogitDeviation = 2.5F;

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
    return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

/// Weights keep the variance of what passes through them; branches that add to the residual are
/// damped so that L of them add up to about 1.
Distribution distribution_of(std::string_view name, const Qwen35Shape& shape,
                             std::span<const std::int64_t> ne) {
    const float keep = 1.0F / std::sqrt(static_cast<float>(ne[0]));
    if (name.ends_with("ssm_a")) return {-4.0F, 1.0F};        // within -7.5..-0.5: decays
    if (name.ends_with("ssm_dt.bias")) return {-4.5F, 0.6F};  // steps of 0.001 to 0.1
    if (name.find("norm") != std::string_view::npos) return {1.0F, 0.05F};
    if (name.ends_with("ssm_conv1d.weight")) return {0.0F, 0.5F};  // 1 / sqrt(4 taps)
    if (ends_with_any(name, {"ssm_alpha.weight", "ssm_beta.weight"})) return {0.0F, 0.5F * keep};
    if (name == "token_embd.weight")
        return {0.0F, shape.has_output ? 1.0F : kLogitDeviation * keep};
    if (name == "output.weight") return {0.0F, kLogitDeviation * keep};
    if (ends_with_any(name, {"attn_output.weight", "ssm_out.weight", "ffn_down.weight"})) {
        // Gates and SiLU in front halve their input; the factor makes up for it.
        return {0.0F, 2.0F * keep / std::sqrt(2.0F * static_cast<float>(shape.layers))};
    }
    return {0.0F, keep};
}

struct Piece {
    std::size_t tensor;
    std::int64_t block_begin, block_end;
};

std::vector<Piece> cut(std::span<const GgufTensorSpec> tensors) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const kernels::Format& format = kernels::format_of(tensors[i].dtype);
        const std::int64_t blocks = tensors[i].elements() / format.block_values;
        const std::int64_t step = kPieceBytes / format.block_bytes;
        for (std::int64_t begin = 0; begin < blocks; begin += step)
            pieces.push_back({i, begin, std::min(begin + step, blocks)});
    }
    return pieces;
}

}  // namespace

std::vector<SynthTensor> plan_synth(const Qwen35Shape& shape, const Recipe& recipe) {
    std::vector<RecipeTensor> wanted;
    for (ExpectedTensor& tensor : qwen35_tensors(shape)) {
        // The published models share embedding and head with the trunk.
        if (tensor.is_optional && tensor.ne.size() == 2) continue;
        wanted.push_back({std::move(tensor.name), std::move(tensor.ne)});
    }
    const RecipeModel model = {.block_count = shape.layers + shape.mtp_blocks,
                               .heads_per_kv_head = shape.heads / shape.kv_heads,
                               .has_importance = true};
    const std::vector<kernels::DType> types = choose_types(recipe, model, wanted, {});
    std::vector<SynthTensor> plan;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const Distribution distribution = distribution_of(wanted[i].name, shape, wanted[i].ne);
        plan.push_back(
            {{std::move(wanted[i].name), types[i], std::move(wanted[i].ne)}, distribution});
    }
    return plan;
}

std::uint64_t synth_data_bytes(std::span<const SynthTensor> plan) {
    std::vector<GgufTensorSpec> specs;
    for (const SynthTensor& tensor : plan)
        specs.push_back(tensor.spec);
    return gguf_data_bytes(specs);
}

GgufResult<std::uint64_t> synth(const SynthJob& job) {
    std::vector<SynthTensor> plan = plan_synth(job.shape, *job.recipe);
    std::vector<GgufTensorSpec> specs;
    for (SynthTensor& tensor : plan)
        specs.push_back(std::move(tensor.spec));
    GgufResult<GgufWriter> writer = GgufWriter::create(job.output, synth_metadata(job), specs);
    if (!writer) return tl::unexpected(writer.error());

    const std::vector<Piece> pieces = cut(specs);
    Progress progress("synth", gguf_data_bytes(specs), job.progress);
    const auto work = [&](std::uint64_t index) -> GgufResult<void> {
        const Piece& piece = pieces[index];
        const kernels::DType dtype = specs[piece.tensor].dtype;
        const std::int64_t block_bytes = kernels::format_of(dtype).block_bytes;
        std::vector<std::byte> blocks(
            static_cast<std::size_t>((piece.block_end - piece.block_begin) * block_bytes));
        fill_random_blocks(dtype, plan[piece.tensor].distribution,
                           random_stream(job.seed, piece.tensor), piece.block_begin,
                           piece.block_end, blocks.data());
        progress.advance(blocks.size());
        return writer->write(piece.tensor,
                             static_cast<std::uint64_t>(piece.block_begin * block_bytes), blocks);
    };
    if (GgufResult<void> done = run_pieces(pieces.size(), thread_count(job.threads), work); !done)
        return tl::unexpected(done.error());
    const std::uint64_t file_bytes = writer->file_bytes();
    if (GgufResult<void> done = writer->finish(); !done) return tl::unexpected(done.error());
    return file_bytes;
}

}  // namespace replica

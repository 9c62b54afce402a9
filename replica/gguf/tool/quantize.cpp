#include "replica/gguf/tool/quantize.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/quant/decode.h"
#include "kernels/quant/encode.h"
#include "kernels/quant/format.h"
#include "replica/gguf/tool/parallel.h"
#include "replica/gguf/writer.h"

namespace replica {
namespace {

using kernels::DType;

/// A piece of work holds about this many values: 1 MiB of floats, so a thread's scratch stays in
/// the cache and even small tensors keep all threads busy.
constexpr std::int64_t kPieceValues = 256 * 1024;

struct Piece {
    std::size_t tensor;
    std::int64_t row_begin, row_end;
};

std::vector<std::int64_t> shape_of(const GgufTensor& tensor) {
    // A scalar (rank 0) is written as one dimension of 1.
    return {tensor.ne.begin(), tensor.ne.begin() + std::max(tensor.rank, 1)};
}

RecipeModel model_of(const GgufMetadata& metadata) {
    const std::string arch(metadata.get_string("general.architecture").value_or(""));
    RecipeModel model;
    const GgufResult<std::uint32_t> blocks = metadata.get_u32_or(arch + ".block_count", 0);
    model.block_count = blocks ? std::int64_t{*blocks} : 0;
    const auto heads = static_cast<std::size_t>(model.block_count);
    const auto largest = [&](const std::string& key) -> std::int64_t {
        const auto values = metadata.get_u32_per_layer(arch + key, heads);
        return values && !values->empty() ? std::int64_t{*std::ranges::max_element(*values)} : 0;
    };
    const std::int64_t n_h = largest(".attention.head_count");
    const std::int64_t n_kv = largest(".attention.head_count_kv");
    if (n_kv > 0) model.heads_per_kv_head = n_h / n_kv;
    return model;
}

GgufKeyValues copy_metadata(const GgufMetadata& metadata, const Recipe& recipe) {
    GgufKeyValues result;
    bool has_file_type = false;
    for (const GgufEntry& entry : metadata.entries()) {
        // The writer uses the default alignment and one file.
        if (entry.key == "general.alignment" || entry.key.starts_with("split.") ||
            entry.key == "general.quantization_version")
            continue;
        if (entry.key == "general.file_type") {
            result.set_u32(entry.key, recipe.file_type);
            has_file_type = true;
            continue;
        }
        result.set_copy(entry);
    }
    if (!has_file_type) result.set_u32("general.file_type", recipe.file_type);
    result.set_u32("general.quantization_version", 2);
    return result;
}

std::vector<GgufTensorSpec> plan_tensors(const GgufFile& input, const QuantizeJob& job) {
    std::vector<RecipeTensor> tensors;
    for (const GgufTensor& tensor : input.tensors())
        tensors.push_back({tensor.name, shape_of(tensor)});
    const std::vector<DType> types =
        choose_types(*job.recipe, model_of(input.metadata()), tensors, job.overrides);
    std::vector<GgufTensorSpec> specs;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        // Integer tables (none in our models) are data, not weights.
        const bool is_integer = input.tensors()[i].dtype == DType::kI32;
        specs.push_back({tensors[i].name, is_integer ? DType::kI32 : types[i], tensors[i].ne});
    }
    return specs;
}

std::vector<Piece> cut(std::span<const GgufTensorSpec> tensors) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::int64_t rows = tensors[i].elements() / tensors[i].ne[0];
        const std::int64_t step = std::max<std::int64_t>(1, kPieceValues / tensors[i].ne[0]);
        for (std::int64_t row = 0; row < rows; row += step)
            pieces.push_back({i, row, std::min(row + step, rows)});
    }
    return pieces;
}

/// Decodes and encodes the rows of one piece, or copies them when nothing changes.
GgufResult<void> convert_piece(const GgufTensor& from, const Piece& piece, GgufWriter& writer) {
    const GgufTensorSpec& to = writer.tensors()[piece.tensor];
    const std::int64_t width = from.ne[0];
    const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    const std::int64_t in_row_bytes = kernels::row_bytes(from.dtype, width);
    const std::int64_t out_row_bytes = kernels::row_bytes(to.dtype, width);
    const std::int64_t rows = piece.row_end - piece.row_begin;
    const std::byte* in = from.data + piece.row_begin * in_row_bytes;
    const auto offset = static_cast<std::uint64_t>(piece.row_begin * out_row_bytes);
    if (from.dtype == to.dtype)
        return writer.write(piece.tensor, offset, {in, bytes(rows * in_row_bytes)});
    std::vector<float> values(bytes(width));
    std::vector<std::byte> out(bytes(rows * out_row_bytes));
    for (std::int64_t row = 0; row < rows; ++row) {
        kernels::decode_row(from.dtype, in + row * in_row_bytes, values.data(), width);
        kernels::encode_row(to.dtype, values.data(), out.data() + row * out_row_bytes, width,
                            nullptr);
    }
    return writer.write(piece.tensor, offset, out);
}

bool is_float(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

QuantizeReport report_of(const GgufFile& input, const GgufWriter& writer) {
    QuantizeReport report;
    report.input_bytes = input.tensor_bytes();
    report.output_bytes = writer.file_bytes();
    double values = 0.0;
    double bits = 0.0;
    for (std::size_t i = 0; i < input.tensors().size(); ++i) {
        const GgufTensor& from = input.tensors()[i];
        const GgufTensorSpec& to = writer.tensors()[i];
        values += static_cast<double>(from.elements());
        bits += 8.0 * static_cast<double>(to.bytes());
        if (!is_float(from.dtype) && from.dtype != to.dtype)
            report.requantised.push_back(from.name);
    }
    report.bits_per_weight = values > 0.0 ? bits / values : 0.0;
    return report;
}

}  // namespace

GgufResult<QuantizeReport> quantize(const QuantizeJob& job) {
    const GgufResult<GgufFile> input = GgufFile::open(job.input);
    if (!input) return tl::unexpected(input.error());
    GgufResult<GgufWriter> writer = GgufWriter::create(
        job.output, copy_metadata(input->metadata(), *job.recipe), plan_tensors(*input, job));
    if (!writer) return tl::unexpected(writer.error());

    const std::vector<Piece> pieces = cut(writer->tensors());
    Progress progress("quantize", input->tensor_bytes(), job.progress);
    const auto work = [&](std::uint64_t index) -> GgufResult<void> {
        const Piece& piece = pieces[index];
        const GgufTensor& from = input->tensors()[piece.tensor];
        GgufResult<void> done = convert_piece(from, piece, *writer);
        const std::int64_t rows = piece.row_end - piece.row_begin;
        progress.advance(
            static_cast<std::uint64_t>(rows * kernels::row_bytes(from.dtype, from.ne[0])));
        return done;
    };
    if (GgufResult<void> done = run_pieces(pieces.size(), thread_count(job.threads), work); !done)
        return tl::unexpected(done.error());
    const QuantizeReport report = report_of(*input, *writer);
    if (GgufResult<void> done = input->check_unchanged(); !done)
        return tl::unexpected(done.error());
    if (GgufResult<void> done = writer->finish(); !done) return tl::unexpected(done.error());
    return report;
}

}  // namespace replica

#include "kernels/cpu/matrix.h"

#include <cassert>
#include <string>

#include "kernels/quant/format.h"

namespace kernels::cpu {
namespace {

/// Rows are gathered with 32-bit offsets across kTileRows rows.
constexpr std::int64_t kRowBytesMax = (std::int64_t{1} << 31) / (2 * kTileRows);

std::string type_text(DType dtype) {
    const auto id = static_cast<std::uint32_t>(dtype);
    const Format* format = find_format(id);
    return "type " + (format != nullptr ? std::string(format->name) : std::to_string(id));
}

std::string shape_text(const MatrixSource& source) {
    return "shape " + std::to_string(source.n) + " x " + std::to_string(source.k);
}

TileKernels kernel_for(DType dtype) {
    const TileKernels quant = quant_tile_kernel(dtype);
    return quant.kernel != nullptr ? quant : float_tile_kernel(dtype);
}

std::optional<Refusal> check(const MatrixSource& source, std::int64_t k) {
    const std::string subject = std::string(source.name) + ": linear";
    if (kernel_for(source.dtype).kernel == nullptr)
        return Refusal{subject, type_text(source.dtype), "is not supported",
                       "re-quantise it to IQ4_XS"};
    if (source.n <= 0 || source.k <= 0)
        return Refusal{subject, shape_text(source), "has an empty side", "check the file"};
    if (source.k != k)
        return Refusal{
            subject, shape_text(source),
            "differs in its inputs from the first segment, which has " + std::to_string(k),
            "pack it as a matrix of its own"};
    const Format& format = format_of(source.dtype);
    if (source.k % format.block_values != 0)
        return Refusal{subject, shape_text(source),
                       "is not a whole number of " + std::string(format.name) + " blocks of " +
                           std::to_string(format.block_values) + " inputs",
                       "re-quantise it to a type with smaller blocks, or to F16"};
    if (source.k / format.block_values > kRowBytesMax / format.block_bytes)
        return Refusal{subject, shape_text(source),
                       "has rows of more than " + std::to_string(kRowBytesMax) + " bytes",
                       "split it along its inputs"};
    if (source.blocks == nullptr)
        return Refusal{subject, "address 0", "holds no weights", "check the file"};
    return std::nullopt;
}

}  // namespace

const Segment& Matrix::segment_of(std::int64_t row) const {
    assert(row >= 0 && row < n && "row inside the matrix");
    int s = 0;
    while (row >=
           segments[static_cast<std::size_t>(s)].first + segments[static_cast<std::size_t>(s)].n)
        ++s;
    return segments[static_cast<std::size_t>(s)];
}

std::optional<Refusal> make_matrix(std::span<const MatrixSource> sources, Matrix& out) {
    if (sources.empty() || sources.size() > kSegmentsMax)
        return Refusal{sources.empty() ? "linear" : std::string(sources[0].name) + ": linear",
                       std::to_string(sources.size()) + " segments", "is not between 1 and 4",
                       "pack it as several matrices"};
    Matrix matrix;
    matrix.k = sources[0].k;
    for (const MatrixSource& source : sources) {
        if (std::optional<Refusal> refusal = check(source, matrix.k)) return refusal;
        Segment segment{.dtype = source.dtype,
                        .blocks = static_cast<const std::uint8_t*>(source.blocks),
                        .first = matrix.n,
                        .n = source.n,
                        .row_bytes = row_bytes(source.dtype, source.k),
                        .tile = kernel_for(source.dtype)};
        matrix.reads_records |= segment.tile.quantised_columns;
        matrix.reads_floats |= !segment.tile.quantised_columns;
        matrix.n += source.n;
        matrix.segments[static_cast<std::size_t>(matrix.segment_count++)] = segment;
    }
    out = matrix;
    return std::nullopt;
}

}  // namespace kernels::cpu

#include "replica/gguf/tool/verify.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "kernels/quant/blocks.h"
#include "kernels/quant/format.h"
#include "replica/gguf/tool/expected_tensors.h"
#include "replica/gguf/tool/parallel.h"

namespace replica {
namespace {

using kernels::DType;

constexpr std::int64_t kPieceBlocks = 1 << 16;

bool is_finite_half(std::uint16_t half) {
    return (half & 0x7c00U) != 0x7c00U;
}
bool is_finite_brain(std::uint16_t value) {
    return (value & 0x7f80U) != 0x7f80U;
}

/// Where the binary16 scales of a block lie; equal offsets for one scale.
struct ScalePlaces {
    std::size_t first, second;
};

ScalePlaces scale_places(DType dtype) {
    switch (dtype) {
        case DType::kQ4_1:
        case DType::kQ5_1:
        case DType::kQ4_K:
        case DType::kQ5_K:
            return {0, 2};
        case DType::kQ2_K:
            return {offsetof(kernels::BlockQ2_K, d), offsetof(kernels::BlockQ2_K, dmin)};
        case DType::kQ3_K:
            return {offsetof(kernels::BlockQ3_K, d), offsetof(kernels::BlockQ3_K, d)};
        case DType::kQ6_K:
            return {offsetof(kernels::BlockQ6_K, d), offsetof(kernels::BlockQ6_K, d)};
        default:
            return {0, 0};
    }
}

template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

bool is_finite_block(DType dtype, const ScalePlaces& places, const std::byte* block) {
    if (dtype == DType::kF32) return (load<std::uint32_t>(block) & 0x7f800000U) != 0x7f800000U;
    if (dtype == DType::kBF16) return is_finite_brain(load<std::uint16_t>(block));
    return is_finite_half(load<std::uint16_t>(block + places.first)) &&
           is_finite_half(load<std::uint16_t>(block + places.second));
}

GgufError tensor_fault(const GgufFile& file, std::string_view tensor, std::string why) {
    return {GgufErrorKind::kMalformed, file.path().string() + ": tensor " + std::string(tensor),
            std::move(why), "convert or quantise the model again"};
}

std::string shape_text(const std::vector<std::int64_t>& ne) {
    std::string text = "[";
    for (std::size_t i = 0; i < ne.size(); ++i)
        text += (i > 0 ? ", " : "") + std::to_string(ne[i]);
    return text + "]";
}

bool has_shape(const GgufTensor& tensor, const std::vector<std::int64_t>& ne) {
    for (std::size_t i = 0; i < tensor.ne.size(); ++i) {
        if (tensor.ne[i] != (i < ne.size() ? ne[i] : 1)) return false;
    }
    return true;
}

void check_shapes(const GgufFile& file, VerifyReport& report) {
    const GgufResult<std::vector<ExpectedTensor>> expected_list = expected_tensors(file);
    if (!expected_list) {
        if (expected_list.error().kind == GgufErrorKind::kUnsupported) {
            report.warnings.push_back("shapes are not checked: " + expected_list.error().text());
        } else {
            report.faults.push_back(expected_list.error());
        }
        return;
    }
    report.shapes_checked = true;
    std::vector<std::string> known;
    for (const ExpectedTensor& expected : *expected_list) {
        known.push_back(expected.name);
        const GgufTensor* tensor = file.find_tensor(expected.name);
        if (tensor == nullptr) {
            if (!expected.is_optional)
                report.faults.push_back(tensor_fault(file, expected.name, "is absent"));
        } else if (!has_shape(*tensor, expected.ne)) {
            report.faults.push_back(tensor_fault(file, expected.name,
                                                 "has shape " + tensor->shape_text() +
                                                     ", the metadata asks for " +
                                                     shape_text(expected.ne)));
        }
        if (report.faults.size() >= kVerifyFaultsMax) return;
    }
    std::ranges::sort(known);
    for (const GgufTensor& tensor : file.tensors()) {
        if (!std::ranges::binary_search(known, tensor.name))
            report.warnings.push_back("tensor " + tensor.name + " is none the architecture uses");
    }
}

struct Piece {
    const GgufTensor* tensor;
    std::int64_t begin, end;  // blocks
};

std::vector<Piece> cut(const GgufFile& file) {
    std::vector<Piece> pieces;
    for (const GgufTensor& tensor : file.tensors()) {
        if (tensor.dtype == DType::kI32) continue;  // no scales, every value is finite
        const std::int64_t blocks =
            tensor.elements() / kernels::format_of(tensor.dtype).block_values;
        for (std::int64_t begin = 0; begin < blocks; begin += kPieceBlocks)
            pieces.push_back({&tensor, begin, std::min(begin + kPieceBlocks, blocks)});
    }
    return pieces;
}

GgufResult<void> check_scales(const GgufFile& file, const VerifyJob& job, VerifyReport& report) {
    const std::vector<Piece> pieces = cut(file);
    Progress progress("verify", file.tensor_bytes(), job.progress);
    std::mutex mutex;
    std::vector<std::pair<std::size_t, std::int64_t>> bad;  // piece, block in the tensor
    const auto work = [&](std::uint64_t index) -> GgufResult<void> {
        const Piece& piece = pieces[index];
        const std::int64_t block_bytes = kernels::format_of(piece.tensor->dtype).block_bytes;
        const std::int64_t found = first_non_finite_block(
            piece.tensor->dtype, piece.tensor->data + piece.begin * block_bytes,
            piece.end - piece.begin);
        progress.advance(static_cast<std::uint64_t>((piece.end - piece.begin) * block_bytes));
        const std::scoped_lock lock(mutex);
        report.blocks += static_cast<std::uint64_t>(piece.end - piece.begin);
        if (found >= 0) bad.emplace_back(index, piece.begin + found);
        return {};
    };
    if (GgufResult<void> done = run_pieces(pieces.size(), thread_count(job.threads), work); !done)
        return done;
    std::ranges::sort(bad);
    const GgufTensor* last = nullptr;  // one fault per tensor is enough
    for (const auto& [piece, block] : bad) {
        const GgufTensor* tensor = pieces[piece].tensor;
        if (std::exchange(last, tensor) == tensor) continue;
        if (report.faults.size() >= kVerifyFaultsMax) break;
        report.faults.push_back(
            tensor_fault(file, tensor->name,
                         "block " + std::to_string(block) + " has an infinite or NaN scale"));
    }
    return file.check_unchanged();
}

}  // namespace

std::int64_t first_non_finite_block(DType dtype, const std::byte* blocks,
                                    std::int64_t block_count) {
    const std::int64_t block_bytes = kernels::format_of(dtype).block_bytes;
    const ScalePlaces places = scale_places(dtype);
    for (std::int64_t i = 0; i < block_count; ++i) {
        if (!is_finite_block(dtype, places, blocks + i * block_bytes)) return i;
    }
    return -1;
}

GgufResult<VerifyReport> verify(const VerifyJob& job) {
    const GgufResult<GgufFile> file = GgufFile::open(job.input);
    if (!file) return tl::unexpected(file.error());
    VerifyReport report;
    report.tensors = file->tensors().size();
    check_shapes(*file, report);
    if (GgufResult<void> done = check_scales(*file, job, report); !done)
        return tl::unexpected(done.error());
    return report;
}

}  // namespace replica

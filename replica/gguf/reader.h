// A GGUF model, opened for reading: metadata and a directory of tensors, the data memory-mapped.
//
//     ┌ magic, version, counts ┬ key/value ... ┬ tensor directory ┬ padding ┬ tensor data ... ┐
//     └──────────────── copied into memory ──────────────────────┘         └──── mapped ─────┘
//
// The file is taken for hostile. Every count, length, type, shape and offset is checked against the
// file's size, with overflow in mind, before anything is allocated or touched; a broken rule is a
// GgufError that names the file and the place. What is not checked here: hyperparameters (the
// model's business), tokenizer contents (the tokenizer's), and the numbers inside the tensors. An
// infinite or NaN block scale therefore loads and gives useless logits, but no memory error can
// follow from it, and a step reports rows without a finite logit; `quadriga-gguf verify` reads all
// data and finds such scales.
//
// A file truncated by somebody else while it is mapped kills the process with SIGBUS when the lost
// pages are touched; no check can prevent that. So: the header is read with pread into memory of
// our own, the size is taken again after mapping, and `check_unchanged` can be asked once more
// before a long use. Who cannot exclude it opens with GgufData::kCopy, which reads the tensors,
// too.
//
// A model split into files "<prefix>-00001-of-0000N.gguf" is opened by its first part; the rest is
// found beside it, and the parts must agree on number, count and the total of tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"
#include "replica/gguf/error.h"
#include "replica/gguf/metadata.h"

namespace replica {

/// Limits of our own on top of the format's.
inline constexpr std::uint64_t kGgufKeyBytesMax = 65535;
inline constexpr std::uint64_t kGgufTensorNameBytesMax = 63;
inline constexpr std::uint64_t kGgufStringBytesMax = 64ULL << 20;
inline constexpr std::uint64_t kGgufHeaderBytesMax = 512ULL << 20;  // real vocabularies take 11 MB
inline constexpr std::uint64_t kGgufAlignmentMin = 8;
inline constexpr std::uint64_t kGgufAlignmentMax = 1ULL << 20;
inline constexpr std::uint64_t kGgufAlignmentDefault = 32;
inline constexpr std::uint64_t kGgufPartsMax = 1024;
inline constexpr std::uint64_t kGgufKeysMax = 1ULL << 16;  // real files have about 40
inline constexpr std::uint64_t kGgufTensorsMax = 1ULL
                                                 << 18;  // real files have up to a few thousand

enum class GgufData {
    kMap,   // share the page cache; see the note on truncation above
    kCopy,  // read into anonymous memory
};

struct GgufOptions {
    GgufData data = GgufData::kMap;
    /// Lets tensors of types without a decoder through (type_id says which), for listings.
    bool allow_unsupported_types = false;
};

struct GgufTensor {
    std::string name;
    std::uint32_t type_id = 0;
    kernels::DType dtype = kernels::DType::kF32;  // meaningful when the type is supported
    int rank = 0;                                 // as in the file, 0..4
    std::array<std::int64_t, 4> ne{1, 1, 1, 1};   // ne[0] is the contiguous dimension
    std::uint64_t bytes = 0;
    const std::byte* data = nullptr;  // aligned to 8 at least; lives as long as the GgufFile
    std::uint64_t file_offset = 0;    // of the data, from the start of its file
    std::size_t part = 0;             // index into GgufFile::parts()

    std::int64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
    /// Number of rows of ne[0] values.
    std::int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
    /// "[1024, 3584]", as many dimensions as the file gives.
    std::string shape_text() const;
};

/// One file of a model.
struct GgufPart {
    std::filesystem::path path;
    std::uint64_t bytes = 0;       // file size
    std::uint64_t data_start = 0;  // offset of the data section
    std::uint32_t version = 3;
    std::uint64_t alignment = kGgufAlignmentDefault;
};

/// Move-only owner of header copy and mappings. Const use is safe from many threads.
class GgufFile {
public:
    static GgufResult<GgufFile> open(const std::filesystem::path& path, GgufOptions options = {});

    GgufFile(GgufFile&&) noexcept;
    GgufFile& operator=(GgufFile&&) noexcept;
    ~GgufFile();

    /// Of the first part.
    const GgufMetadata& metadata() const;
    /// In order of listing, all parts.
    std::span<const GgufTensor> tensors() const;
    /// nullptr when absent.
    const GgufTensor* find_tensor(std::string_view name) const;
    /// As find_tensor, with a kMissing error that names the tensor.
    GgufResult<const GgufTensor*> get_tensor(std::string_view name) const;

    std::span<const GgufPart> parts() const;
    const std::filesystem::path& path() const { return parts()[0].path; }
    /// Sum of the tensors' bytes.
    std::uint64_t tensor_bytes() const;
    /// kIo when a part's file has another size than at open.
    GgufResult<void> check_unchanged() const;

private:
    struct State;
    explicit GgufFile(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace replica

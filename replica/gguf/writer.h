// Writes a GGUF model, version 3, in the canonical arrangement: tensors in the order of listing,
// each at the next multiple of the alignment, the end padded likewise.
//
// All shapes are known before the first byte of data, so the header is written at once and tensor
// data may arrive in any order and from many threads:
//
//     create(path, key values, tensors) ─▶ write(tensor, offset, bytes) ... ─▶ finish()
//
// The bytes go into a temporary file beside the target, which takes the target's name in finish():
// a reader sees the old file or the whole new one, and one that has the old file mapped keeps it.
#pragma once

#include <atomic>
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

/// Key/value pairs in the order they are set, already encoded. A key is set once.
class GgufKeyValues {
public:
    void set_u32(std::string_view key, std::uint32_t value);
    void set_i32(std::string_view key, std::int32_t value);
    void set_u16(std::string_view key, std::uint16_t value);
    void set_f32(std::string_view key, float value);
    void set_bool(std::string_view key, bool value);
    void set_string(std::string_view key, std::string_view value);
    void set_strings(std::string_view key, std::span<const std::string> values);
    void set_i32s(std::string_view key, std::span<const std::int32_t> values);
    /// As it stands in another file.
    void set_copy(const GgufEntry& entry);

    std::uint64_t count() const { return count_; }
    std::span<const std::byte> bytes() const { return bytes_; }

private:
    void begin(std::string_view key, GgufType type);
    template <class T>
    void append(T value);
    void append_string(std::string_view text);

    std::vector<std::byte> bytes_;
    std::uint64_t count_ = 0;
};

struct GgufTensorSpec {
    std::string name;
    kernels::DType dtype = kernels::DType::kF32;
    std::vector<std::int64_t> ne;  // 1 to 4 dimensions, the contiguous one first

    std::int64_t elements() const;
    std::uint64_t bytes() const;
};

/// Move-only. `write` may be called from many threads at once, everything else from one.
class GgufWriter {
public:
    /// Creates the temporary file, reserves its full size and writes the header.
    /// `key_values` must not hold general.alignment; the default of 32 is used.
    static GgufResult<GgufWriter> create(const std::filesystem::path& path,
                                         const GgufKeyValues& key_values,
                                         std::vector<GgufTensorSpec> tensors);

    GgufWriter(GgufWriter&&) noexcept;
    GgufWriter& operator=(GgufWriter&&) noexcept;
    /// Removes the temporary file unless finished.
    ~GgufWriter();

    std::span<const GgufTensorSpec> tensors() const;
    std::uint64_t file_bytes() const;
    /// Puts bytes of a tensor at their place; each byte is written once.
    GgufResult<void> write(std::size_t tensor, std::uint64_t offset,
                           std::span<const std::byte> bytes);
    /// All bytes have been written: syncs and renames.
    GgufResult<void> finish();

private:
    struct State;
    explicit GgufWriter(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

/// Sum of the tensors' bytes, each rounded up to the alignment: the size of the data section.
std::uint64_t gguf_data_bytes(std::span<const GgufTensorSpec> tensors);

}  // namespace replica

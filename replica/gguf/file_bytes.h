// A file's descriptor and mapping, each with one owner. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "replica/gguf/error.h"

namespace replica {

/// An open regular file and its size at that time.
class InputFile {
public:
    static GgufResult<InputFile> open(const std::filesystem::path& path);

    InputFile(InputFile&& other) noexcept
        : path_(std::move(other.path_)),
          descriptor_(std::exchange(other.descriptor_, -1)),
          size_(other.size_) {}
    InputFile& operator=(InputFile&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(descriptor_, other.descriptor_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~InputFile();

    const std::filesystem::path& path() const { return path_; }
    std::uint64_t size() const { return size_; }
    int descriptor() const { return descriptor_; }
    /// Reads exactly `into.size()` bytes at `offset`.
    GgufResult<void> read_at(std::uint64_t offset, std::span<std::byte> into) const;
    /// kIo when the file's size is not the one at open any more.
    GgufResult<void> check_unchanged() const;

private:
    InputFile(std::filesystem::path path, int descriptor, std::uint64_t size)
        : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

    std::filesystem::path path_;
    int descriptor_ = -1;
    std::uint64_t size_ = 0;
};

/// Pages that show, or hold a copy of, a file's bytes from `file_offset` on.
class MappedBytes {
public:
    /// The whole file, shared with the page cache.
    static GgufResult<MappedBytes> map(const InputFile& file);
    /// Private memory with the bytes from `offset` to the end.
    static GgufResult<MappedBytes> copy(const InputFile& file, std::uint64_t offset);

    MappedBytes() = default;
    MappedBytes(MappedBytes&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)),
          file_offset_(other.file_offset_) {}
    MappedBytes& operator=(MappedBytes&& other) noexcept {
        std::swap(base_, other.base_);
        std::swap(bytes_, other.bytes_);
        std::swap(file_offset_, other.file_offset_);
        return *this;
    }
    ~MappedBytes();

    /// Address of the byte at `file_offset` of the file.
    const std::byte* at(std::uint64_t file_offset) const {
        return base_ + (file_offset - file_offset_);
    }

private:
    MappedBytes(std::byte* base, std::uint64_t bytes, std::uint64_t file_offset)
        : base_(base), bytes_(bytes), file_offset_(file_offset) {}

    std::byte* base_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::uint64_t file_offset_ = 0;
};

/// An error about a file as a whole, with errno's text.
GgufError io_error(const std::filesystem::path& path, const std::string& doing, int error_number,
                   std::string fix = "");

}  // namespace replica

// The front of an untrusted file, read piece by piece and taken apart with every length checked.
// Private to this folder.
//
// The header's length is not known before it is parsed, so HeaderBytes reads on as the cursor
// advances, and what is parsed refers to it by offset until the header is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replica/gguf/error.h"
#include "replica/gguf/file_bytes.h"

namespace replica {

/// The first bytes of a file, as many as have been asked for.
class HeaderBytes {
public:
    /// `file` outlives the parsing.
    explicit HeaderBytes(const InputFile& file);
    /// A whole file in memory, for tests.
    HeaderBytes(std::string name, std::vector<std::byte> bytes);

    const std::string& file_name() const { return name_; }
    std::uint64_t file_size() const { return file_size_; }
    /// Makes bytes [0, end) available; end <= file_size(). May move `data()`.
    GgufResult<void> ensure(std::uint64_t end);
    const std::byte* data() const { return bytes_.data(); }
    /// The memory, which views into data() survive.
    std::vector<std::byte> release() { return std::move(bytes_); }

private:
    std::string name_;
    const InputFile* file_ = nullptr;
    std::uint64_t file_size_ = 0;
    std::vector<std::byte> bytes_;
};

/// Walks over the header. The first failure is kept; from then on every read gives 0 and nothing
/// moves, so that callers check once per item and not once per field.
class HeaderCursor {
public:
    explicit HeaderCursor(HeaderBytes& bytes) : bytes_(bytes) {}

    bool has_failed() const { return failed_; }
    GgufError take_error() { return std::move(error_); }
    std::uint64_t position() const { return position_; }
    std::uint64_t remaining() const { return bytes_.file_size() - position_; }
    std::string_view file_name() const { return bytes_.file_name(); }

    /// What is being read, for messages: "key qwen35.block_count".
    void enter(std::string place) { place_ = std::move(place); }

    void fail(GgufErrorKind kind, std::string why, std::string fix);
    /// The usual failure: the file is damaged.
    void fail(std::string why);

    /// Makes the next `count` bytes readable and steps over them; nullptr on failure.
    /// The pointer is good until the next call.
    const std::byte* take(std::uint64_t count);

    template <class T>
    T read() {
        T value{};
        if (const std::byte* at = take(sizeof(T))) std::memcpy(&value, at, sizeof(T));
        return value;
    }

    /// A string of at most `bytes_max` bytes; good until the next call.
    std::string_view read_string(std::uint64_t bytes_max);

private:
    HeaderBytes& bytes_;
    std::uint64_t position_ = 0;
    bool failed_ = false;
    GgufError error_;
    std::string place_;
};

}  // namespace replica

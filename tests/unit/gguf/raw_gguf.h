// Builds the bytes of a GGUF file field by field, so that a test can write any field wrong.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "replica/gguf/header.h"

namespace replica::test {

using Bytes = std::vector<std::byte>;

template <class T>
void put(Bytes& bytes, T value) {
    const auto raw = std::as_bytes(std::span(&value, 1));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
}

inline void put_text(Bytes& bytes, std::string_view text) {
    const auto raw = std::as_bytes(std::span(text));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
}

inline void put_string(Bytes& bytes, std::string_view text) {
    put(bytes, std::uint64_t{text.size()});
    put_text(bytes, text);
}

/// One key with a value of any C++ type whose bytes are the encoding.
template <class T>
Bytes entry(std::string_view key, std::uint32_t type, T value) {
    Bytes bytes;
    put_string(bytes, key);
    put(bytes, type);
    put(bytes, value);
    return bytes;
}

inline Bytes string_entry(std::string_view key, std::string_view value) {
    Bytes bytes;
    put_string(bytes, key);
    put(bytes, std::uint32_t{8});
    put_string(bytes, value);
    return bytes;
}

/// An array; `elements` are the encoded elements, `count` what the file claims.
inline Bytes array_entry(std::string_view key, std::uint32_t element_type, std::uint64_t count,
                         const Bytes& elements) {
    Bytes bytes;
    put_string(bytes, key);
    put(bytes, std::uint32_t{9});
    put(bytes, element_type);
    put(bytes, count);
    bytes.insert(bytes.end(), elements.begin(), elements.end());
    return bytes;
}

template <class T>
Bytes elements(std::initializer_list<T> values) {
    Bytes bytes;
    for (const T value : values)
        put(bytes, value);
    return bytes;
}

inline Bytes strings(std::initializer_list<std::string_view> values) {
    Bytes bytes;
    for (const std::string_view value : values)
        put_string(bytes, value);
    return bytes;
}

struct RawTensor {
    std::string name;
    std::vector<std::uint64_t> ne;
    std::uint32_t type = 0;  // F32
    std::uint64_t offset = 0;
    std::optional<std::uint32_t> rank;  // when it shall differ from ne.size()
};

struct RawGguf {
    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::optional<std::uint64_t> tensor_count, entry_count;  // when they shall differ
    std::vector<Bytes> entries;
    std::vector<RawTensor> tensors;
    std::size_t alignment = 32;
    std::size_t data_bytes = 0;

    /// Everything up to the padding before the data.
    Bytes header() const {
        Bytes bytes;
        put_text(bytes, magic);
        put(bytes, version);
        put(bytes, tensor_count.value_or(tensors.size()));
        put(bytes, entry_count.value_or(entries.size()));
        for (const Bytes& one : entries)
            bytes.insert(bytes.end(), one.begin(), one.end());
        for (const RawTensor& tensor : tensors) {
            put_string(bytes, tensor.name);
            put(bytes, tensor.rank.value_or(static_cast<std::uint32_t>(tensor.ne.size())));
            for (const std::uint64_t ne : tensor.ne)
                put(bytes, ne);
            put(bytes, tensor.type);
            put(bytes, tensor.offset);
        }
        return bytes;
    }

    Bytes bytes() const {
        Bytes result = header();
        if (tensors.empty() && data_bytes == 0) return result;
        result.resize((result.size() + alignment - 1) / alignment * alignment + data_bytes);
        return result;
    }
};

/// A small valid file: every kind of value, two tensors.
inline RawGguf small_valid() {
    RawGguf raw;
    raw.entries = {string_entry("general.architecture", "test"),
                   entry("test.u8", 0, std::uint8_t{7}),
                   entry("test.i8", 1, std::int8_t{-7}),
                   entry("test.u16", 2, std::uint16_t{65535}),
                   entry("test.i16", 3, std::int16_t{-2}),
                   entry("test.u32", 4, std::uint32_t{4000000000}),
                   entry("test.i32", 5, std::int32_t{-5}),
                   entry("test.f32", 6, 1.5F),
                   entry("test.bool", 7, std::uint8_t{1}),
                   entry("test.u64", 10, std::uint64_t{1} << 40),
                   entry("test.i64", 11, std::int64_t{-1}),
                   entry("test.f64", 12, 0.25),
                   array_entry("test.i32s", 5, 3, elements<std::int32_t>({1, -2, 3})),
                   array_entry("test.strings", 8, 3, strings({"a", "", "ccc"}))};
    raw.tensors = {{"first.weight", {8, 2}, 0, 0, {}},   // 64 bytes
                   {"second.weight", {32}, 8, 64, {}}};  // Q8_0: 34 bytes
    raw.data_bytes = 64 + 34;
    return raw;
}

/// The header with the memory its views refer to.
struct Parsed {
    HeaderBytes bytes;
    GgufResult<GgufHeader> header;

    explicit Parsed(Bytes raw, const GgufOptions& options = {})
        : bytes("test.gguf", std::move(raw)), header(parse_header(bytes, options)) {}
};

/// The error's text, or "" for a good file.
inline std::string error_of(Bytes raw) {
    const Parsed parsed(std::move(raw));
    return parsed.header ? "" : parsed.header.error().text();
}
inline std::string error_of(const RawGguf& raw) {
    return error_of(raw.bytes());
}

/// A folder of its own, removed with everything in it. In memory where possible: the writer syncs
/// each file, which takes a tenth of a second on a slow disk.
class TempFolder {
public:
    TempFolder() {
        const bool has_memory = ::access("/dev/shm", W_OK) == 0;
        std::string pattern = (has_memory ? "/dev/shm/" : testing::TempDir()) + "gguf-XXXXXX";
        path_ = ::mkdtemp(pattern.data());
    }
    ~TempFolder() { std::filesystem::remove_all(path_); }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
    std::size_t file_count() const {
        return static_cast<std::size_t>(
            std::distance(std::filesystem::directory_iterator(path_), {}));
    }

private:
    std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const Bytes& bytes) {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(out.good());
}

inline Bytes read_file(const std::filesystem::path& path) {
    Bytes bytes(std::filesystem::file_size(path));
    std::ifstream in(path, std::ios::binary);
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return bytes;
}

}  // namespace replica::test

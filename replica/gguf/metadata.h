// The key/value part of a GGUF file.
//
// Values stay where they are, in one private copy of the file's header; an entry is a type and a
// range of it. So a vocabulary of 248,320 strings costs one read and no allocation per string, and
// every string_view given out lives as long as the GgufFile, whatever happens to the file on disk.
//
// Readers are lenient about numeric types and strict about values: any integer type serves an
// integer key when the value fits, f32 or f64 a float key, bool or integer 0/1 a bool key; a
// per-layer value may be one scalar for all layers or an array with exactly one entry per layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/gguf/error.h"

namespace replica {

/// Value types; the numbers are the file's.
enum class GgufType : std::uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
};

/// "u32"; "invalid" for numbers outside the enumeration.
std::string_view name_of(GgufType type);

/// Bytes of one value of a fixed size; 0 for strings and arrays.
std::size_t fixed_size_of(GgufType type);

/// One key with the encoded bytes of its value (of an array: of its elements).
struct GgufEntry {
    std::string_view key;
    GgufType type = GgufType::kU8;
    GgufType element_type = GgufType::kU8;  // of an array; else equal to `type`
    std::uint64_t count = 1;                // elements of an array
    std::span<const std::byte> bytes;
};

/// Read-only, safe from many threads. Views point into the owning GgufFile.
class GgufMetadata {
public:
    GgufMetadata() = default;
    /// `file` names the file in errors. The parser has validated the entries; keys are unique.
    GgufMetadata(std::string file, std::vector<GgufEntry> entries);

    std::span<const GgufEntry> entries() const { return entries_; }
    const GgufEntry* find(std::string_view key) const;
    bool contains(std::string_view key) const { return find(key) != nullptr; }

    // Scalars: kMissing without the key, kWrongValue when the value does not convert.
    GgufResult<std::uint32_t> get_u32(std::string_view key) const;
    GgufResult<std::int32_t> get_i32(std::string_view key) const;
    GgufResult<std::uint64_t> get_u64(std::string_view key) const;
    GgufResult<float> get_f32(std::string_view key) const;
    GgufResult<bool> get_bool(std::string_view key) const;
    GgufResult<std::string_view> get_string(std::string_view key) const;

    // The same with a value for absent keys; a present key that does not convert is an error still.
    GgufResult<std::uint32_t> get_u32_or(std::string_view key, std::uint32_t absent) const;
    GgufResult<std::int32_t> get_i32_or(std::string_view key, std::int32_t absent) const;
    GgufResult<float> get_f32_or(std::string_view key, float absent) const;
    GgufResult<bool> get_bool_or(std::string_view key, bool absent) const;
    GgufResult<std::string_view> get_string_or(std::string_view key, std::string_view absent) const;

    // Arrays. Strings come as views in O(total length).
    GgufResult<std::vector<std::string_view>> get_strings(std::string_view key) const;
    GgufResult<std::vector<std::int32_t>> get_i32s(std::string_view key) const;
    GgufResult<std::vector<std::uint32_t>> get_u32s(std::string_view key) const;
    GgufResult<std::vector<float>> get_f32s(std::string_view key) const;

    // Per layer: a scalar is repeated, an array must have exactly `layers` entries.
    GgufResult<std::vector<std::uint32_t>> get_u32_per_layer(std::string_view key,
                                                             std::size_t layers) const;
    GgufResult<std::vector<std::uint32_t>> get_u32_per_layer_or(std::string_view key,
                                                                std::size_t layers,
                                                                std::uint32_t absent) const;
    GgufResult<std::vector<bool>> get_bool_per_layer(std::string_view key,
                                                     std::size_t layers) const;

    /// An error about `key` in this file, for rules the caller checks itself.
    GgufError error_about(std::string_view key, std::string why, std::string fix = "") const;

private:
    template <class T>
    GgufResult<T> scalar(std::string_view key) const;
    template <class T>
    GgufResult<std::vector<T>> array(std::string_view key) const;
    template <class T>
    GgufResult<std::vector<T>> per_layer(std::string_view key, std::size_t layers) const;
    GgufResult<const GgufEntry*> required(std::string_view key) const;

    std::string file_;
    std::vector<GgufEntry> entries_;
    std::vector<std::size_t> by_key_;  // indices into entries_, sorted by key
};

}  // namespace replica

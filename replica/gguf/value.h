// Single values of the key/value part, out of their encoded bytes. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "replica/gguf/metadata.h"

namespace replica {

/// Any number of a file, without loss.
using GgufNumber = std::variant<std::uint64_t, std::int64_t, float, double, bool>;

/// The number of type `type` (of fixed size) at `at`.
GgufNumber number_at(GgufType type, const std::byte* at);

/// The string whose length field is at `at`; it ends at result.data() + result.size().
std::string_view string_at(const std::byte* at);

/// "f32", "array of 3 i32".
std::string type_text(const GgufEntry& entry);

/// The value as JSON would write it; at most `elements_max` elements of an array and
/// `string_bytes_max` bytes of each string, the rest shown as "...".
std::string value_text(const GgufEntry& entry, std::size_t elements_max,
                       std::size_t string_bytes_max);

}  // namespace replica

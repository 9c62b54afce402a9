#include "replica/gguf/value.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cstring>
#include <iterator>
#include <type_traits>

#include <nlohmann/json.hpp>

namespace replica {
namespace {

template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

std::string number_text(const GgufNumber& number) {
    return std::visit(
        [](auto value) -> std::string {
            if constexpr (std::is_same_v<decltype(value), bool>) {
                return value ? "true" : "false";
            } else {
                std::array<char, 32> text;  // the longest double takes 24
                const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
                return {text.data(), end};
            }
        },
        number);
}

/// JSON lets DEL and the controls U+0080 to U+009F stand in a string; a terminal obeys them.
std::string without_controls(std::string_view json) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string text;
    const auto append_escape = [&](char c) {
        const auto byte = static_cast<unsigned char>(c);
        text.append("\\u00").append(1, kHex[byte >> 4U]).append(1, kHex[byte & 0xFU]);
    };
    for (std::size_t i = 0; i < json.size(); ++i) {
        const bool is_pair = json[i] == '\xC2' && i + 1 < json.size();
        if (is_pair && static_cast<unsigned char>(json[i + 1]) < 0xA0) {
            append_escape(json[++i]);
        } else if (json[i] == '\x7F') {
            append_escape(json[i]);
        } else {
            text += json[i];
        }
    }
    return text;
}

std::string string_text(std::string_view string, std::size_t bytes_max) {
    const bool is_cut = string.size() > bytes_max;
    const std::string shown = std::string(string.substr(0, bytes_max)) + (is_cut ? "..." : "");
    return without_controls(
        nlohmann::json(shown).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

std::string_view name_of(GgufType type) {
    static constexpr std::string_view kNames[] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                  "i32", "f32", "bool", "string", "array",
                                                  "u64", "i64", "f64"};
    const auto index = static_cast<std::size_t>(type);
    return index < std::size(kNames) ? kNames[index] : "invalid";
}

std::size_t fixed_size_of(GgufType type) {
    static constexpr std::size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    const auto index = static_cast<std::size_t>(type);
    return index < std::size(kSizes) ? kSizes[index] : 0;
}

GgufNumber number_at(GgufType type, const std::byte* at) {
    switch (type) {
        case GgufType::kU8:
            return std::uint64_t{load<std::uint8_t>(at)};
        case GgufType::kI8:
            return std::int64_t{load<std::int8_t>(at)};
        case GgufType::kU16:
            return std::uint64_t{load<std::uint16_t>(at)};
        case GgufType::kI16:
            return std::int64_t{load<std::int16_t>(at)};
        case GgufType::kU32:
            return std::uint64_t{load<std::uint32_t>(at)};
        case GgufType::kI32:
            return std::int64_t{load<std::int32_t>(at)};
        case GgufType::kU64:
            return load<std::uint64_t>(at);
        case GgufType::kI64:
            return load<std::int64_t>(at);
        case GgufType::kF32:
            return load<float>(at);
        case GgufType::kF64:
            return load<double>(at);
        case GgufType::kBool:
            return load<std::uint8_t>(at) != 0;
        case GgufType::kString:
        case GgufType::kArray:
            break;
    }
    assert(false && "a type of fixed size");
    return false;
}

std::string_view string_at(const std::byte* at) {
    return {reinterpret_cast<const char*>(at + sizeof(std::uint64_t)), load<std::uint64_t>(at)};
}

std::string type_text(const GgufEntry& entry) {
    if (entry.type != GgufType::kArray) return std::string(name_of(entry.type));
    return "array of " + std::to_string(entry.count) + " " +
           std::string(name_of(entry.element_type));
}

std::string value_text(const GgufEntry& entry, std::size_t elements_max,
                       std::size_t string_bytes_max) {
    const std::size_t limit = entry.type == GgufType::kArray ? elements_max : 1;
    const std::size_t shown = std::min<std::size_t>(entry.count, limit);
    const std::byte* at = entry.bytes.data();
    std::string text;
    for (std::size_t i = 0; i < shown; ++i) {
        if (i > 0) text += ", ";
        if (entry.element_type == GgufType::kString) {
            const std::string_view string = string_at(at);
            text += string_text(string, string_bytes_max);
            at += sizeof(std::uint64_t) + string.size();
        } else {
            text += number_text(number_at(entry.element_type, at));
            at += fixed_size_of(entry.element_type);
        }
    }
    if (entry.type != GgufType::kArray) return text;
    if (shown < entry.count) text += shown > 0 ? ", ..." : "...";
    return "[" + text + "]";
}

}  // namespace replica

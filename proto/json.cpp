#include "proto/json.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/utf8.h"

namespace proto {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Bytes that stand for themselves inside a JSON string.
constexpr std::array<bool, 256> make_plain_table() {
    std::array<bool, 256> plain{};
    for (std::size_t byte = 0x20; byte < 0x80; ++byte)
        plain[byte] = byte != '"' && byte != '\\';
    return plain;
}
constexpr std::array<bool, 256> kPlain = make_plain_table();

void append_escape(std::string& out, char c) {
    constexpr std::string_view kHex = "0123456789abcdef";
    switch (c) {
        case '"':
            out += "\\\"";
            return;
        case '\\':
            out += "\\\\";
            return;
        case '\n':
            out += "\\n";
            return;
        case '\r':
            out += "\\r";
            return;
        case '\t':
            out += "\\t";
            return;
        case '\b':
            out += "\\b";
            return;
        case '\f':
            out += "\\f";
            return;
        default:
            break;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += "\\u00";
    out += kHex[byte >> 4U];
    out += kHex[byte & 0xFU];
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    std::size_t position = 0;
    while (position < text.size()) {
        std::size_t end = position;
        while (end < text.size() && kPlain[static_cast<unsigned char>(text[end])])
            ++end;
        out.append(text, position, end - position);
        position = end;
        if (position == text.size()) break;
        if (static_cast<unsigned char>(text[position]) < 0x80) {
            append_escape(out, text[position]);
            ++position;
            continue;
        }
        const std::size_t length = utf8_sequence_length(text.substr(position));
        if (length == 0) {
            out += kReplacement;
            position += utf8_broken_length(text.substr(position));
        } else {
            out.append(text, position, length);
            position += length;
        }
    }
    out += '"';
}

std::string json_string(std::string_view text) {
    std::string out;
    out.reserve(text.size() + 2);
    append_json_string(out, text);
    return out;
}

std::string json_text(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace proto

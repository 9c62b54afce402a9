#include "replica/chat/jinja/string_literal.h"

#include <cstdint>

#include "replica/chat/jinja/unicode.h"

namespace replica::chat::jinja {

namespace {

int digit_value(char c, int base) {
    int value = 99;
    if (c >= '0' && c <= '9') value = c - '0';
    if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
    if (c >= 'A' && c <= 'F') value = c - 'A' + 10;
    return value < base ? value : -1;
}

std::optional<char32_t> read_hex(std::string_view body, std::size_t at, std::size_t digits) {
    if (at + digits > body.size()) return std::nullopt;
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
        const int digit = digit_value(body[at + i], 16);
        if (digit < 0) return std::nullopt;
        value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
}

/// \uXXXX, and a second one when the first is the high half of a pair.
bool append_unicode(std::string& out, std::string_view body, std::size_t& at, std::size_t digits) {
    std::optional<char32_t> value = read_hex(body, at, digits);
    if (!value) return false;
    at += digits;
    if (*value >= 0xD800 && *value < 0xDC00 && body.substr(at, 2) == "\\u") {
        const std::optional<char32_t> low = read_hex(body, at + 2, 4);
        if (!low || *low < 0xDC00 || *low > 0xDFFF) return false;
        value = 0x10000 + ((*value - 0xD800) << 10U) + (*low - 0xDC00);
        at += 6;
    }
    if (*value > 0x10FFFF || (*value >= 0xD800 && *value <= 0xDFFF)) return false;
    append_utf8(out, *value);
    return true;
}

void append_octal(std::string& out, std::string_view body, std::size_t& at) {
    char32_t value = 0;
    for (int i = 0; i < 3 && at < body.size() && digit_value(body[at], 8) >= 0; ++i, ++at) {
        value = value * 8 + static_cast<char32_t>(digit_value(body[at], 8));
    }
    append_utf8(out, value);
}

/// The character a one-letter escape stands for; '\0' for none.
char simple_escape(char letter) {
    switch (letter) {
        case 'n':
            return '\n';
        case 't':
            return '\t';
        case 'r':
            return '\r';
        case 'a':
            return '\a';
        case 'b':
            return '\b';
        case 'f':
            return '\f';
        case 'v':
            return '\v';
        case '\\':
        case '\'':
        case '"':
            return letter;
        default:
            return '\0';
    }
}

}  // namespace

std::optional<std::string> resolve_escapes(std::string_view body) {
    std::string out;
    out.reserve(body.size());
    for (std::size_t at = 0; at < body.size();) {
        if (body[at] != '\\') {
            out += body[at++];
            continue;
        }
        if (at + 1 >= body.size()) return std::nullopt;
        const char letter = body[at + 1];
        at += 2;
        if (const char simple = simple_escape(letter); simple != '\0') {
            out += simple;
        } else if (letter == 'x' || letter == 'u' || letter == 'U') {
            const std::size_t digits = letter == 'x' ? 2 : (letter == 'u' ? 4 : 8);
            if (!append_unicode(out, body, at, digits)) return std::nullopt;
        } else if (digit_value(letter, 8) >= 0) {
            --at;
            append_octal(out, body, at);
        } else if (letter == 'N') {
            return std::nullopt;
        } else if (letter != '\n') {  // a backslash at the end of a line joins the lines
            out += '\\';
            out += letter;
        }
    }
    return out;
}

}  // namespace replica::chat::jinja

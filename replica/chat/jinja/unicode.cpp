#include "replica/chat/jinja/unicode.h"

#include <algorithm>

#include <utf8proc.h>

namespace replica::chat::jinja {

namespace {

utf8proc_category_t category_of(char32_t value) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

std::string_view::const_iterator first_beyond_ascii(std::string_view text) {
    return std::find_if(text.begin(), text.end(),
                        [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

}  // namespace

CodePoint decode_at(std::string_view text, std::size_t at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) return {first, 1};
    utf8proc_int32_t value = -1;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                         static_cast<utf8proc_ssize_t>(text.size() - at), &value);
    if (bytes <= 0) return {first, 1};
    return {static_cast<char32_t>(value), static_cast<std::size_t>(bytes)};
}

std::size_t previous_character(std::string_view text, std::size_t end) {
    const std::size_t lowest = end > 4 ? end - 4 : 0;
    for (std::size_t at = end - 1; at + 1 > lowest; --at) {
        if ((static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U) {
            return at + decode_at(text, at).bytes == end ? at : end - 1;
        }
        if (at == 0) break;
    }
    return end - 1;
}

void append_utf8(std::string& out, char32_t value) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

bool is_valid_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = decode_at(text, at);
        if (point.bytes == 1 && static_cast<unsigned char>(text[at]) >= 0x80) return false;
        at += point.bytes;
    }
    return true;
}

bool is_ascii(std::string_view text) {
    return first_beyond_ascii(text) == text.end();
}

std::size_t count_code_points(std::string_view text) {
    std::size_t count = 0;
    for (std::size_t at = 0; at < text.size(); at += decode_at(text, at).bytes)
        ++count;
    return count;
}

bool is_space(char32_t value) {
    if (value < 0x80)
        return value == ' ' || (value >= 9 && value <= 13) || (value >= 28 && value <= 31);
    if (value == 0x85) return true;
    const utf8proc_category_t category = category_of(value);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP;
}

bool is_printable(char32_t value) {
    if (value < 0x80) return value >= 0x20 && value != 0x7F;
    switch (category_of(value)) {
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS:
            return false;
        default:
            return true;
    }
}

bool is_cased(char32_t value) {
    const utf8proc_category_t category = category_of(value);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

bool is_name_byte(char byte) {
    const auto c = static_cast<unsigned char>(byte);
    return c >= 0x80 || c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

char32_t to_upper(char32_t value) {
    if (value == 0xDF) return value;  // its simple mapping is itself; the library answers U+1E9E
    return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(value)));
}

char32_t to_lower(char32_t value) {
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value)));
}

char32_t to_title(char32_t value) {
    if (value == 0xDF) return value;
    return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(value)));
}

}  // namespace replica::chat::jinja

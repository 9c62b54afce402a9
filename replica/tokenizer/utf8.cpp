#include "replica/tokenizer/utf8.h"

#include <array>
#include <cassert>

#include <utf8proc.h>

namespace replica {
namespace {

/// How a lead byte goes on: how many bytes follow and the range of the first of them, which is
/// what excludes overlong forms, surrogates and code points above U+10FFFF (table 3-7).
struct Lead {
    std::size_t following;
    unsigned char first_min, first_max;
};

Lead lead_of(unsigned char byte) {
    if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
    if (byte == 0xE0) return {2, 0xA0, 0xBF};
    if (byte == 0xED) return {2, 0x80, 0x9F};
    if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
    if (byte == 0xF0) return {3, 0x90, 0xBF};
    if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
    if (byte == 0xF4) return {3, 0x80, 0x8F};
    return {0, 0, 0};
}

bool is_space(char32_t c) {
    if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

CharClass class_from_tables(char32_t c) {
    if (is_space(c)) return CharClass::kSpace;
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
            return CharClass::kLetter;
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
            return CharClass::kMark;
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_NO:
            return CharClass::kNumber;
        case UTF8PROC_CATEGORY_PC:
        case UTF8PROC_CATEGORY_PD:
        case UTF8PROC_CATEGORY_PS:
        case UTF8PROC_CATEGORY_PE:
        case UTF8PROC_CATEGORY_PI:
        case UTF8PROC_CATEGORY_PF:
        case UTF8PROC_CATEGORY_PO:
            return CharClass::kPunctuation;
        default:
            return CharClass::kOther;
    }
}

}  // namespace

Utf8Step decode_utf8(std::string_view text, std::size_t position) {
    assert(position < text.size() && "a character begins inside the text");
    const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte_at(position);
    if (first < 0x80) return {Utf8Status::kWhole, first, 1};
    const Lead lead = lead_of(first);
    if (lead.following == 0) return {Utf8Status::kInvalid, 0, 1};
    char32_t code_point = first & (0x3FU >> lead.following);
    for (std::size_t i = 1; i <= lead.following; ++i) {
        if (position + i == text.size()) return {Utf8Status::kIncomplete, 0, i};
        const unsigned char byte = byte_at(position + i);
        const unsigned char low = i == 1 ? lead.first_min : 0x80;
        const unsigned char high = i == 1 ? lead.first_max : 0xBF;
        if (byte < low || byte > high) return {Utf8Status::kInvalid, 0, i};
        code_point = (code_point << 6) | (byte & 0x3FU);
    }
    return {Utf8Status::kWhole, code_point, lead.following + 1};
}

void append_utf8(char32_t c, std::string& text) {
    assert(c <= 0x10FFFF && "a Unicode code point");
    const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (c < 0x80) {
        put(c);
    } else if (c < 0x800) {
        put(0xC0 | (c >> 6));
        put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        put(0xE0 | (c >> 12));
        put(0x80 | ((c >> 6) & 0x3F));
        put(0x80 | (c & 0x3F));
    } else {
        put(0xF0 | (c >> 18));
        put(0x80 | ((c >> 12) & 0x3F));
        put(0x80 | ((c >> 6) & 0x3F));
        put(0x80 | (c & 0x3F));
    }
}

CharClass char_class(char32_t c) {
    static const std::array<CharClass, 128> ascii = [] {
        std::array<CharClass, 128> classes{};
        for (char32_t i = 0; i < 128; ++i)
            classes[i] = class_from_tables(i);
        return classes;
    }();
    return c < 128 ? ascii[c] : class_from_tables(c);
}

}  // namespace replica

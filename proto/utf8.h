// utf8: the shape of UTF-8, for checks of untrusted text (RFC 3629: no surrogates, no overlong
// forms, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <string_view>

namespace proto {

/// Bytes of the valid sequence at the start of `text`; 0 when there is none (or no text).
constexpr std::size_t utf8_sequence_length(std::string_view text) {
    if (text.empty()) return 0;
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto is_tail = [&](std::size_t i) {
        return i < text.size() && (byte(i) & 0xC0U) == 0x80U;
    };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return is_tail(1) ? 2 : 0;
    if (lead < 0xF0) {
        if (!is_tail(1) || !is_tail(2)) return 0;
        if (lead == 0xE0 && byte(1) < 0xA0) return 0;
        if (lead == 0xED && byte(1) >= 0xA0) return 0;  // a surrogate
        return 3;
    }
    if (lead < 0xF5) {
        if (!is_tail(1) || !is_tail(2) || !is_tail(3)) return 0;
        if (lead == 0xF0 && byte(1) < 0x90) return 0;
        if (lead == 0xF4 && byte(1) >= 0x90) return 0;
        return 4;
    }
    return 0;
}

/// Bytes that one U+FFFD replaces at a broken place: the longest beginning of a valid sequence, at
/// least one (the practice of the Unicode standard, section 3.9).
constexpr std::size_t utf8_broken_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto in = [&](std::size_t i, unsigned low, unsigned high) {
        return i < text.size() && byte(i) >= low && byte(i) <= high;
    };
    const unsigned char lead = byte(0);
    if (lead >= 0xE0 && lead <= 0xEF) {
        const unsigned low = lead == 0xE0 ? 0xA0U : 0x80U;
        const unsigned high = lead == 0xED ? 0x9FU : 0xBFU;
        return in(1, low, high) ? 2 : 1;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        const unsigned low = lead == 0xF0 ? 0x90U : 0x80U;
        const unsigned high = lead == 0xF4 ? 0x8FU : 0xBFU;
        if (!in(1, low, high)) return 1;
        return in(2, 0x80U, 0xBFU) ? 3 : 2;
    }
    return 1;
}

/// The position of the first byte that breaks UTF-8; npos when there is none.
constexpr std::size_t find_broken_utf8(std::string_view text) {
    std::size_t position = 0;
    while (position < text.size()) {
        const std::size_t length = utf8_sequence_length(text.substr(position));
        if (length == 0) return position;
        position += length;
    }
    return std::string_view::npos;
}

}  // namespace proto

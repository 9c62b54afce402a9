// Code points of UTF-8 text, and the character classes Python strings go by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace replica::chat::jinja {

/// A code point and the bytes it takes. A byte that begins no character counts as one of its own.
struct CodePoint {
    char32_t value = 0;
    std::size_t bytes = 1;
};

/// The character at `at`, which is below text.size().
CodePoint decode_at(std::string_view text, std::size_t at);
/// The first byte of the character that ends before `end`, which is above 0.
std::size_t previous_character(std::string_view text, std::size_t end);
void append_utf8(std::string& out, char32_t value);
bool is_valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);
std::size_t count_code_points(std::string_view text);

/// Whitespace of str.strip: Unicode's, U+001C to U+001F and U+0085.
bool is_space(char32_t value);
/// What repr shows as it is: not in the categories C*, Zl, Zp, Zs, and the space.
bool is_printable(char32_t value);
/// Letters with case, for title().
bool is_cased(char32_t value);
/// May stand in a name: letters, digits, underscore, and anything beyond ASCII.
bool is_name_byte(char byte);

// Simple one-to-one mappings.
char32_t to_upper(char32_t value);
char32_t to_lower(char32_t value);
char32_t to_title(char32_t value);

}  // namespace replica::chat::jinja

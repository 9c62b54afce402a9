// UTF-8, one character at a time, and the Unicode classes the pre-tokenisers ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace replica {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

enum class Utf8Status {
    kWhole,       // a character
    kIncomplete,  // the text ends inside what may still become a character
    kInvalid,     // cannot be part of a character
};

/// What stands at one position. `length` is the character's length, or the length of the maximal
/// ill-formed part (Unicode 15, section 3.9, table 3-8): 1..4 bytes.
struct Utf8Step {
    Utf8Status status = Utf8Status::kWhole;
    char32_t code_point = 0;  // valid for kWhole
    std::size_t length = 0;
};

/// Precondition: position < text.size().
Utf8Step decode_utf8(std::string_view text, std::size_t position);

void append_utf8(char32_t code_point, std::string& text);

enum class CharClass : std::uint8_t { kOther, kLetter, kMark, kNumber, kPunctuation, kSpace };

/// General category of Unicode, reduced; kSpace is White_Space, which is not a category.
CharClass char_class(char32_t code_point);

}  // namespace replica

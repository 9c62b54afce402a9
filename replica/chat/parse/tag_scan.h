// Reading tags at the front of undecided text. Every reader answers with one of three: it is not
// there, it may still become it, it is there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace replica::chat::parse {

enum class Fit { kNo, kPartial, kFull };

inline constexpr std::size_t kNameBytesMax = 256;

/// Whitespace of the formats: space, tab, CR, LF.
inline bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
/// The first byte from `at` that is no whitespace; text.size() when there is none.
std::size_t skip_space(std::string_view text, std::size_t at);
/// The first byte from `at` that is whitespace or `<`.
std::size_t skip_plain(std::string_view text, std::size_t at);

/// A position in undecided text that moves over what was read.
struct Cursor {
    std::string_view text;
    std::size_t at = 0;

    bool is_at_end() const { return at >= text.size(); }
    void skip_whitespace() { at = skip_space(text, at); }
    /// `literal` at the position; moves behind it when it is there in full.
    Fit read(std::string_view literal);
    /// `<function=NAME>` or `<parameter=KEY>` after its `=` was read: 1 to 256 bytes without `>`
    /// and line break, then `>`. `name` comes trimmed and without one pair of double quotes.
    Fit read_name(std::string& name);
    /// `</name>` of any name.
    Fit read_close_tag();
};

}  // namespace replica::chat::parse

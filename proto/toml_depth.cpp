#include "proto/toml_depth.h"

#include <algorithm>

namespace proto {
namespace {

/// Where a string that begins at `at` ends: behind its closing quotes, or at the end of a line that
/// no string may cross (the parser then says so).
std::size_t end_of_string(std::string_view text, std::size_t at) {
    const char quote = text[at];
    const bool has_escapes = quote == '"';
    const std::string triple(3, quote);
    const bool is_long = text.substr(at, 3) == triple;
    at += is_long ? 3 : 1;
    for (; at < text.size(); ++at) {
        if (has_escapes && text[at] == '\\') {
            ++at;
        } else if (is_long) {
            if (text.substr(at, 3) == triple) return at + 3;
        } else if (text[at] == quote) {
            return at + 1;
        } else if (text[at] == '\n') {
            return at;
        }
    }
    return text.size();
}

}  // namespace

std::optional<std::string> toml_depth_error(std::string_view text) {
    int dots = 0;
    int brackets = 0;
    const auto error = [&](std::size_t at, const char* what) {
        const auto line =
            1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
        return "line " + std::to_string(line) + ": " + what;
    };
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        if (c == '"' || c == '\'') {
            at = end_of_string(text, at);
            continue;
        }
        if (c == '#') {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        if (c == '\n') dots = 0;
        if (c == '.' && ++dots > kTomlKeyDotsMax) return error(at, "more than 32 dots in it");
        if ((c == '[' || c == '{') && ++brackets > kTomlBracketsMax) {
            return error(at, "more than 32 brackets inside each other");
        }
        if ((c == ']' || c == '}') && brackets > 0) --brackets;
        ++at;
    }
    return std::nullopt;
}

}  // namespace proto

// toml_depth: a look at a TOML text before a parser sees it. The parser builds a table inside a
// table for each part of a key, and takes them apart by recursion: a name of fifty thousand parts
// would end the process. Nothing of ours nests deeper than three.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace proto {

inline constexpr int kTomlKeyDotsMax = 32;   // outside of strings, on one line
inline constexpr int kTomlBracketsMax = 32;  // open at once, [ and {

/// What is nested too deeply, and on which line; none when a parser may read it.
std::optional<std::string> toml_depth_error(std::string_view text);

}  // namespace proto

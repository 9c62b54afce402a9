// Escapes in string literals, those of Python's "unicode-escape".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace replica::chat::jinja {

/// The value of a literal's inside; a backslash before any other letter stays. Nothing when an
/// escape is cut short, names a character by name, or gives half of a surrogate pair.
std::optional<std::string> resolve_escapes(std::string_view body);

}  // namespace replica::chat::jinja

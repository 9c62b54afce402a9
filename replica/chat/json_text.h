// JSON text of a client or a model. The library alone ends quietly at a NUL and takes any depth,
// while copying a tree takes stack for each of its levels.
#pragma once

#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "replica/chat/template.h"

namespace replica::chat {

/// Levels of arrays and objects; as many as a request body may have.
inline constexpr int kJsonTextDepthMax = 128;

/// Whether all of `text` is one JSON value, of any depth.
bool is_json(std::string_view text);

/// The value, unless it is none or deeper than kJsonTextDepthMax.
std::optional<Json> parse_json(std::string_view text);

}  // namespace replica::chat

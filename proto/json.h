// json: the one JSON tree type of the house. Objects keep their key order.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace proto {

using Json = nlohmann::ordered_json;

/// Appends `text` as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
/// The same, as a value.
std::string json_string(std::string_view text);

/// Compact text of a tree; broken UTF-8 becomes U+FFFD instead of an exception.
std::string json_text(const Json& value);

}  // namespace proto

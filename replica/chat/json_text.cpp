#include "replica/chat/json_text.h"

namespace replica::chat {

namespace {

bool is_too_deep(std::string_view text) {
    int depth = 0;
    bool in_string = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (in_string && c == '\\') {
            ++at;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == '[' || c == '{')) {
            if (++depth > kJsonTextDepthMax) return true;
        } else if (!in_string && (c == ']' || c == '}')) {
            --depth;
        }
    }
    return false;
}

bool has_nul(std::string_view text) {
    return text.find('\0') != std::string_view::npos;
}

}  // namespace

bool is_json(std::string_view text) {
    return !has_nul(text) && Json::accept(text);
}

std::optional<Json> parse_json(std::string_view text) {
    if (has_nul(text) || is_too_deep(text)) return std::nullopt;
    Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) return std::nullopt;
    return value;
}

}  // namespace replica::chat

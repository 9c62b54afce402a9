#include "router/cors.h"

#include <algorithm>

namespace router {
namespace {

/// Of the fields that a page asks for; more is no honest question.
constexpr std::size_t kRequestedBytesMax = 1024;
constexpr const char* kMaxAge = "600";  // seconds a browser may remember the answer
/// What a page may read beside the few fields that it always may.
constexpr const char* kExposed =
    "x-request-id, x-quadriga-decision, x-quadriga-instance, x-quadriga-warning, retry-after";

bool is_name_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == ':' ||
           c == '[' || c == ']';
}

/// A list of field names and nothing else; it is sent back.
bool is_field_list(std::string_view text) {
    return text.size() <= kRequestedBytesMax && std::ranges::all_of(text, [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '-' || c == '_' || c == ',' || c == ' ';
           });
}

}  // namespace

bool is_origin(std::string_view text) {
    if (text == "*") return true;
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!text.starts_with(scheme)) continue;
        const std::string_view host = text.substr(scheme.size());
        return !host.empty() && std::ranges::all_of(host, is_name_char);
    }
    return false;
}

proto::Headers Cors::fields(const proto::HttpRequestHead& head, const std::string& allow) const {
    proto::Headers fields;
    if (!is_on()) return fields;
    const bool is_for_all = std::ranges::find(origins_, "*") != origins_.end();
    // An answer differs by origin, so a cache on the way must keep them apart.
    if (!is_for_all) fields.add("vary", "origin");
    const std::string_view origin = head.headers.get("origin");
    const bool is_known = std::ranges::find(origins_, origin) != origins_.end();
    if (origin.empty() || (!is_known && !is_for_all)) return fields;
    fields.add("access-control-allow-origin", is_for_all ? "*" : std::string(origin));
    if (head.method != "OPTIONS" || !head.headers.contains("access-control-request-method")) {
        fields.add("access-control-expose-headers", kExposed);
        return fields;
    }
    fields.add("access-control-allow-methods", allow);
    const std::string_view wanted = head.headers.get("access-control-request-headers");
    if (!wanted.empty() && is_field_list(wanted)) {
        fields.add("access-control-allow-headers", std::string(wanted));
    }
    fields.add("access-control-max-age", kMaxAge);
    return fields;
}

}  // namespace router

// Which web pages may call this server: the fields by which a browser is told (the Fetch standard,
// "CORS protocol"). Off unless origins are named. No cookies are in use, so credentials are never
// allowed; a page sends its key as any other client does. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/http_message.h"

namespace router {

/// "*", or scheme://host[:port] in lower case without anything behind.
[[nodiscard]] bool is_origin(std::string_view text);

class Cors {
public:
    explicit Cors(const std::vector<std::string>& origins) : origins_(origins) {}

    /// Fields for every answer to this request; none when no page of that origin may read it.
    /// `allow`: the methods of its path, for the question that a browser asks before the request.
    [[nodiscard]] proto::Headers fields(const proto::HttpRequestHead& head,
                                        const std::string& allow) const;
    [[nodiscard]] bool is_on() const { return !origins_.empty(); }

private:
    const std::vector<std::string>& origins_;  // of the settings, which outlive it
};

}  // namespace router

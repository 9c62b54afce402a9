// route_table: exact paths to handlers, with the answers every HTTP service owes: 404 unknown_url,
// 405 with Allow, HEAD where GET exists, OPTIONS 204 with Allow.
//
// Paths are compared byte by byte and never decoded. A path that ends in "/{name}" matches any
// non-empty rest, slashes included (model ids have them).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "proto/http_server.h"

namespace proto {

/// Gets the exchange and the part of the path that stood for "{name}" (empty for exact routes).
using RouteHandler = std::function<boost::asio::awaitable<void>(HttpExchange&, std::string rest)>;

class RouteTable {
public:
    void add(std::string method, std::string path, RouteHandler handler);

    /// The answer for requests that no route takes, for the admit hook: OPTIONS, 404, 405; none
    /// when a route takes it.
    [[nodiscard]] std::optional<HttpResponse> refuse(std::string_view method,
                                                     std::string_view path) const;

    /// Methods of a path, as in the field Allow; empty for an unknown path.
    [[nodiscard]] std::string allow(std::string_view path) const;

    /// Runs the route's handler, or sends what refuse() says.
    [[nodiscard]] boost::asio::awaitable<void> serve(HttpExchange& exchange) const;

    /// The route's pattern ("/v1/models/{id}") as a bounded metric label; "other" for none.
    [[nodiscard]] std::string_view label(std::string_view path) const;

    struct Served {
        std::string_view method;   // HEAD and OPTIONS are understood
        std::string_view pattern;  // "/v1/models/{id}"
    };
    /// All that was added; valid until the next add().
    [[nodiscard]] std::vector<Served> served() const;

private:
    struct Route {
        std::string method;
        std::string path;
        bool is_prefix = false;  // path then ends in '/'
        std::string pattern;
        RouteHandler handler;
    };
    [[nodiscard]] const Route* find(std::string_view method, std::string_view path) const;

    std::vector<Route> routes_;
};

}  // namespace proto

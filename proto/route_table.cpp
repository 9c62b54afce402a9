#include "proto/route_table.h"

#include <algorithm>
#include <cassert>

namespace proto {

void RouteTable::add(std::string method, std::string path, RouteHandler handler) {
    Route route;
    route.method = std::move(method);
    route.pattern = path;
    route.handler = std::move(handler);
    if (path.ends_with('}')) {
        const std::size_t brace = path.rfind("/{");
        assert(brace != std::string::npos && "a pattern ends in /{name}");
        path.resize(brace + 1);
        route.is_prefix = true;
    }
    route.path = std::move(path);
    routes_.push_back(std::move(route));
}

namespace {

template <class Route>
bool matches(const Route& route, std::string_view path) {
    if (!route.is_prefix) return route.path == path;
    return path.size() > route.path.size() && path.starts_with(route.path);
}

}  // namespace

const RouteTable::Route* RouteTable::find(std::string_view method, std::string_view path) const {
    const auto found_by = [&](std::string_view wanted) -> const Route* {
        for (const Route& route : routes_) {
            if (route.method == wanted && matches(route, path)) return &route;
        }
        return nullptr;
    };
    const Route* route = found_by(method);
    if (route == nullptr && method == "HEAD") route = found_by("GET");
    return route;
}

std::string RouteTable::allow(std::string_view path) const {
    std::vector<std::string> methods;
    for (const Route& route : routes_) {
        if (path != "*" && !matches(route, path)) continue;
        methods.push_back(route.method);
        if (route.method == "GET") methods.emplace_back("HEAD");
    }
    if (methods.empty()) return {};
    methods.emplace_back("OPTIONS");
    std::ranges::sort(methods);
    methods.erase(std::unique(methods.begin(), methods.end()), methods.end());
    std::string text;
    for (const std::string& method : methods)
        text += (text.empty() ? "" : ", ") + method;
    return text;
}

std::optional<HttpResponse> RouteTable::refuse(std::string_view method,
                                               std::string_view path) const {
    if (find(method, path) != nullptr) return std::nullopt;
    std::string allowed = allow(path);
    const bool is_known_method =
        method == "OPTIONS" || method == "HEAD" ||
        std::ranges::any_of(routes_, [&](const Route& route) { return route.method == method; });
    HttpResponse response;
    if (method == "OPTIONS" && !allowed.empty()) {
        response.status = 204;
    } else if (allowed.empty() && is_known_method) {
        return error_response(
            {ErrorCode::kUnknownUrl, "There is nothing at " + printable(path) + ".", {}, {}, {}});
    } else {
        // CONNECT, TRACE and unknown methods are not allowed anywhere.
        if (allowed.empty()) allowed = allow("*");
        response = error_response({ErrorCode::kMethodNotAllowed,
                                   "The method " + printable(method, kMethodBytesMax) +
                                       " is not allowed here; allowed are " + allowed + ".",
                                   {},
                                   {},
                                   {}});
    }
    response.headers.add("Allow", std::move(allowed));
    return response;
}

boost::asio::awaitable<void> RouteTable::serve(HttpExchange& exchange) const {
    const std::string& path = exchange.request().path;
    const Route* route = find(exchange.request().method, path);
    if (route != nullptr) {
        std::string rest = route->is_prefix ? path.substr(route->path.size()) : std::string();
        co_await route->handler(exchange, std::move(rest));
        co_return;
    }
    std::optional<HttpResponse> refusal = refuse(exchange.request().method, path);
    assert(refusal && "find() and refuse() agree");
    co_await exchange.send(std::move(*refusal));
}

std::string_view RouteTable::label(std::string_view path) const {
    for (const Route& route : routes_) {
        if (matches(route, path)) return route.pattern;
    }
    return "other";
}

std::vector<RouteTable::Served> RouteTable::served() const {
    std::vector<Served> all;
    for (const Route& route : routes_)
        all.push_back({.method = route.method, .pattern = route.pattern});
    return all;
}

}  // namespace proto

// openapi: the OpenAPI 3.1 document of the HTTP API. Request schemas are made from the field table
// that validates requests, error codes from the error table, paths from the routes that serve them:
// the document cannot disagree with them.
#pragma once

#include <string>
#include <string_view>

namespace proto {

class RouteTable;

/// The text of /openapi.json; `version` is the build's. Every path of `routes` is there but the
/// dashboard's own and those under /internal/, which are no part of the API.
std::string openapi_json(std::string_view version, const RouteTable& routes);

}  // namespace proto

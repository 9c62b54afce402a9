// openapi: the OpenAPI 3.1 document of the HTTP API. Request schemas are made from the field table
// that validates requests, error codes from the error table: the document cannot disagree with
// them.
#pragma once

#include <string>
#include <string_view>

namespace proto {

/// The text of /openapi.json; `version` is the build's.
std::string openapi_json(std::string_view version);

}  // namespace proto

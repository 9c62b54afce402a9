#include "proto/error.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "proto/json.h"

namespace proto {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr std::string_view kServer = "server_error";

using enum ErrorCode;

constexpr std::array<ErrorInfo, kErrorCodeCount> kTable{{
    {kInvalidJson, "invalid_json", 400, kInvalidRequest},
    {kJsonTooDeep, "json_too_deep", 400, kInvalidRequest},
    {kDuplicateKey, "duplicate_key", 400, kInvalidRequest},
    {kMissingRequiredParameter, "missing_required_parameter", 400, kInvalidRequest},
    {kInvalidType, "invalid_type", 400, kInvalidRequest},
    {kInvalidValue, "invalid_value", 400, kInvalidRequest},
    {kUnsupportedParameter, "unsupported_parameter", 400, kInvalidRequest},
    {kUnsupportedValue, "unsupported_value", 400, kInvalidRequest},
    {kUnsupportedContent, "unsupported_content", 400, kInvalidRequest},
    {kUnsupportedToolType, "unsupported_tool_type", 400, kInvalidRequest},
    {kContextLengthExceeded, "context_length_exceeded", 400, kInvalidRequest},
    {kTemplateError, "template_error", 400, kInvalidRequest},
    {kTemplateLimit, "template_limit", 400, kInvalidRequest},
    {kInvalidSchema, "invalid_schema", 400, kInvalidRequest},
    {kInvalidRegex, "invalid_regex", 400, kInvalidRequest},
    {kInvalidGrammar, "invalid_grammar", 400, kInvalidRequest},
    {kUnsatisfiableConstraint, "unsatisfiable_constraint", 400, kInvalidRequest},
    {kConstraintTooLarge, "constraint_too_large", 400, kInvalidRequest},
    {kConflictingConstraints, "conflicting_constraints", 400, kInvalidRequest},
    {kBadRequest, "bad_request", 400, kInvalidRequest},
    {kInvalidApiKey, "invalid_api_key", 401, "authentication_error"},
    {kModelNotFound, "model_not_found", 404, kInvalidRequest},
    {kUnknownUrl, "unknown_url", 404, kInvalidRequest},
    {kMethodNotAllowed, "method_not_allowed", 405, kInvalidRequest},
    {kRequestTimeout, "request_timeout", 408, kInvalidRequest},
    {kBodyTooLarge, "body_too_large", 413, kInvalidRequest},
    {kUnsupportedMediaType, "unsupported_media_type", 415, kInvalidRequest},
    {kExpectationFailed, "expectation_failed", 417, kInvalidRequest},
    {kHeadersTooLarge, "headers_too_large", 431, kInvalidRequest},
    {kTransferEncodingUnsupported, "transfer_encoding_unsupported", 501, kServer},
    {kQueueFull, "queue_full", 429, "rate_limit_error"},
    {kQueueTimeout, "queue_timeout", 429, "rate_limit_error"},
    {kLoading, "loading", 503, "overloaded_error"},
    {kDraining, "draining", 503, "overloaded_error"},
    {kWedged, "wedged", 503, "overloaded_error"},
    {kNoReplicaReady, "no_replica_ready", 503, "overloaded_error"},
    {kEngineError, "engine_error", 500, kServer},
    {kConstraintDeadEnd, "constraint_dead_end", 500, kServer},
    {kInternalError, "internal_error", 500, kServer},
    {kReplicaLost, "replica_lost", 502, kServer},
    {kReplicaTimeout, "replica_timeout", 504, kServer},
}};

constexpr bool rows_are_in_enum_order() {
    for (std::size_t i = 0; i < kTable.size(); ++i) {
        if (static_cast<std::size_t>(kTable[i].code) != i) return false;
    }
    return true;
}
static_assert(rows_are_in_enum_order());

}  // namespace

const ErrorInfo& error_info(ErrorCode code) {
    const auto index = static_cast<std::size_t>(code);
    assert(index < kTable.size() && "an ErrorCode outside its enumeration");
    return kTable[index];
}

std::optional<ErrorCode> error_code_from_name(std::string_view name) {
    const auto row = std::ranges::find(kTable, name, &ErrorInfo::name);
    if (row == kTable.end()) return std::nullopt;
    return row->code;
}

std::string error_body(const ApiError& error) {
    const ErrorInfo& info = error_info(error.code);
    std::string body = R"({"error":{"message":)";
    append_json_string(body, error.message);
    body += R"(,"type":)";
    append_json_string(body, info.type);
    body += R"(,"param":)";
    if (error.param.empty()) {
        body += "null";
    } else {
        append_json_string(body, error.param);
    }
    body += R"(,"code":)";
    append_json_string(body, info.name);
    body += "}}";
    return body;
}

int retry_after_seconds(double wait_s, double spread) {
    const double spread_wait_s = wait_s * (1.0 + 0.5 * std::clamp(spread, 0.0, 1.0));
    if (!(spread_wait_s > 1.0)) return 1;  // also NaN
    return static_cast<int>(std::ceil(std::min(spread_wait_s, 60.0)));
}

std::string printable(std::string_view bytes, std::size_t bytes_max) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string out;
    for (const char c : bytes.substr(0, bytes_max)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte <= 0x7E) {
            out += c;
        } else {
            out += "\\x";
            out += kHex[byte >> 4U];
            out += kHex[byte & 0xFU];
        }
    }
    if (bytes.size() > bytes_max) out += "...";
    return out;
}

}  // namespace proto

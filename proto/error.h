// error: the one table from an error code to HTTP status and type, and the one error body.
//
//   {"error":{"message":"…","type":"invalid_request_error","param":"messages[3].content[1]","code":"…"}}
//
// A request that fails is a value: functions return Result<T>, whose error is an ApiError, and the
// server turns that into an answer with error_response() (http_message.h) or, when a stream has
// begun, into an `error` event with error_event() (sse.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace proto {

enum class ErrorCode {
    // the body
    kInvalidJson,
    kJsonTooDeep,
    kDuplicateKey,
    kMissingRequiredParameter,
    kInvalidType,
    kInvalidValue,
    kUnsupportedParameter,
    kUnsupportedValue,
    kUnsupportedContent,
    kUnsupportedToolType,
    // the prompt
    kContextLengthExceeded,
    kTemplateError,
    kTemplateLimit,
    // a constraint
    kInvalidSchema,
    kInvalidRegex,
    kInvalidGrammar,
    kUnsatisfiableConstraint,
    kConstraintTooLarge,
    kConflictingConstraints,
    // HTTP
    kBadRequest,  // 400; the gate also answers 421 and 505 with it
    kInvalidApiKey,
    kModelNotFound,
    kUnknownUrl,
    kMethodNotAllowed,
    kRequestTimeout,
    kBodyTooLarge,
    kUnsupportedMediaType,
    kExpectationFailed,
    kHeadersTooLarge,
    kTransferEncodingUnsupported,
    // admission
    kQueueFull,
    kQueueTimeout,
    kLoading,
    kDraining,
    kWedged,
    kNoReplicaReady,
    // the server
    kEngineError,
    kConstraintDeadEnd,
    kInternalError,
    kReplicaLost,
    kReplicaTimeout,
};

inline constexpr int kErrorCodeCount = static_cast<int>(ErrorCode::kReplicaTimeout) + 1;

/// One row of the table.
struct ErrorInfo {
    ErrorCode code;
    std::string_view name;  // as on the wire: "invalid_json"
    int status;
    std::string_view type;
};

const ErrorInfo& error_info(ErrorCode code);

/// The code with this wire name.
std::optional<ErrorCode> error_code_from_name(std::string_view name);

/// A request's failure. `message` is a sentence for people and never holds prompt text.
/// No aggregate, on purpose: GCC 12 destroys an aggregate that is made inside a co_await expression
/// twice. The same holds for the other types that are handed to coroutines (HttpResponse, Endpoint
/// …).
struct ApiError {
    ApiError() = default;
    ApiError(ErrorCode code_in, std::string message_in, std::string param_in = {},
             std::optional<int> status_in = {}, std::optional<int> retry_after_s_in = {})
        : code(code_in),
          message(std::move(message_in)),
          param(std::move(param_in)),
          status(status_in),
          retry_after_s(retry_after_s_in) {}

    ErrorCode code = ErrorCode::kInternalError;
    std::string message;
    std::string param;                 // a path such as tools[2].function.name; empty is null
    std::optional<int> status;         // in place of the table's (bad_request: 421, 505)
    std::optional<int> retry_after_s;  // header Retry-After, whole seconds

    [[nodiscard]] int http_status() const { return status.value_or(error_info(code).status); }
};

template <class T>
using Result = tl::expected<T, ApiError>;

/// `return fail(ErrorCode::kInvalidType, "…", "n");` in a function that returns a Result.
inline tl::unexpected<ApiError> fail(ErrorCode code, std::string message, std::string param = {}) {
    return tl::unexpected<ApiError>(ApiError{code, std::move(message), std::move(param)});
}

/// The body of an error answer, and the data of an `error` event.
std::string error_body(const ApiError& error);

/// An estimated wait as a Retry-After value: whole seconds, 1 to 60. `spread` in [0, 1) moves the
/// result by up to half the wait, so that clients do not return together.
int retry_after_seconds(double wait_s, double spread = 0.0);

/// Makes bytes of a client fit for a message or a log: control bytes and bytes above 0x7E become
/// \xNN, and the result is cut to `bytes_max` input bytes.
std::string printable(std::string_view bytes, std::size_t bytes_max = 128);

}  // namespace proto

// http_message: requests, answers and header fields as plain values, shared by server and client.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/error.h"
#include "proto/limits.h"

namespace proto {

/// Header fields in their order; names compare without regard to case.
class Headers {
public:
    struct Field {
        Field(std::string name_in, std::string value_in)
            : name(std::move(name_in)), value(std::move(value_in)) {}
        std::string name;
        std::string value;
    };

    Headers() = default;
    Headers(std::initializer_list<Field> fields) : fields_(fields) {}

    void add(std::string name, std::string value);
    /// Replaces all fields of this name by one.
    void set(std::string name, std::string value);
    void remove(std::string_view name);

    /// The first field's value.
    [[nodiscard]] std::optional<std::string_view> find(std::string_view name) const;
    /// The first field's value, or "".
    [[nodiscard]] std::string_view get(std::string_view name) const;
    [[nodiscard]] bool contains(std::string_view name) const { return find(name).has_value(); }
    [[nodiscard]] std::size_t count(std::string_view name) const;
    [[nodiscard]] std::size_t size() const { return fields_.size(); }
    [[nodiscard]] bool empty() const { return fields_.empty(); }

    [[nodiscard]] auto begin() const { return fields_.begin(); }
    [[nodiscard]] auto end() const { return fields_.end(); }

private:
    std::vector<Field> fields_;
};

/// ASCII comparison without regard to case.
bool equal_no_case(std::string_view a, std::string_view b);

/// What is known of a request when its head has been read and has passed the gate.
struct HttpRequestHead {
    std::string method;  // as sent; unknown methods reach the route table, which answers 405
    std::string path;    // exactly as sent, never decoded or normalised
    std::string query;   // without '?'
    Headers headers;
    std::string request_id;                       // taken or made, always valid
    std::string peer;                             // address of the client, without port
    std::optional<std::uint64_t> content_length;  // none: chunked, or no body
    bool is_chunked = false;
    bool is_http_1_0 = false;
    bool keep_alive = true;
    bool expects_continue = false;
    Headers answer_headers;  // on every answer to this request; for the admit hook to set
    /// Anything the admit hook wants to live exactly as long as the request (a counted place).
    std::shared_ptr<void> ticket;
};

struct HttpRequest : HttpRequestHead {
    std::string body;
};

/// A whole answer. The server adds Content-Length, Connection, x-request-id and Date.
struct HttpResponse {
    HttpResponse() = default;
    HttpResponse(int status_in, Headers headers_in, std::string body_in)
        : status(status_in), headers(std::move(headers_in)), body(std::move(body_in)) {}

    int status = 200;
    Headers headers;  // Content-Type and the like
    std::string body;
    bool close = false;  // close the connection after this answer
};

HttpResponse json_response(std::string body, int status = 200);
HttpResponse text_response(std::string body, int status = 200,
                           std::string_view content_type = "text/plain; charset=utf-8");
/// The four-key body with the table's status, and Retry-After where the error has one.
HttpResponse error_response(const ApiError& error);

/// "Not Found" for 404; "" for numbers we do not know.
std::string_view status_reason(int status);

/// A fresh request id: "req-" and 24 hex digits.
std::string make_request_id();
/// 1 to 128 characters of [A-Za-z0-9._:-].
bool is_valid_request_id(std::string_view id);
/// 16 random hex digits, as instance ids have.
std::string make_instance_id();

/// The key of `Authorization: Bearer KEY` or `x-api-key: KEY`; none when neither is there.
std::optional<std::string_view> api_key(const Headers& headers);

/// The value of `name` in a query "a=1&b=2"; nothing is decoded.
std::optional<std::string_view> query_value(std::string_view query, std::string_view name);

}  // namespace proto

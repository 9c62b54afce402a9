// field_check: a request body against the field table, and small readers for what has passed.
// Inside proto only.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/error.h"
#include "proto/fields.h"
#include "proto/generation_request.h"
#include "proto/json.h"

namespace proto {

/// Checks every member of `body` against its row: kind, range, mark. Unknown and ignored fields are
/// noted in `request`.
Result<void> check_fields(const Json& body, FieldEndpoint endpoint, GenerationRequest& request);

/// The member, or null when it is absent or JSON null.
const Json* find_member(const Json& object, std::string_view name);

/// An integer as the API means it: 5, 5.0 and 5e0 are one value. None: not a number, or one with a
/// fraction. `is_in_range` is false for numbers beyond int64.
struct IntegerValue {
    std::int64_t value = 0;
    bool is_in_range = true;
};
std::optional<IntegerValue> integer_value(const Json& json);

/// "messages[3]", "tools[2].function"
std::string indexed(std::string_view path, std::size_t index);
/// The name may be the client's: it comes out printable.
std::string member_of(std::string_view path, std::string_view name);

tl::unexpected<ApiError> wrong_type(const std::string& param, std::string_view wanted);

/// Copies a member that check_fields() has passed; leaves `out` when it is absent.
void read_member(const Json& body, std::string_view name, bool& out);
void read_member(const Json& body, std::string_view name, std::optional<bool>& out);
void read_member(const Json& body, std::string_view name, std::string& out);
void read_member(const Json& body, std::string_view name, std::optional<double>& out);
void read_member(const Json& body, std::string_view name, std::optional<std::int64_t>& out);

template <std::integral T>
requires(!std::same_as<T, bool>) void read_member(const Json& body, std::string_view name, T& out) {
    std::optional<std::int64_t> value;
    read_member(body, name, value);
    if (value) out = static_cast<T>(*value);  // the table's range fits T
}

/// The fields both endpoints share; `body` has passed check_fields().
Result<void> read_generation_fields(const Json& body, std::int64_t vocabulary,
                                    GenerationRequest& request);

/// Token ids, each in [0, vocabulary) (vocabulary 0: only >= 0).
Result<std::vector<std::int32_t>> read_token_ids(const Json& array, std::int64_t vocabulary,
                                                 const std::string& param);

/// The constraint of a body, from any of the fields that may hold one (constraint.cpp).
Result<std::optional<Constraint>> read_constraint(const Json& body);

}  // namespace proto

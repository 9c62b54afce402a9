// fields: the one table of request fields. Validation, the OpenAPI document and the tests are made
// from it: a field that is not a row here is unknown to the whole product.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace proto {

enum class FieldKind {
    kInteger,  // a JSON number without fraction: 5, 5.0 and 5e0 are one value
    kNumber,
    kBool,
    kString,
    kEnum,  // a string of `values`
    kObject,
    kArray,
    kStringOrArray,
    kStringOrObject,
    kAny,
};

enum class FieldMark {
    kHonoured,
    kIgnored,    // accepted, has no effect; `note` says why
    kUnoffered,  // read and checked, but no server of ours carries it out yet: 400 there
    kRefused,    // 400, unless the value is the neutral one
};

/// Which endpoints know a row.
enum FieldEndpoint : unsigned { kChat = 1U, kCompletions = 2U, kBoth = 3U };

/// A refused field is accepted when its value changes nothing.
enum class NeutralValue {
    kNone,  // refused with any value but null
    kZero,  // 0 or false
    kOne,
    kEmpty,     // [], {} or ""
    kAnyValue,  // has no effect while its main switch, another row, is neutral
    kTextOnly,  // ["text"]
};

struct FieldSpec {
    std::string_view name;  // "dry_*" covers every other name with this beginning
    FieldKind kind = FieldKind::kAny;
    FieldMark mark = FieldMark::kHonoured;
    unsigned endpoints = kBoth;
    double number_min = 0, number_max = 0;          // kNumber
    std::int64_t integer_min = 0, integer_max = 0;  // kInteger
    std::size_t size_max = 0;                       // bytes, items or keys; 0: not bounded here
    std::span<const std::string_view> values{};     // kEnum
    NeutralValue neutral = NeutralValue::kNone;     // kRefused
    std::string_view note{};                        // meaning; for kRefused the reason
};

/// All rows, in the order of the API document.
std::span<const FieldSpec> request_fields();

/// The row for `name` at an endpoint; nullptr: unknown.
const FieldSpec* find_field(std::string_view name, FieldEndpoint endpoint);

}  // namespace proto

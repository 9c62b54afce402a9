#include "proto/field_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "proto/limits.h"

namespace proto {
namespace {

std::string_view kind_words(FieldKind kind) {
    switch (kind) {
        case FieldKind::kInteger:
            return "an integer";
        case FieldKind::kNumber:
            return "a number";
        case FieldKind::kBool:
            return "true or false";
        case FieldKind::kString:
        case FieldKind::kEnum:
            return "a string";
        case FieldKind::kObject:
            return "an object";
        case FieldKind::kArray:
            return "an array";
        case FieldKind::kStringOrArray:
            return "a string or an array";
        case FieldKind::kStringOrObject:
            return "a string or an object";
        case FieldKind::kAny:
            return "a value";
    }
    return "a value";
}

bool has_kind(const Json& value, FieldKind kind) {
    switch (kind) {
        case FieldKind::kInteger:
            return integer_value(value).has_value();
        case FieldKind::kNumber:
            return value.is_number();
        case FieldKind::kBool:
            return value.is_boolean();
        case FieldKind::kString:
        case FieldKind::kEnum:
            return value.is_string();
        case FieldKind::kObject:
            return value.is_object();
        case FieldKind::kArray:
            return value.is_array();
        case FieldKind::kStringOrArray:
            return value.is_string() || value.is_array();
        case FieldKind::kStringOrObject:
            return value.is_string() || value.is_object();
        case FieldKind::kAny:
            return true;
    }
    return false;
}

bool is_neutral(const Json& value, NeutralValue neutral) {
    switch (neutral) {
        case NeutralValue::kNone:
            return false;
        case NeutralValue::kZero:
            return value == false || (value.is_number() && value.get<double>() == 0.0);
        case NeutralValue::kOne:
            return value.is_number() && value.get<double>() == 1.0;
        case NeutralValue::kEmpty:
            return (value.is_structured() && value.empty()) ||
                   (value.is_string() && value.get_ref<const std::string&>().empty());
        case NeutralValue::kAnyValue:
            return true;
        case NeutralValue::kTextOnly:
            return value.is_array() && value.size() == 1 && value[0] == "text";
    }
    return false;
}

std::string number_text(double value) {
    std::string text = json_text(Json(value));
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return text;
}

Result<void> check_range(const Json& value, const FieldSpec& spec, const std::string& param) {
    const auto came = [&value] { return ", not " + json_text(value) + "."; };
    if (spec.kind == FieldKind::kInteger) {
        const IntegerValue integer = *integer_value(value);
        if (integer.is_in_range && integer.value >= spec.integer_min &&
            integer.value <= spec.integer_max) {
            return {};
        }
        const bool has_upper = spec.integer_max != std::numeric_limits<std::int64_t>::max();
        const std::string range = has_upper
                                      ? "between " + std::to_string(spec.integer_min) + " and " +
                                            std::to_string(spec.integer_max)
                                      : "at least " + std::to_string(spec.integer_min) +
                                            (integer.is_in_range ? "" : " and within 64 bits");
        return fail(ErrorCode::kInvalidValue, "'" + param + "' must be " + range + came(), param);
    }
    if (spec.kind == FieldKind::kNumber) {
        const auto number = value.get<double>();
        if (number >= spec.number_min && number <= spec.number_max) return {};
        return fail(ErrorCode::kInvalidValue,
                    "'" + param + "' must be between " + number_text(spec.number_min) + " and " +
                        number_text(spec.number_max) + came(),
                    param);
    }
    if (spec.kind == FieldKind::kEnum) {
        if (std::ranges::find(spec.values, value.get_ref<const std::string&>()) !=
            spec.values.end()) {
            return {};
        }
        std::string names;
        for (const std::string_view name : spec.values) {
            names += (names.empty() ? "" : ", ") + std::string(name);
        }
        return fail(ErrorCode::kUnsupportedValue, "'" + param + "' must be one of " + names + ".",
                    param);
    }
    const std::size_t size =
        value.is_string() ? value.get_ref<const std::string&>().size() : value.size();
    if (spec.size_max != 0 && size > spec.size_max) {
        return fail(ErrorCode::kInvalidValue,
                    "'" + param + "' has a size of " + std::to_string(size) + "; at most " +
                        std::to_string(spec.size_max) + " is accepted.",
                    param);
    }
    return {};
}

}  // namespace

void add_warning(std::vector<std::string>& warnings, std::string_view text) {
    if (warnings.size() >= kWarningsMax) return;
    std::string warning = printable(text, kWarningBytesMax);
    if (warning.size() > kWarningBytesMax) warning.resize(kWarningBytesMax);
    warnings.push_back(std::move(warning));
}

const Json* find_member(const Json& object, std::string_view name) {
    // By hand: the ordered map's find() would make a std::string of the name first.
    for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
        if (key == name) return value.is_null() ? nullptr : &value;
    }
    return nullptr;
}

std::optional<IntegerValue> integer_value(const Json& json) {
    if (json.is_number_unsigned()) {
        const auto value = json.get<std::uint64_t>();
        const bool fits = value <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
        return IntegerValue{fits ? static_cast<std::int64_t>(value) : 0, fits};
    }
    if (json.is_number_integer()) return IntegerValue{json.get<std::int64_t>(), true};
    if (!json.is_number_float()) return std::nullopt;
    const auto value = json.get<double>();
    if (std::trunc(value) != value) return std::nullopt;
    constexpr double kLimit = 9223372036854775808.0;  // 2^63
    const bool fits = value >= -kLimit && value < kLimit;
    return IntegerValue{fits ? static_cast<std::int64_t>(value) : 0, fits};
}

std::string indexed(std::string_view path, std::size_t index) {
    return std::string(path) + "[" + std::to_string(index) + "]";
}

std::string member_of(std::string_view path, std::string_view name) {
    return std::string(path) + "." + printable(name);
}

tl::unexpected<ApiError> wrong_type(const std::string& param, std::string_view wanted) {
    return fail(ErrorCode::kInvalidType, "'" + param + "' must be " + std::string(wanted) + ".",
                param);
}

Result<void> check_fields(const Json& body, FieldEndpoint endpoint, GenerationRequest& request) {
    for (const auto& [name, value] : body.get_ref<const Json::object_t&>()) {
        const FieldSpec* const spec = find_field(name, endpoint);
        if (spec == nullptr) {
            request.unknown_fields.push_back(name);
            continue;
        }
        if (value.is_null()) continue;
        if (spec->mark == FieldMark::kRefused) {
            if (is_neutral(value, spec->neutral)) continue;
            const std::string param = printable(name);  // a row may cover any ending
            return fail(ErrorCode::kUnsupportedParameter,
                        "'" + param + "' is refused: " + std::string(spec->note) + ".", param);
        }
        if (spec->mark == FieldMark::kIgnored) {
            add_warning(request.warnings, "ignored_field " + name + ": " + std::string(spec->note));
            continue;
        }
        if (!has_kind(value, spec->kind)) return wrong_type(name, kind_words(spec->kind));
        if (Result<void> range = check_range(value, *spec, name); !range) return range;
    }
    if (!request.unknown_fields.empty()) {
        std::string names;
        for (const std::string& name : request.unknown_fields) {
            names += (names.empty() ? "" : ", ") + name;
            if (names.size() > kWarningBytesMax) break;
        }
        add_warning(request.warnings, "unknown_fields " + names);
    }
    return {};
}

void read_member(const Json& body, std::string_view name, bool& out) {
    if (const Json* value = find_member(body, name)) out = value->get<bool>();
}

void read_member(const Json& body, std::string_view name, std::optional<bool>& out) {
    if (const Json* value = find_member(body, name)) out = value->get<bool>();
}

void read_member(const Json& body, std::string_view name, std::string& out) {
    if (const Json* value = find_member(body, name)) out = value->get_ref<const std::string&>();
}

void read_member(const Json& body, std::string_view name, std::optional<double>& out) {
    if (const Json* value = find_member(body, name)) out = value->get<double>();
}

void read_member(const Json& body, std::string_view name, std::optional<std::int64_t>& out) {
    if (const Json* value = find_member(body, name)) out = integer_value(*value)->value;
}

}  // namespace proto

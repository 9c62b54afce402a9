// The fields by which a request may constrain its answer, in the spellings of several servers, as
// one Constraint. Whether a schema, pattern or grammar compiles is decided where it is compiled.
#include <algorithm>

#include "proto/field_check.h"
#include "proto/limits.h"

namespace proto {
namespace {

constexpr std::size_t kChoicesMax = 1024;

using Found = Result<std::optional<Constraint>>;

int depth_of(const Json& value, int depth_max) {
    if (!value.is_structured() || depth_max == 0) return 0;
    int deepest = 0;
    for (const Json& child : value)
        deepest = std::max(deepest, depth_of(child, depth_max - 1));
    return deepest + 1;
}

Result<Constraint> schema_constraint(const Json* schema, const std::string& param) {
    if (schema == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + param + "' is missing.", param);
    }
    if (!schema->is_object() && !schema->is_boolean()) {
        return wrong_type(param, "a schema (an object, true or false)");
    }
    if (depth_of(*schema, kSchemaDepthMax + 1) > kSchemaDepthMax ||
        json_text(*schema).size() > kSchemaBytesMax) {
        return fail(ErrorCode::kConstraintTooLarge, "The schema is too large or too deep.", param);
    }
    Constraint constraint;
    constraint.kind = ConstraintKind::kJsonSchema;
    constraint.schema = *schema;
    return constraint;
}

Result<Constraint> text_constraint(ConstraintKind kind, const Json* text,
                                   const std::string& param) {
    if (text == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + param + "' is missing.", param);
    }
    if (!text->is_string()) return wrong_type(param, "a string");
    Constraint constraint;
    constraint.kind = kind;
    constraint.text = text->get<std::string>();
    const std::size_t bytes_max = kind == ConstraintKind::kRegex ? kRegexBytesMax : kSchemaBytesMax;
    if (constraint.text.size() > bytes_max) {
        return fail(ErrorCode::kConstraintTooLarge,
                    "'" + param + "' has more than " + std::to_string(bytes_max) + " bytes.",
                    param);
    }
    if (constraint.text.empty() && kind == ConstraintKind::kGrammar) {
        return fail(ErrorCode::kInvalidGrammar, "The grammar is empty.", param);
    }
    return constraint;
}

Result<Constraint> choice_constraint(const Json* choices, const std::string& param) {
    if (choices == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + param + "' is missing.", param);
    }
    if (!choices->is_array()) return wrong_type(param, "an array of strings");
    if (choices->empty() || choices->size() > kChoicesMax) {
        return fail(ErrorCode::kInvalidValue,
                    "1 to " + std::to_string(kChoicesMax) + " choices are accepted.", param);
    }
    Constraint constraint;
    constraint.kind = ConstraintKind::kChoice;
    for (std::size_t i = 0; i < choices->size(); ++i) {
        if (!(*choices)[i].is_string()) return wrong_type(indexed(param, i), "a string");
        constraint.choices.push_back((*choices)[i].get<std::string>());
    }
    return constraint;
}

Constraint object_constraint() {
    return {};
}

/// OpenAI's {"type":"json_schema","json_schema":{"name","schema","strict"}}.
Result<Constraint> wrapped_schema(const Json& format) {
    const std::string path = "response_format.json_schema";
    const Json* const wrapper = find_member(format, "json_schema");
    if (wrapper == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + path + "' is missing.", path);
    }
    if (!wrapper->is_object()) return wrong_type(path, "an object");
    Result<Constraint> constraint =
        schema_constraint(find_member(*wrapper, "schema"), path + ".schema");
    if (!constraint) return constraint;
    if (const Json* name = find_member(*wrapper, "name")) {
        if (!name->is_string()) return wrong_type(path + ".name", "a string");
        constraint->schema_name = name->get<std::string>();
    }
    if (const Json* strict = find_member(*wrapper, "strict")) {
        if (!strict->is_boolean()) return wrong_type(path + ".strict", "true or false");
        constraint->strict = strict->get<bool>();
    }
    return constraint;
}

Found some(Result<Constraint> constraint) {
    if (!constraint) return tl::unexpected(constraint.error());
    return std::optional<Constraint>(std::move(*constraint));
}

Found from_response_format(const Json& format) {
    const std::string path = "response_format.type";
    const Json* const type = find_member(format, "type");
    if (type == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + path + "' is missing.", path);
    }
    if (!type->is_string()) return wrong_type(path, "a string");
    const std::string& name = type->get_ref<const std::string&>();
    if (name == "text") return std::nullopt;
    if (name == "json_schema") return some(wrapped_schema(format));
    if (name == "json_object") {
        // Some clients put a schema here.
        if (const Json* schema = find_member(format, "schema")) {
            return some(schema_constraint(schema, "response_format.schema"));
        }
        return some(object_constraint());
    }
    if (name == "regex") {
        return some(text_constraint(ConstraintKind::kRegex, find_member(format, "pattern"),
                                    "response_format.pattern"));
    }
    if (name == "grammar") {
        return some(text_constraint(ConstraintKind::kGrammar, find_member(format, "definition"),
                                    "response_format.definition"));
    }
    if (name == "choice") {
        return some(choice_constraint(find_member(format, "choices"), "response_format.choices"));
    }
    return fail(ErrorCode::kUnsupportedValue,
                "'" + path + "' must be text, json_object, json_schema, regex, grammar or choice.",
                path);
}

Found from_structured_outputs(const Json& outputs) {
    std::optional<Constraint> found;
    for (const auto& [name, value] : outputs.get_ref<const Json::object_t&>()) {
        if (value.is_null() || value == false) continue;
        const std::string path = member_of("structured_outputs", name);
        Result<Constraint> constraint;
        if (name == "json") {
            constraint = schema_constraint(&value, path);
        } else if (name == "regex") {
            constraint = text_constraint(ConstraintKind::kRegex, &value, path);
        } else if (name == "grammar") {
            constraint = text_constraint(ConstraintKind::kGrammar, &value, path);
        } else if (name == "choice") {
            constraint = choice_constraint(&value, path);
        } else if (name == "json_object") {
            if (!value.is_boolean()) return wrong_type(path, "true or false");
            constraint = object_constraint();
        } else {
            return fail(ErrorCode::kUnsupportedParameter, "'" + path + "' is not offered.", path);
        }
        if (!constraint) return tl::unexpected(constraint.error());
        if (found) {
            return fail(ErrorCode::kConflictingConstraints,
                        "'structured_outputs' holds more than one constraint.",
                        "structured_outputs");
        }
        found = std::move(*constraint);
    }
    return found;
}

Found from_field(const Json& body, std::string_view field) {
    const Json* const value = find_member(body, field);
    if (value == nullptr) return std::nullopt;
    if (field == "response_format") return from_response_format(*value);
    if (field == "structured_outputs") return from_structured_outputs(*value);
    if (field == "json_schema") return some(schema_constraint(value, "json_schema"));
    if (field == "regex") return some(text_constraint(ConstraintKind::kRegex, value, "regex"));
    return some(text_constraint(ConstraintKind::kGrammar, value, "grammar"));
}

}  // namespace

Result<std::optional<Constraint>> read_constraint(const Json& body) {
    std::optional<Constraint> found;
    for (const std::string_view field :
         {"response_format", "structured_outputs", "json_schema", "regex", "grammar"}) {
        Found constraint = from_field(body, field);
        if (!constraint) return constraint;
        if (!*constraint) continue;
        if (found) {
            return fail(ErrorCode::kConflictingConstraints,
                        "'" + found->param + "' and '" + std::string(field) +
                            "' both constrain the answer.",
                        std::string(field));
        }
        found = std::move(**constraint);
        found->param = field;
    }
    return found;
}

}  // namespace proto

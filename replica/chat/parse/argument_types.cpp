#include "replica/chat/parse/argument_types.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include <nlohmann/json.hpp>

#include "replica/chat/json_text.h"
#include "replica/chat/parse/tag_scan.h"

namespace replica::chat::parse {

namespace {

constexpr int kReferenceDepthMax = 16;  // $ref, anyOf and oneOf within each other

std::optional<ValueType> type_named(const std::string& name) {
    static const std::map<std::string, ValueType> kTypes = {
        {"null", ValueType::kNull},       {"boolean", ValueType::kBoolean},
        {"integer", ValueType::kInteger}, {"number", ValueType::kNumber},
        {"array", ValueType::kArray},     {"object", ValueType::kObject},
        {"string", ValueType::kString}};
    const auto found = kTypes.find(name);
    return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

ValueType type_of_value(const Json& value) {
    if (value.is_null()) return ValueType::kNull;
    if (value.is_boolean()) return ValueType::kBoolean;
    if (value.is_number_integer()) return ValueType::kInteger;
    if (value.is_number()) return ValueType::kNumber;
    if (value.is_array()) return ValueType::kArray;
    return value.is_object() ? ValueType::kObject : ValueType::kString;
}

/// What a local reference such as "#/$defs/x" points at; null when there is nothing.
const Json* resolve(const Json& root, const std::string& reference) {
    if (!reference.starts_with('#')) return nullptr;
    try {
        const Json::json_pointer pointer(reference.substr(1));
        return root.contains(pointer) ? &root.at(pointer) : nullptr;
    } catch (const Json::exception&) {
        return nullptr;
    }
}

TypeSet types_of_schema(const Json& schema, const Json& root, int depth);

TypeSet union_of(const Json& branches, const Json& root, int depth) {
    TypeSet types;
    for (const Json& branch : branches)
        types.add(types_of_schema(branch, root, depth + 1));
    return types;
}

TypeSet declared_types(const Json& type) {
    TypeSet types;
    const auto add = [&](const Json& name) {
        if (!name.is_string()) return;
        if (const auto known = type_named(name.get<std::string>())) types.add(*known);
    };
    if (type.is_array()) {
        for (const Json& name : type)
            add(name);
    } else {
        add(type);
    }
    return types;
}

TypeSet types_of_schema(const Json& schema, const Json& root, int depth) {
    TypeSet types;
    if (!schema.is_object() || depth > kReferenceDepthMax) return types;
    const auto has = [&](const char* key) { return schema.contains(key); };
    if (has("$ref") && schema["$ref"].is_string()) {
        const Json* target = resolve(root, schema["$ref"].get<std::string>());
        if (target != nullptr) types = types_of_schema(*target, root, depth + 1);
    }
    if (types.is_empty() && has("type")) types = declared_types(schema["type"]);
    for (const char* const key : {"anyOf", "oneOf", "allOf"}) {
        if (types.is_empty() && has(key) && schema[key].is_array()) {
            types = union_of(schema[key], root, depth);
        }
    }
    if (types.is_empty() && has("enum") && schema["enum"].is_array()) {
        for (const Json& value : schema["enum"])
            types.add(type_of_value(value));
    }
    if (types.is_empty() && has("const")) types.add(type_of_value(schema["const"]));
    if (!types.is_empty() && has("nullable") && schema["nullable"] == true) {
        types.add(ValueType::kNull);
    }
    return types;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_space(text.front()))
        text.remove_prefix(1);
    while (!text.empty() && is_space(text.back()))
        text.remove_suffix(1);
    return text;
}

std::string lower_ascii(std::string_view text) {
    std::string lower(text);
    for (char& c : lower) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return lower;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// -?(0|[1-9][0-9]*) with an optional ".0…"; without that part.
std::optional<std::string> read_integer(std::string_view text) {
    std::size_t at = text.starts_with('-') ? 1 : 0;
    const std::size_t first = at;
    while (at < text.size() && is_digit(text[at]))
        ++at;
    if (at == first || (text[first] == '0' && at > first + 1)) return std::nullopt;
    const std::string_view fraction = text.substr(at);
    const bool is_whole =
        fraction.empty() || (fraction.size() >= 2 && fraction.front() == '.' &&
                             fraction.find_first_not_of('0', 1) == std::string_view::npos);
    if (!is_whole) return std::nullopt;
    return std::string(text.substr(0, at));
}

/// Copies `text`; `outside` may write something else for what stands outside strings: it gets the
/// rest from there and answers how many bytes it has dealt with, 0 to copy one.
template <class Outside>
std::string rewrite_outside_strings(std::string_view text, Outside outside) {
    std::string out;
    out.reserve(text.size());
    bool in_string = false;
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        const std::size_t dealt_with = in_string ? 0 : outside(out, text.substr(at));
        if (dealt_with > 0) {
            at += dealt_with;
            continue;
        }
        const std::size_t size = in_string && c == '\\' && at + 1 < text.size() ? 2 : 1;
        if (size == 1 && c == '"') in_string = !in_string;
        out += text.substr(at, size);
        at += size;
    }
    return out;
}

std::size_t replace_python_word(std::string& out, std::string_view rest) {
    static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (const auto& [word, replacement] : kWords) {
        if (!rest.starts_with(word)) continue;
        out += replacement;
        return word.size();
    }
    return 0;
}

std::size_t drop_space(std::string&, std::string_view rest) {
    return is_space(rest.front()) ? 1 : 0;
}

/// An array or object, compact; its literals may be Python's.
std::optional<std::string> read_container(std::string_view text, char opening) {
    if (!text.starts_with(opening)) return std::nullopt;
    const std::string json = rewrite_outside_strings(text, replace_python_word);
    if (!is_json(json)) return std::nullopt;
    return rewrite_outside_strings(json, drop_space);
}

std::optional<std::string> read_as(ValueType type, std::string_view text) {
    switch (type) {
        case ValueType::kNull: {
            const std::string lower = lower_ascii(text);
            if (lower == "null" || lower == "none") return "null";
            return std::nullopt;
        }
        case ValueType::kBoolean: {
            std::string lower = lower_ascii(text);
            if (lower == "true" || lower == "false") return lower;
            return std::nullopt;
        }
        case ValueType::kInteger:
            return read_integer(text);
        case ValueType::kNumber: {
            const bool is_number = !text.empty() && (is_digit(text.front()) || text.front() == '-');
            if (is_number && is_json(text)) return std::string(text);
            return std::nullopt;
        }
        case ValueType::kArray:
            return read_container(text, '[');
        case ValueType::kObject:
            return read_container(text, '{');
        case ValueType::kString:
            break;
    }
    return std::nullopt;
}

}  // namespace

ToolTypes::ToolTypes(const Json& tools) {
    if (!tools.is_array()) return;
    for (const Json& tool : tools) {
        if (!tool.is_object()) continue;
        const Json& function =
            tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
        if (!function.contains("name") || !function["name"].is_string()) continue;
        auto& properties = tools_[function["name"].get<std::string>()];
        if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
        const Json& schema = function["parameters"];
        if (!schema.contains("properties") || !schema["properties"].is_object()) continue;
        for (const auto& [key, property] : schema["properties"].items()) {
            properties[key] = types_of_schema(property, schema, 0);
        }
    }
}

TypeSet ToolTypes::types_of(std::string_view tool, std::string_view key) const {
    const auto properties = tools_.find(tool);
    if (properties == tools_.end()) return {};
    const auto types = properties->second.find(key);
    return types == properties->second.end() ? TypeSet{} : types->second;
}

WrittenValue write_value(std::string_view value, TypeSet types) {
    const std::string_view text = trimmed(value);
    for (const ValueType type : {ValueType::kNull, ValueType::kBoolean, ValueType::kInteger,
                                 ValueType::kNumber, ValueType::kArray, ValueType::kObject}) {
        if (!types.has(type)) continue;
        if (auto json = read_as(type, text)) return {std::move(*json), true};
    }
    WrittenValue written{"\"", types.is_empty() || types.has(ValueType::kString)};
    append_escaped(written.json, value);
    written.json += '"';
    return written;
}

std::string write_unfinished(std::string_view value, TypeSet types) {
    if (types.has(ValueType::kString)) {
        WrittenValue written = write_value(value, types);
        if (written.json.starts_with('"')) written.json.pop_back();
        return written.json;
    }
    return rewrite_outside_strings(rewrite_outside_strings(trimmed(value), replace_python_word),
                                   drop_space);
}

void append_escaped(std::string& out, std::string_view text) {
    for (const char c : text) {
        switch (c) {
            case '"':
                out += "\\\"";
                break;
            case '\\':
                out += "\\\\";
                break;
            case '\n':
                out += "\\n";
                break;
            case '\r':
                out += "\\r";
                break;
            case '\t':
                out += "\\t";
                break;
            case '\b':
                out += "\\b";
                break;
            case '\f':
                out += "\\f";
                break;
            default:
                if (static_cast<unsigned char>(c) < 0x20) {
                    char escape[16];
                    std::snprintf(escape, sizeof escape, "\\u%04x",
                                  static_cast<unsigned>(c) & 0xFFU);
                    out += escape;
                } else {
                    out += c;
                }
        }
    }
}

}  // namespace replica::chat::parse

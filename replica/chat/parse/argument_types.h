// Which JSON type a parameter value of the XML-like call format has, and how it is written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "replica/chat/template.h"

namespace replica::chat::parse {

/// In the order in which they are tried.
enum class ValueType : std::uint8_t {
    kNull,
    kBoolean,
    kInteger,
    kNumber,
    kArray,
    kObject,
    kString
};

/// A union of value types. Empty counts as string: nothing is known.
class TypeSet {
public:
    void add(ValueType type) { bits_ |= bit(type); }
    void add(TypeSet other) { bits_ |= other.bits_; }
    bool has(ValueType type) const { return (bits_ & bit(type)) != 0; }
    bool is_empty() const { return bits_ == 0; }
    bool is_only_string() const { return bits_ == 0 || bits_ == bit(ValueType::kString); }

private:
    static std::uint8_t bit(ValueType type) {
        return static_cast<std::uint8_t>(1U << static_cast<unsigned>(type));
    }
    std::uint8_t bits_ = 0;
};

/// The declared tools: their names, and for each property its types.
class ToolTypes {
public:
    /// `tools`: declarations in OpenAI form, {type, function: {name, parameters}} or the inner
    /// object alone. Entries that are neither are skipped.
    explicit ToolTypes(const Json& tools);

    bool is_declared(std::string_view name) const { return tools_.find(name) != tools_.end(); }
    bool is_empty() const { return tools_.empty(); }
    TypeSet types_of(std::string_view tool, std::string_view key) const;

private:
    std::map<std::string, std::map<std::string, TypeSet, std::less<>>, std::less<>> tools_;
};

/// `value` as JSON text of the first type of the union that accepts it, else as a string.
struct WrittenValue {
    std::string json;
    bool fits = true;  // false: no declared type accepted it, so it became a string
};
WrittenValue write_value(std::string_view value, TypeSet types);
/// A value that the token limit cut: JSON text that is complete or breaks off, so that the
/// arguments are a prefix of what they would have become as far as that can be known.
std::string write_unfinished(std::string_view value, TypeSet types);

/// Appends `text` escaped as the inside of a JSON string: only `"`, `\` and control characters.
void append_escaped(std::string& out, std::string_view text);

}  // namespace replica::chat::parse

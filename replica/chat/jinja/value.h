// The values of the template language, with Python's behaviour.
//
//   undefined · none · bool · int (64 bit) · float · text · sequence · mapping   shared, immutable
//   namespace · macro · loop                                       owned by the rendering's arena
//   callable (a function of the environment or a method bound to its value)
//
// Sequences and mappings cannot be changed once made, so they form no cycles, and their depth is
// bounded when they are made, so walking and destroying them needs bounded stack. Namespaces can be
// changed; they, and loops, are therefore owned by the arena and only pointed at from values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "replica/chat/jinja/fault.h"
#include "replica/chat/jinja/text.h"

namespace replica::chat::jinja {

/// Containers within each other: JSON of the request and values built by the template.
inline constexpr int kValueDepthMax = 256;

class Value;
struct Sequence;
struct Mapping;
struct Namespace;
struct Loop;
struct Macro;
struct Callable;
using SequencePtr = std::shared_ptr<const Sequence>;
using MappingPtr = std::shared_ptr<const Mapping>;
using CallablePtr = std::shared_ptr<const Callable>;

struct None {};

/// A miss. Printing and testing it is fine, anything else is an error with this kind and message.
struct Undefined {
    TemplateErrorKind kind = TemplateErrorKind::kUndefined;
    std::shared_ptr<const std::string> why;
};

class Value {
public:
    using Variant = std::variant<Undefined, None, bool, std::int64_t, double, TextPtr, SequencePtr,
                                 MappingPtr, Namespace*, Loop*, const Macro*, CallablePtr>;

    Value() = default;
    Value(None none) : variant_(none) {}
    Value(Undefined undefined) : variant_(std::move(undefined)) {}
    Value(bool value) : variant_(value) {}
    Value(std::int64_t value) : variant_(value) {}
    Value(double value) : variant_(value) {}
    Value(TextPtr value) : variant_(std::move(value)) {}
    Value(SequencePtr value) : variant_(std::move(value)) {}
    Value(MappingPtr value) : variant_(std::move(value)) {}
    Value(Namespace* value) : variant_(value) {}
    Value(Loop* value) : variant_(value) {}
    Value(const Macro* value) : variant_(value) {}
    Value(CallablePtr value) : variant_(std::move(value)) {}

    template <class T>
    bool is() const {
        return std::holds_alternative<T>(variant_);
    }
    template <class T>
    const T* get_if() const {
        return std::get_if<T>(&variant_);
    }
    template <class T>
    const T& get() const {
        return std::get<T>(variant_);
    }
    const Variant& variant() const { return variant_; }

    bool is_undefined() const { return is<Undefined>(); }
    bool is_none() const { return is<None>(); }
    /// Bool, int or float.
    bool is_number() const { return is<bool>() || is<std::int64_t>() || is<double>(); }
    /// Bool or int, as int.
    std::optional<std::int64_t> as_integer() const;
    /// Any number, as float.
    double as_double() const;

private:
    Variant variant_;
};

/// What kind of Python object a sequence stands for; it decides printing and which tests hold.
enum class SequenceKind { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

struct Sequence {
    SequenceKind kind = SequenceKind::kList;
    std::vector<Value> items;
    int depth = 1;
    std::int64_t range_start = 0, range_stop = 0, range_step = 1;  // of a range: for printing
    /// How many items of a generator were taken: it can be walked only once.
    mutable std::size_t taken = 0;

    bool is_indexable() const {
        return kind == SequenceKind::kList || kind == SequenceKind::kTuple ||
               kind == SequenceKind::kRange;
    }
};

/// Keys in order of insertion. A key that comes twice keeps its place and takes the later value.
struct Mapping {
    std::vector<std::pair<Value, Value>> entries;
    std::unordered_map<std::string, std::size_t> index;  // by hash_key
    int depth = 1;

    const Value* find(std::string_view text_key) const;
    const Value* find(const Value& key) const;  // throws kType for a key that cannot be one
};

struct Namespace {
    std::vector<std::pair<std::string, Value>> attributes;

    Value* find(std::string_view name);
    void set(std::string_view name, Value value);
};

/// The loop variable. `index` is the running item, from 0.
struct Loop {
    SequencePtr items;
    std::size_t index = 0;
    std::size_t depth = 1;
};

/// A function of the environment, or a method (`self` is defined) known by its name.
struct Callable {
    std::string name;
    std::optional<Value> self;
};

SequencePtr make_sequence(Budget& budget, SequenceKind kind, std::vector<Value> items);
MappingPtr make_mapping(Budget& budget, std::vector<std::pair<Value, Value>> entries);
/// The same key for values that are equal as keys (1, 1.0 and true); none for lists and mappings.
std::optional<std::string> hash_key(const Value& value);

/// `value` of the context; its strings have the given origin. Throws kLimit beyond kValueDepthMax.
Value from_json(Budget& budget, const Json& json, Origin origin);

Value undefined(std::string why, TemplateErrorKind kind = TemplateErrorKind::kUndefined);
/// Throws the error that using an undefined value is.
[[noreturn]] void fail_undefined(const Undefined& value);
inline void require_defined(const Value& value) {
    if (const auto* miss = value.get_if<Undefined>()) fail_undefined(*miss);
}

/// Python's names: "str", "int", "list", "dict", "NoneType", …
std::string type_name(const Value& value);
bool is_true(const Value& value);
bool is_equal(Budget& budget, const Value& left, const Value& right);

/// The three-way order of `<` and its kin. kUnordered for NaN; throws kType for unlike kinds.
enum class Order { kLess, kEqual, kGreater, kUnordered };
Order compare(Budget& budget, const Value& left, const Value& right, std::string_view operation);

/// The items a `for` walks: elements, keys of a mapping, characters of a string, nothing of
/// undefined. A generator is used up by it. Throws kType for anything else.
SequencePtr iterate(Budget& budget, const Value& value);
/// len(); nothing when the value has no length.
std::optional<std::int64_t> length_of(const Value& value);

/// str(): what `{{ }}` prints.
TextPtr to_text(Budget& budget, const Value& value);
void append_text(Budget& budget, TextBuilder& out, const Value& value);
/// repr(): what is printed inside lists and mappings.
void append_repr(Budget& budget, TextBuilder& out, const Value& value);
/// repr() of plain text: for messages.
std::string repr_of(std::string_view text);
/// Shortest digits that read back as the same number; exponents below 1e-4 and from 1e16.
std::string print_float(double value);

struct JsonStyle {
    std::optional<std::string> indent;  // the text of one level
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool ascii_only = false;
    bool sort_keys = false;
};
/// json.dumps, with the marks of every string kept.
TextPtr to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace replica::chat::jinja

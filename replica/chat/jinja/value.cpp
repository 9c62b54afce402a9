#include "replica/chat/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

namespace replica::chat::jinja {

namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

int depth_of(const Value& value) {
    if (const auto* sequence = value.get_if<SequencePtr>()) return (*sequence)->depth;
    if (const auto* mapping = value.get_if<MappingPtr>()) return (*mapping)->depth;
    return 0;
}

int checked_depth(int depth) {
    if (depth > kValueDepthMax) {
        throw Fault(TemplateErrorKind::kLimit,
                    "values are nested more than " + std::to_string(kValueDepthMax) + " deep");
    }
    return depth;
}

std::string number_key(double value) {
    if (value >= -kTwoTo63 && value < kTwoTo63 && std::trunc(value) == value) {
        return "n" + std::to_string(static_cast<std::int64_t>(value));
    }
    char digits[40];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    return "f" + std::string(digits, end);
}

}  // namespace

std::optional<std::int64_t> Value::as_integer() const {
    if (const auto* truth = get_if<bool>()) return *truth ? 1 : 0;
    if (const auto* integer = get_if<std::int64_t>()) return *integer;
    return std::nullopt;
}

double Value::as_double() const {
    if (const auto* real = get_if<double>()) return *real;
    return static_cast<double>(as_integer().value_or(0));
}

const Value* Mapping::find(std::string_view text_key) const {
    std::string key("s");
    key.append(text_key);
    const auto found = index.find(key);
    return found == index.end() ? nullptr : &entries[found->second].second;
}

const Value* Mapping::find(const Value& key) const {
    const std::optional<std::string> hash = hash_key(key);
    if (!hash) fail_type("unhashable type: '" + type_name(key) + "'");
    const auto found = index.find(*hash);
    return found == index.end() ? nullptr : &entries[found->second].second;
}

Value* Namespace::find(std::string_view name) {
    for (auto& [key, value] : attributes) {
        if (key == name) return &value;
    }
    return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
    if (Value* present = find(name)) {
        *present = std::move(value);
    } else {
        attributes.emplace_back(std::string(name), std::move(value));
    }
}

SequencePtr make_sequence(Budget& budget, SequenceKind kind, std::vector<Value> items) {
    budget.charge_elements(1 + items.size());
    auto sequence = std::make_shared<Sequence>();
    int depth = 0;
    for (const Value& item : items)
        depth = std::max(depth, depth_of(item));
    sequence->depth = checked_depth(depth + 1);
    sequence->kind = kind;
    sequence->items = std::move(items);
    return sequence;
}

MappingPtr make_mapping(Budget& budget, std::vector<std::pair<Value, Value>> entries) {
    auto mapping = std::make_shared<Mapping>();
    int depth = 0;
    for (auto& [key, value] : entries) {
        budget.charge_elements(4);  // two values, the index entry and its text
        std::optional<std::string> hash = hash_key(key);
        if (!hash) fail_type("unhashable type: '" + type_name(key) + "'");
        depth = std::max({depth, depth_of(key), depth_of(value)});
        const auto [place, is_new] =
            mapping->index.emplace(std::move(*hash), mapping->entries.size());
        if (is_new) {
            mapping->entries.emplace_back(std::move(key), std::move(value));
        } else {
            mapping->entries[place->second].second = std::move(value);
        }
    }
    mapping->depth = checked_depth(depth + 1);
    return mapping;
}

std::optional<std::string> hash_key(const Value& value) {
    if (const auto* text = value.get_if<TextPtr>()) return "s" + (*text)->bytes;
    if (const auto integer = value.as_integer()) return "n" + std::to_string(*integer);
    if (const auto* real = value.get_if<double>()) return number_key(*real);
    if (value.is_none()) return "0";
    if (value.is_undefined()) return "u";
    if (const auto* sequence = value.get_if<SequencePtr>()) {
        if ((*sequence)->kind != SequenceKind::kTuple) return std::nullopt;
        std::string key = "t";
        for (const Value& item : (*sequence)->items) {
            const std::optional<std::string> part = hash_key(item);
            if (!part) return std::nullopt;
            key += std::to_string(part->size()) + ":" + *part;
        }
        return key;
    }
    return std::nullopt;
}

Value from_json(Budget& budget, const Json& json, Origin origin) {
    struct Converter {
        Budget& budget;
        Origin origin;
        Value convert(const Json& node, int level) const {
            checked_depth(level);
            budget.charge_nodes(1);
            switch (node.type()) {
                case Json::value_t::boolean:
                    return node.get<bool>();
                case Json::value_t::number_integer:
                    return node.get<std::int64_t>();
                case Json::value_t::number_unsigned: {
                    const auto number = node.get<std::uint64_t>();
                    // Beyond 64 bit signed the language has no integers; the float is the nearest.
                    if (number > static_cast<std::uint64_t>(INT64_MAX)) {
                        return static_cast<double>(number);
                    }
                    return static_cast<std::int64_t>(number);
                }
                case Json::value_t::number_float:
                    return node.get<double>();
                case Json::value_t::string:
                    return make_text(node.get_ref<const std::string&>(), origin);
                case Json::value_t::array: {
                    std::vector<Value> items;
                    items.reserve(node.size());
                    for (const Json& item : node)
                        items.push_back(convert(item, level + 1));
                    return make_sequence(budget, SequenceKind::kList, std::move(items));
                }
                case Json::value_t::object: {
                    std::vector<std::pair<Value, Value>> entries;
                    entries.reserve(node.size());
                    for (const auto& [key, item] : node.items()) {
                        entries.emplace_back(make_text(key, origin), convert(item, level + 1));
                    }
                    return make_mapping(budget, std::move(entries));
                }
                default:
                    return None{};
            }
        }
    };
    return Converter{budget, origin}.convert(json, 0);
}

Value undefined(std::string why, TemplateErrorKind kind) {
    return Undefined{kind, std::make_shared<const std::string>(std::move(why))};
}

void fail_undefined(const Undefined& value) {
    throw Fault(value.kind, value.why ? *value.why : "an undefined value was used");
}

std::string type_name(const Value& value) {
    struct Names {
        std::string operator()(const Undefined&) const { return "Undefined"; }
        std::string operator()(None) const { return "NoneType"; }
        std::string operator()(bool) const { return "bool"; }
        std::string operator()(std::int64_t) const { return "int"; }
        std::string operator()(double) const { return "float"; }
        std::string operator()(const TextPtr&) const { return "str"; }
        std::string operator()(const SequencePtr& sequence) const {
            switch (sequence->kind) {
                case SequenceKind::kList:
                    return "list";
                case SequenceKind::kTuple:
                    return "tuple";
                case SequenceKind::kRange:
                    return "range";
                case SequenceKind::kKeys:
                    return "dict_keys";
                case SequenceKind::kValues:
                    return "dict_values";
                case SequenceKind::kItems:
                    return "dict_items";
                case SequenceKind::kGenerator:
                    break;
            }
            return "generator";
        }
        std::string operator()(const MappingPtr&) const { return "dict"; }
        std::string operator()(Namespace*) const { return "Namespace"; }
        std::string operator()(Loop*) const { return "LoopContext"; }
        std::string operator()(const Macro*) const { return "Macro"; }
        std::string operator()(const CallablePtr& callable) const {
            return callable->self ? "builtin_function_or_method" : "function";
        }
    };
    return std::visit(Names{}, value.variant());
}

bool is_true(const Value& value) {
    if (const auto* truth = value.get_if<bool>()) return *truth;
    if (const auto* integer = value.get_if<std::int64_t>()) return *integer != 0;
    if (const auto* real = value.get_if<double>()) return *real != 0.0;
    if (value.is_undefined() || value.is_none()) return false;
    const std::optional<std::int64_t> length = length_of(value);
    return !length || *length != 0;
}

std::optional<std::int64_t> length_of(const Value& value) {
    if (const auto* text = value.get_if<TextPtr>()) {
        return static_cast<std::int64_t>(length_in_characters(**text));
    }
    if (const auto* sequence = value.get_if<SequencePtr>()) {
        if ((*sequence)->kind == SequenceKind::kGenerator) return std::nullopt;
        return static_cast<std::int64_t>((*sequence)->items.size());
    }
    if (const auto* mapping = value.get_if<MappingPtr>()) {
        return static_cast<std::int64_t>((*mapping)->entries.size());
    }
    if (const auto* loop = value.get_if<Loop*>()) {
        return static_cast<std::int64_t>((*loop)->items->items.size());
    }
    if (value.is_undefined()) return 0;
    return std::nullopt;
}

SequencePtr iterate(Budget& budget, const Value& value) {
    if (const auto* sequence = value.get_if<SequencePtr>()) {
        if ((*sequence)->kind != SequenceKind::kGenerator) return *sequence;
        const auto first =
            (*sequence)->items.begin() + static_cast<std::ptrdiff_t>((*sequence)->taken);
        std::vector<Value> rest(first, (*sequence)->items.end());
        (*sequence)->taken = (*sequence)->items.size();
        return make_sequence(budget, SequenceKind::kList, std::move(rest));
    }
    std::vector<Value> items;
    if (const auto* text = value.get_if<TextPtr>()) {
        for (TextPtr& character : characters(budget, *text))
            items.emplace_back(std::move(character));
    } else if (const auto* mapping = value.get_if<MappingPtr>()) {
        budget.charge_elements((*mapping)->entries.size());
        for (const auto& [key, item] : (*mapping)->entries)
            items.push_back(key);
    } else if (const auto* miss = value.get_if<Undefined>()) {
        if (miss->kind == TemplateErrorKind::kSecurity) fail_undefined(*miss);
    } else {
        fail_type("'" + type_name(value) + "' object is not iterable");
    }
    return make_sequence(budget, SequenceKind::kList, std::move(items));
}

}  // namespace replica::chat::jinja

// Methods of strings, mappings and lists that only read. Those that would change a value are known
// by name, so that using one is a security error and not a miss.
#include <algorithm>
#include <array>

#include "replica/chat/jinja/arguments.h"
#include "replica/chat/jinja/unicode.h"

namespace replica::chat::jinja {

namespace {

using Names = std::initializer_list<std::string_view>;

constexpr std::string_view kTextMethods[] = {
    "startswith", "endswith", "split",        "rsplit", "splitlines",   "strip",
    "lstrip",     "rstrip",   "replace",      "upper",  "lower",        "title",
    "capitalize", "join",     "find",         "count",  "isdigit",      "isspace",
    "isupper",    "islower",  "removeprefix", "index",  "removesuffix",
};
constexpr std::string_view kMappingMethods[] = {"items", "keys", "values", "get", "copy"};
constexpr std::string_view kListMethods[] = {"index", "count"};
constexpr std::string_view kUnsafeMappingMethods[] = {"clear", "pop", "popitem", "setdefault",
                                                      "update"};
constexpr std::string_view kUnsafeListMethods[] = {"append", "clear",  "extend",  "insert",
                                                   "pop",    "remove", "reverse", "sort"};

template <std::size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::vector<Value> as_values(std::vector<TextPtr> texts) {
    std::vector<Value> values;
    values.reserve(texts.size());
    for (TextPtr& text : texts)
        values.emplace_back(std::move(text));
    return values;
}

/// startswith and endswith take one text or a tuple of them.
bool matches_any(const Value& candidates, std::string_view method, auto&& matches) {
    if (const auto* text = candidates.get_if<TextPtr>()) return matches((*text)->view());
    const auto* tuple = candidates.get_if<SequencePtr>();
    if (tuple == nullptr || (*tuple)->kind != SequenceKind::kTuple) {
        fail_type(std::string(method) + " first arg must be str or a tuple of str, not " +
                  type_name(candidates));
    }
    return std::any_of((*tuple)->items.begin(), (*tuple)->items.end(), [&](const Value& item) {
        const auto* text = item.get_if<TextPtr>();
        if (text == nullptr)
            fail_type("tuple for " + std::string(method) + " must only contain str");
        return matches((*text)->view());
    });
}

Value call_split(Budget& budget, const TextPtr& self, const CallArguments& arguments,
                 bool from_right) {
    const Bound bound(from_right ? "rsplit" : "split", arguments, {"sep", "maxsplit"});
    const Text* separator = nullptr;
    if (bound.has(0) && !bound[0].is_none()) separator = bound.text(0).get();
    if (separator != nullptr && separator->bytes.empty()) fail_type("empty separator");
    const std::int64_t splits_max = bound.integer(1, -1);
    auto pieces = from_right ? split_from_right(budget, self, separator, splits_max)
                             : split(budget, self, separator, splits_max);
    return make_sequence(budget, SequenceKind::kList, as_values(std::move(pieces)));
}

Value call_strip(Budget& budget, const TextPtr& self, std::string_view name,
                 const CallArguments& arguments) {
    const Bound bound(name, arguments, {"chars"});
    const TrimSides sides{.left = name != "rstrip", .right = name != "lstrip"};
    if (!bound.has(0) || bound[0].is_none()) return trim(budget, self, sides);
    return trim(budget, self, sides, bound.text(0)->view());
}

Value call_join(Budget& budget, const TextPtr& self, const CallArguments& arguments) {
    const Bound bound("join", arguments, {"iterable"}, 1);
    TextBuilder out(budget);
    const SequencePtr items = iterate(budget, bound[0]);
    for (std::size_t i = 0; i < items->items.size(); ++i) {
        const auto* text = items->items[i].get_if<TextPtr>();
        if (text == nullptr) {
            fail_type("sequence item " + std::to_string(i) + ": expected str instance, " +
                      type_name(items->items[i]) + " found");
        }
        if (i > 0) out.append(*self);
        out.append(**text);
    }
    return out.finish();
}

std::int64_t count_of(Budget& budget, const Text& self, const Text& part) {
    budget.charge_bytes(self.bytes.size());
    if (part.bytes.empty()) return static_cast<std::int64_t>(length_in_characters(self)) + 1;
    std::int64_t count = 0;
    for (std::size_t at = find_bytes(self.bytes, part.bytes); at != std::string_view::npos;
         at = find_bytes(self.bytes, part.bytes, at + part.bytes.size())) {
        ++count;
    }
    return count;
}

std::int64_t position_of(Budget& budget, const Text& self, const Text& part) {
    budget.charge_bytes(self.bytes.size());
    const std::size_t at = find_bytes(self.bytes, part.bytes);
    if (at == std::string_view::npos) return -1;
    return static_cast<std::int64_t>(count_code_points(self.view().substr(0, at)));
}

bool every_character(const Text& text, auto&& holds) {
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = decode_at(text.bytes, at);
        if (!holds(point.value)) return false;
        at += point.bytes;
    }
    return !text.bytes.empty();
}

/// isupper, islower: some letter has case, and none has the other.
bool has_only_case(const Text& text, bool upper) {
    bool has_case = false;
    const bool is_pure = every_character(text, [&](char32_t c) {
        if (!is_cased(c)) return true;
        has_case = true;
        return upper ? to_upper(c) == c : to_lower(c) == c;
    });
    return is_pure && has_case;
}

Value remove_end(Budget& budget, const TextPtr& self, const Text& part, bool at_front) {
    const std::string_view bytes = self->bytes;
    const std::size_t size = part.bytes.size();
    if (at_front && bytes.starts_with(part.bytes)) {
        return slice_bytes(budget, self, {size, bytes.size()});
    }
    if (!at_front && bytes.ends_with(part.bytes)) {
        return slice_bytes(budget, self, {0, bytes.size() - size});
    }
    return self;
}

Value call_case_method(Budget& budget, const Text& self, std::string_view name) {
    if (name == "upper") return map_case(budget, self, Case::kUpper);
    if (name == "lower") return map_case(budget, self, Case::kLower);
    if (name == "title") return map_case(budget, self, Case::kTitle);
    if (name == "capitalize") return map_case(budget, self, Case::kCapitalized);
    if (name == "isupper") return has_only_case(self, true);
    if (name == "islower") return has_only_case(self, false);
    if (name == "isspace") return every_character(self, is_space);
    return every_character(self, [](char32_t c) { return c >= '0' && c <= '9'; });  // isdigit
}

Value call_text_method(Budget& budget, const TextPtr& self, std::string_view name,
                       const CallArguments& arguments) {
    if (name == "split" || name == "rsplit") {
        return call_split(budget, self, arguments, name == "rsplit");
    }
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
        return call_strip(budget, self, name, arguments);
    }
    if (name == "join") return call_join(budget, self, arguments);
    if (name == "startswith" || name == "endswith") {
        const Bound bound(name, arguments, {"prefix"}, 1);
        const std::string_view bytes = self->bytes;
        return matches_any(bound[0], name, [&](std::string_view part) {
            return name == "startswith" ? bytes.starts_with(part) : bytes.ends_with(part);
        });
    }
    if (name == "replace") {
        const Bound bound(name, arguments, {"old", "new", "count"}, 2);
        return replace(budget, self, *bound.text(0), *bound.text(1), bound.integer(2, -1));
    }
    if (name == "splitlines") {
        const Bound bound(name, arguments, {});
        return make_sequence(budget, SequenceKind::kList, as_values(split_lines(budget, self)));
    }
    if (name == "find" || name == "index" || name == "count" || name == "removeprefix" ||
        name == "removesuffix") {
        const Bound bound(name, arguments, {"sub"}, 1);
        const Text& part = *bound.text(0);
        if (name == "find" || name == "index") {
            const std::int64_t position = position_of(budget, *self, part);
            if (position < 0 && name == "index") fail_type("substring not found");
            return position;
        }
        if (name == "count") return count_of(budget, *self, part);
        return remove_end(budget, self, part, name == "removeprefix");
    }
    const Bound bound(name, arguments, {});
    return call_case_method(budget, *self, name);
}

Value call_mapping_method(Budget& budget, const MappingPtr& self, std::string_view name,
                          const CallArguments& arguments) {
    if (name == "get") {
        const Bound bound(name, arguments, {"key", "default"}, 1);
        if (const Value* value = self->find(bound[0])) return *value;
        return bound.or_else(1, None{});
    }
    const Bound bound(name, arguments, {});
    if (name == "copy") return self;
    std::vector<Value> items;
    for (const auto& [key, value] : self->entries) {
        if (name == "keys") {
            items.push_back(key);
        } else if (name == "values") {
            items.push_back(value);
        } else {
            items.emplace_back(make_sequence(budget, SequenceKind::kTuple, {key, value}));
        }
    }
    const SequenceKind kind = name == "keys"     ? SequenceKind::kKeys
                              : name == "values" ? SequenceKind::kValues
                                                 : SequenceKind::kItems;
    return make_sequence(budget, kind, std::move(items));
}

Value call_list_method(Budget& budget, const Sequence& self, std::string_view name,
                       const CallArguments& arguments) {
    const Bound bound(name, arguments, {"value"}, 1);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < self.items.size(); ++i) {
        if (!is_equal(budget, self.items[i], bound[0])) continue;
        if (name == "index") return static_cast<std::int64_t>(i);
        ++count;
    }
    if (name == "index") fail_type("the value is not in the " + type_name(bound[0]));
    return count;
}

bool is_list(const Value& value) {
    const auto* sequence = value.get_if<SequencePtr>();
    return sequence != nullptr && (*sequence)->kind == SequenceKind::kList;
}

/// A list, tuple or range.
bool is_readable_list(const Value& value) {
    const auto* sequence = value.get_if<SequencePtr>();
    return sequence != nullptr && (*sequence)->is_indexable();
}

}  // namespace

std::optional<Value> find_method(const Value& object, std::string_view name) {
    const bool is_method = (object.is<TextPtr>() && is_one_of(kTextMethods, name)) ||
                           (object.is<MappingPtr>() && is_one_of(kMappingMethods, name)) ||
                           (is_readable_list(object) && is_one_of(kListMethods, name));
    if (is_method) return std::make_shared<const Callable>(Callable{std::string(name), object});
    const bool is_unsafe = (object.is<MappingPtr>() && is_one_of(kUnsafeMappingMethods, name)) ||
                           (is_list(object) && is_one_of(kUnsafeListMethods, name));
    if (!is_unsafe) return std::nullopt;
    return undefined("access to attribute " + repr_of(name) + " of " + repr_of(type_name(object)) +
                         " object is unsafe.",
                     TemplateErrorKind::kSecurity);
}

Value call_method(Interpreter& interpreter, const Callable& method,
                  const CallArguments& arguments) {
    Budget& budget = interpreter.budget();
    const Value& self = *method.self;
    if (const auto* text = self.get_if<TextPtr>()) {
        return call_text_method(budget, *text, method.name, arguments);
    }
    if (const auto* mapping = self.get_if<MappingPtr>()) {
        return call_mapping_method(budget, *mapping, method.name, arguments);
    }
    return call_list_method(budget, *self.get<SequencePtr>(), method.name, arguments);
}

}  // namespace replica::chat::jinja

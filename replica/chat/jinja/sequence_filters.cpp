// Filters that walk sequences. Those that are generators in Jinja give a sequence that can be
// walked once and has no length, as there.
#include <algorithm>

#include "replica/chat/jinja/filters.h"

namespace replica::chat::jinja::filters {

namespace {

Value generator(Interpreter& interpreter, std::vector<Value> items) {
    return make_sequence(interpreter.budget(), SequenceKind::kGenerator, std::move(items));
}

/// The arguments without the first `count` positional ones.
CallArguments rest_of(const CallArguments& arguments, std::size_t count) {
    CallArguments rest = arguments;
    rest.positional.erase(rest.positional.begin(),
                          rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
    return rest;
}

std::string name_argument(Interpreter& interpreter, const Value& value) {
    return jinja::to_text(interpreter.budget(), value)->bytes;
}

struct Selection {
    bool by_attribute = false;
    bool keeps_matches = true;
};

Value selected(Interpreter& interpreter, const Value& input, const CallArguments& arguments,
               Selection selection) {
    if (!is_true(input)) return generator(interpreter, {});
    const std::size_t test_at = selection.by_attribute ? 1 : 0;
    if (arguments.positional.size() < test_at) fail_type("Missing parameter for attribute name");
    const bool has_test = arguments.positional.size() > test_at;
    const std::string test =
        has_test ? name_argument(interpreter, arguments.positional[test_at]) : "";
    const CallArguments rest = has_test ? rest_of(arguments, test_at + 1) : CallArguments{};
    std::vector<Value> result;
    const SequencePtr items = iterate(interpreter.budget(), input);
    for (const Value& item : items->items) {
        interpreter.budget().charge_iteration();
        const Value subject = selection.by_attribute
                                  ? attribute_of(interpreter, item, arguments.positional[0])
                                  : item;
        const bool matches =
            has_test ? interpreter.call_test(test, subject, rest) : is_true(subject);
        if (matches == selection.keeps_matches) result.push_back(item);
    }
    return generator(interpreter, std::move(result));
}

}  // namespace

Value attribute_of(Interpreter& interpreter, const Value& value, const Value& path) {
    Budget& budget = interpreter.budget();
    if (path.as_integer()) return get_item(budget, value, path);
    const auto* text = path.get_if<TextPtr>();
    if (text == nullptr) return get_item(budget, value, path);
    const Text dot{".", {}, true};
    Value result = value;
    for (const TextPtr& part : jinja::split(budget, *text, &dot, -1)) {
        const bool is_number = !part->bytes.empty() && part->bytes.size() < 18 &&
                               std::all_of(part->bytes.begin(), part->bytes.end(),
                                           [](char c) { return c >= '0' && c <= '9'; });
        result = get_item(
            budget, result,
            is_number ? Value(static_cast<std::int64_t>(std::stoll(part->bytes))) : Value(part));
    }
    return result;
}

Value length(Interpreter&, const Value& input, const CallArguments& arguments) {
    const Bound bound("length", arguments, {});
    const auto* miss = input.get_if<Undefined>();
    if (miss != nullptr && miss->kind == TemplateErrorKind::kSecurity) fail_undefined(*miss);
    const std::optional<std::int64_t> length = length_of(input);
    if (!length) fail_type("object of type '" + type_name(input) + "' has no len()");
    return *length;
}

Value first(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("first", arguments, {});
    const auto* sequence = input.get_if<SequencePtr>();
    if (sequence != nullptr && (*sequence)->kind == SequenceKind::kGenerator) {
        // Takes one item and leaves the others.
        if ((*sequence)->taken < (*sequence)->items.size()) {
            return (*sequence)->items[(*sequence)->taken++];
        }
        return undefined("No first item, sequence was empty.");
    }
    if (const auto* text = input.get_if<TextPtr>(); text != nullptr && !(*text)->bytes.empty()) {
        return get_item(interpreter.budget(), input, std::int64_t{0});
    }
    const SequencePtr items = iterate(interpreter.budget(), input);
    if (items->items.empty()) return undefined("No first item, sequence was empty.");
    return items->items.front();
}

Value last(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("last", arguments, {});
    const auto* sequence = input.get_if<SequencePtr>();
    if (sequence != nullptr && (*sequence)->kind == SequenceKind::kGenerator) {
        fail_type("'generator' object is not reversible");
    }
    if (const auto* text = input.get_if<TextPtr>(); text != nullptr && !(*text)->bytes.empty()) {
        return get_item(interpreter.budget(), input, std::int64_t{-1});
    }
    const SequencePtr items = iterate(interpreter.budget(), input);
    if (items->items.empty()) return undefined("No last item, sequence was empty.");
    return items->items.back();
}

Value list(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("list", arguments, {});
    const SequencePtr items = iterate(interpreter.budget(), input);
    if (items->kind == SequenceKind::kList) return items;
    return make_sequence(interpreter.budget(), SequenceKind::kList, items->items);
}

Value join(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("join", arguments, {"d", "attribute"});
    Budget& budget = interpreter.budget();
    const TextPtr separator = bound.has(0) ? jinja::to_text(budget, bound[0]) : empty_text();
    const bool has_attribute = bound.has(1) && !bound[1].is_none();
    const SequencePtr items = iterate(budget, input);
    TextBuilder out(budget);
    bool is_first = true;
    for (const Value& item : items->items) {
        budget.charge_iteration();
        if (!is_first) out.append(*separator);
        is_first = false;
        append_text(budget, out, has_attribute ? attribute_of(interpreter, item, bound[1]) : item);
    }
    return out.finish();
}

Value items(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("items", arguments, {});
    std::vector<Value> pairs;
    if (const auto* mapping = input.get_if<MappingPtr>()) {
        for (const auto& [key, value] : (*mapping)->entries) {
            pairs.emplace_back(
                make_sequence(interpreter.budget(), SequenceKind::kTuple, {key, value}));
        }
    } else if (!input.is_undefined()) {
        fail_type("Can only get item pairs from a mapping.");
    }
    return generator(interpreter, std::move(pairs));
}

Value reverse(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("reverse", arguments, {});
    if (const auto* text = input.get_if<TextPtr>()) {
        return jinja::reversed(interpreter.budget(), **text);
    }
    std::vector<Value> result = iterate(interpreter.budget(), input)->items;
    std::reverse(result.begin(), result.end());
    return generator(interpreter, std::move(result));
}

Value map(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    std::vector<Value> result;
    if (!is_true(input)) return generator(interpreter, {});
    if (arguments.positional.empty()) {
        const Bound bound("map", arguments, {"attribute", "default"});
        if (!bound.has(0)) fail_type("map requires a filter argument");
        const SequencePtr items = iterate(interpreter.budget(), input);
        for (const Value& item : items->items) {
            interpreter.budget().charge_iteration();
            Value value = attribute_of(interpreter, item, bound[0]);
            if (value.is_undefined() && bound.has(1) && !bound[1].is_none()) value = bound[1];
            result.push_back(std::move(value));
        }
        return generator(interpreter, std::move(result));
    }
    const std::string filter = name_argument(interpreter, arguments.positional.front());
    const CallArguments rest = rest_of(arguments, 1);
    const SequencePtr items = iterate(interpreter.budget(), input);
    for (const Value& item : items->items) {
        interpreter.budget().charge_iteration();
        result.push_back(interpreter.call_filter(filter, item, rest));
    }
    return generator(interpreter, std::move(result));
}

Value select(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    return selected(interpreter, input, arguments, {.by_attribute = false, .keeps_matches = true});
}
Value reject(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    return selected(interpreter, input, arguments, {.by_attribute = false, .keeps_matches = false});
}
Value select_attribute(Interpreter& interpreter, const Value& input,
                       const CallArguments& arguments) {
    return selected(interpreter, input, arguments, {.by_attribute = true, .keeps_matches = true});
}
Value reject_attribute(Interpreter& interpreter, const Value& input,
                       const CallArguments& arguments) {
    return selected(interpreter, input, arguments, {.by_attribute = true, .keeps_matches = false});
}

}  // namespace replica::chat::jinja::filters

// Filters that order or sum up. Texts compare without case unless told otherwise, as in Jinja.
#include <algorithm>
#include <unordered_set>

#include "replica/chat/jinja/filters.h"

namespace replica::chat::jinja::filters {

namespace {

Value sort_key(Interpreter& interpreter, const Value& value, bool case_sensitive) {
    const auto* text = value.get_if<TextPtr>();
    if (text == nullptr || case_sensitive) return value;
    return map_case(interpreter.budget(), **text, Case::kLower);
}

/// Items with their sort keys, in stable order.
std::vector<Value> sorted(Interpreter& interpreter, std::vector<std::pair<Value, Value>> keyed,
                          bool is_reversed) {
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        const auto& [low, high] =
            is_reversed ? std::tie(b.first, a.first) : std::tie(a.first, b.first);
        return compare(interpreter.budget(), low, high, "<") == Order::kLess;
    });
    std::vector<Value> result;
    result.reserve(keyed.size());
    for (auto& [key, item] : keyed)
        result.push_back(std::move(item));
    return result;
}

Value extreme(Interpreter& interpreter, const Value& input, const CallArguments& arguments,
              Order wanted) {
    const bool is_minimum = wanted == Order::kLess;
    const Bound bound(is_minimum ? "min" : "max", arguments, {"case_sensitive", "attribute"});
    const SequencePtr items = iterate(interpreter.budget(), input);
    if (items->items.empty()) return undefined("No aggregated item, sequence was empty.");
    const Value* best = nullptr;
    Value best_key;
    for (const Value& item : items->items) {
        const Value subject = bound.has(1) ? attribute_of(interpreter, item, bound[1]) : item;
        Value key = sort_key(interpreter, subject, bound.flag(0));
        const bool is_better = best == nullptr || compare(interpreter.budget(), key, best_key,
                                                          is_minimum ? "<" : ">") == wanted;
        if (!is_better) continue;
        best = &item;
        best_key = std::move(key);
    }
    return *best;
}

}  // namespace

Value dictsort(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
    require_defined(input);
    const auto* mapping = input.get_if<MappingPtr>();
    if (mapping == nullptr) fail_type("'" + type_name(input) + "' object has no attribute 'items'");
    const std::string by = bound.has(1) ? bound.text(1)->bytes : "key";
    if (by != "key" && by != "value") fail_type("You can only sort by either \"key\" or \"value\"");
    std::vector<std::pair<Value, Value>> keyed;
    for (const auto& [key, value] : (*mapping)->entries) {
        keyed.emplace_back(sort_key(interpreter, by == "key" ? key : value, bound.flag(0)),
                           make_sequence(interpreter.budget(), SequenceKind::kTuple, {key, value}));
    }
    return make_sequence(interpreter.budget(), SequenceKind::kList,
                         sorted(interpreter, std::move(keyed), bound.flag(2)));
}

Value sort(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
    std::vector<std::pair<Value, Value>> keyed;
    const SequencePtr items = iterate(interpreter.budget(), input);
    for (const Value& item : items->items) {
        const bool has_attribute = bound.has(2) && !bound[2].is_none();
        const Value subject = has_attribute ? attribute_of(interpreter, item, bound[2]) : item;
        keyed.emplace_back(sort_key(interpreter, subject, bound.flag(1)), item);
    }
    return make_sequence(interpreter.budget(), SequenceKind::kList,
                         sorted(interpreter, std::move(keyed), bound.flag(0)));
}

Value unique(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
    std::unordered_set<std::string> seen;
    std::vector<Value> result;
    const SequencePtr items = iterate(interpreter.budget(), input);
    for (const Value& item : items->items) {
        const bool has_attribute = bound.has(1) && !bound[1].is_none();
        const Value subject = has_attribute ? attribute_of(interpreter, item, bound[1]) : item;
        const auto key = hash_key(sort_key(interpreter, subject, bound.flag(0)));
        if (!key) fail_type("unhashable type: '" + type_name(subject) + "'");
        interpreter.budget().charge_bytes(key->size());
        if (seen.insert(*key).second) result.push_back(item);
    }
    return make_sequence(interpreter.budget(), SequenceKind::kGenerator, std::move(result));
}

Value sum(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("sum", arguments, {"attribute", "start"});
    const bool has_attribute = bound.has(0) && !bound[0].is_none();
    Value total = bound.or_else(1, std::int64_t{0});
    const SequencePtr items = iterate(interpreter.budget(), input);
    for (const Value& item : items->items) {
        interpreter.budget().charge_iteration();
        total = arithmetic(interpreter.budget(), Arithmetic::Op::kAdd, total,
                           has_attribute ? attribute_of(interpreter, item, bound[0]) : item);
    }
    return total;
}

Value minimum(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    return extreme(interpreter, input, arguments, Order::kLess);
}
Value maximum(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    return extreme(interpreter, input, arguments, Order::kGreater);
}

}  // namespace replica::chat::jinja::filters

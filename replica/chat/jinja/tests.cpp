// Tests: what stands behind `is`.
#include <array>
#include <cmath>
#include <unordered_map>

#include "replica/chat/jinja/arguments.h"

namespace replica::chat::jinja {

namespace {

using TestFunction = bool (*)(Interpreter&, const Value&, const CallArguments&);

/// A test without arguments.
template <bool (*kHolds)(const Value&)>
bool plain(Interpreter&, const Value& value, const CallArguments& arguments) {
    const Bound bound("test", arguments, {});
    return kHolds(value);
}

/// A test that compares with its one argument.
template <bool (*kHolds)(Budget&, const Value&, const Value&)>
bool against(Interpreter& interpreter, const Value& value, const CallArguments& arguments) {
    const Bound bound("test", arguments, {"other"}, 1);
    return kHolds(interpreter.budget(), value, bound[0]);
}

bool is_defined(const Value& value) {
    return !value.is_undefined();
}
bool is_undefined(const Value& value) {
    return value.is_undefined();
}
bool is_none(const Value& value) {
    return value.is_none();
}
bool is_string(const Value& value) {
    return value.is<TextPtr>();
}
bool is_mapping(const Value& value) {
    return value.is<MappingPtr>();
}
bool is_number(const Value& value) {
    return value.is_number();
}
bool is_integer(const Value& value) {
    return value.is<std::int64_t>();
}
bool is_float(const Value& value) {
    return value.is<double>();
}
bool is_boolean(const Value& value) {
    return value.is<bool>();
}
bool is_exactly_true(const Value& value) {
    return value.is<bool>() && value.get<bool>();
}
bool is_exactly_false(const Value& value) {
    return value.is<bool>() && !value.get<bool>();
}
bool is_callable(const Value& value) {
    // Undefined has a call operator, if only to complain.
    return value.is<const Macro*>() || value.is<CallablePtr>() || value.is_undefined();
}
bool is_iterable(const Value& value) {
    return value.is<TextPtr>() || value.is<MappingPtr>() || value.is<SequencePtr>() ||
           value.is<Loop*>() || value.is_undefined();
}
bool is_sequence(const Value& value) {
    if (const auto* sequence = value.get_if<SequencePtr>()) return (*sequence)->is_indexable();
    return value.is<TextPtr>() || value.is<MappingPtr>() || value.is_undefined();
}

bool leaves_rest(Budget& budget, const Value& value, std::int64_t divisor, std::int64_t rest) {
    const Value result = arithmetic(budget, Arithmetic::Op::kModulo, value, divisor);
    return is_equal(budget, result, rest);
}
bool is_odd(Interpreter& interpreter, const Value& value, const CallArguments&) {
    return leaves_rest(interpreter.budget(), value, 2, 1);
}
bool is_even(Interpreter& interpreter, const Value& value, const CallArguments&) {
    return leaves_rest(interpreter.budget(), value, 2, 0);
}
bool is_divisible(Budget& budget, const Value& value, const Value& divisor) {
    const Value result = arithmetic(budget, Arithmetic::Op::kModulo, value, divisor);
    return is_equal(budget, result, std::int64_t{0});
}

bool has_case(Interpreter& interpreter, const Value& value, Case to) {
    const TextPtr text = to_text(interpreter.budget(), value);
    // Python's isupper: unchanged by the mapping, and there is a letter with case.
    const TextPtr other =
        map_case(interpreter.budget(), *text, to == Case::kUpper ? Case::kLower : Case::kUpper);
    return map_case(interpreter.budget(), *text, to)->bytes == text->bytes &&
           other->bytes != text->bytes;
}
bool is_upper(Interpreter& interpreter, const Value& value, const CallArguments&) {
    return has_case(interpreter, value, Case::kUpper);
}
bool is_lower(Interpreter& interpreter, const Value& value, const CallArguments&) {
    return has_case(interpreter, value, Case::kLower);
}

bool is_different(Budget& budget, const Value& a, const Value& b) {
    return !is_equal(budget, a, b);
}
bool is_less(Budget& budget, const Value& a, const Value& b) {
    return compare(budget, a, b, "<") == Order::kLess;
}
bool is_greater(Budget& budget, const Value& a, const Value& b) {
    return compare(budget, a, b, ">") == Order::kGreater;
}
bool is_less_or_equal(Budget& budget, const Value& a, const Value& b) {
    const Order order = compare(budget, a, b, "<=");
    return order == Order::kLess || order == Order::kEqual;
}
bool is_greater_or_equal(Budget& budget, const Value& a, const Value& b) {
    const Order order = compare(budget, a, b, ">=");
    return order == Order::kGreater || order == Order::kEqual;
}
bool is_in(Budget& budget, const Value& item, const Value& container) {
    return contains(budget, container, item);
}
bool is_same(Budget& budget, const Value& a, const Value& b) {
    return a.variant().index() == b.variant().index() && is_equal(budget, a, b);
}

const std::unordered_map<std::string_view, TestFunction>& tests() {
    static const std::unordered_map<std::string_view, TestFunction> kTests = {
        {"defined", plain<is_defined>},
        {"undefined", plain<is_undefined>},
        {"none", plain<is_none>},
        {"string", plain<is_string>},
        {"mapping", plain<is_mapping>},
        {"iterable", plain<is_iterable>},
        {"sequence", plain<is_sequence>},
        {"number", plain<is_number>},
        {"integer", plain<is_integer>},
        {"float", plain<is_float>},
        {"boolean", plain<is_boolean>},
        {"true", plain<is_exactly_true>},
        {"false", plain<is_exactly_false>},
        {"callable", plain<is_callable>},
        {"odd", is_odd},
        {"even", is_even},
        {"upper", is_upper},
        {"lower", is_lower},
        {"divisibleby", against<is_divisible>},
        {"equalto", against<is_equal>},
        {"eq", against<is_equal>},
        {"==", against<is_equal>},
        {"ne", against<is_different>},
        {"!=", against<is_different>},
        {"lt", against<is_less>},
        {"lessthan", against<is_less>},
        {"<", against<is_less>},
        {"le", against<is_less_or_equal>},
        {"<=", against<is_less_or_equal>},
        {"gt", against<is_greater>},
        {"greaterthan", against<is_greater>},
        {">", against<is_greater>},
        {"ge", against<is_greater_or_equal>},
        {">=", against<is_greater_or_equal>},
        {"in", against<is_in>},
        {"sameas", against<is_same>},
    };
    return kTests;
}

}  // namespace

bool is_test(std::string_view name) {
    return tests().contains(name);
}

bool Interpreter::call_test(std::string_view name, const Value& input,
                            const CallArguments& arguments) {
    const auto test = tests().find(name);
    if (test == tests().end()) {
        throw Fault(TemplateErrorKind::kUnknownName, "No test named " + repr_of(name) + ".");
    }
    return test->second(*this, input, arguments);
}

}  // namespace replica::chat::jinja

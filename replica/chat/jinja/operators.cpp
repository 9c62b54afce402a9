// Arithmetic and membership, with Python's rules: 64 bit integers that never wrap, true division,
// // and % toward minus infinity.
#include <cmath>

#include "replica/chat/jinja/interpreter.h"

namespace replica::chat::jinja {

namespace {

[[noreturn]] void fail_arithmetic(std::string message) {
    throw Fault(TemplateErrorKind::kArithmetic, std::move(message));
}

[[noreturn]] void fail_overflow() {
    fail_arithmetic("the result needs more than 64 bits");
}

std::string_view spelling_of(Arithmetic::Op op) {
    static constexpr std::string_view kSpellings[] = {"+", "-", "*", "/", "//", "%"};
    return kSpellings[static_cast<std::size_t>(op)];
}

[[noreturn]] void fail_operands(Arithmetic::Op op, const Value& left, const Value& right) {
    fail_type("unsupported operand type(s) for " + std::string(spelling_of(op)) + ": '" +
              type_name(left) + "' and '" + type_name(right) + "'");
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
    if (b == -1) {  // the one quotient that may not fit
        std::int64_t result = 0;
        if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) fail_overflow();
        return result;
    }
    const std::int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t modulo(std::int64_t a, std::int64_t b) {
    if (b == -1) return 0;
    const std::int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double modulo(double a, double b) {
    const double rest = std::fmod(a, b);
    if (rest == 0.0) return std::copysign(0.0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_divide(double a, double b) {
    const double quotient = (a - modulo(a, b)) / b;
    if (quotient == 0.0) return std::copysign(0.0, a / b);
    const double whole = std::floor(quotient);
    return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

Value integer_arithmetic(Arithmetic::Op op, std::int64_t a, std::int64_t b) {
    using Op = Arithmetic::Op;
    std::int64_t result = 0;
    bool overflows = false;
    switch (op) {
        case Op::kAdd:
            overflows = __builtin_add_overflow(a, b, &result);
            break;
        case Op::kSubtract:
            overflows = __builtin_sub_overflow(a, b, &result);
            break;
        case Op::kMultiply:
            overflows = __builtin_mul_overflow(a, b, &result);
            break;
        case Op::kDivide:
            if (b == 0) fail_arithmetic("division by zero");
            return static_cast<double>(a) / static_cast<double>(b);
        case Op::kFloorDivide:
            if (b == 0) fail_arithmetic("integer division or modulo by zero");
            return floor_divide(a, b);
        case Op::kModulo:
            if (b == 0) fail_arithmetic("integer modulo by zero");
            return modulo(a, b);
    }
    if (overflows) fail_overflow();
    return result;
}

Value float_arithmetic(Arithmetic::Op op, double a, double b) {
    using Op = Arithmetic::Op;
    switch (op) {
        case Op::kAdd:
            return a + b;
        case Op::kSubtract:
            return a - b;
        case Op::kMultiply:
            return a * b;
        case Op::kDivide:
            if (b == 0.0) fail_arithmetic("float division by zero");
            return a / b;
        case Op::kFloorDivide:
            if (b == 0.0) fail_arithmetic("float floor division by zero");
            return floor_divide(a, b);
        case Op::kModulo:
            break;
    }
    if (b == 0.0) fail_arithmetic("float modulo");
    return modulo(a, b);
}

/// Text, list or tuple times integer; nothing for other operands.
std::optional<Value> repeat(Budget& budget, const Value& value, const Value& count_value) {
    const std::optional<std::int64_t> count = count_value.as_integer();
    if (!count) return std::nullopt;
    const std::size_t times = *count > 0 ? static_cast<std::size_t>(*count) : 0;
    if (const auto* text = value.get_if<TextPtr>()) {
        std::size_t bytes = 0;
        if (__builtin_mul_overflow((*text)->bytes.size(), times, &bytes)) bytes = SIZE_MAX;
        budget.check_text(bytes);
        TextBuilder builder(budget);
        for (std::size_t i = 0; bytes > 0 && i < times; ++i)
            builder.append(**text);
        return builder.finish();
    }
    const auto* sequence = value.get_if<SequencePtr>();
    if (sequence == nullptr ||
        ((*sequence)->kind != SequenceKind::kList && (*sequence)->kind != SequenceKind::kTuple)) {
        return std::nullopt;
    }
    std::vector<Value> items;
    for (std::size_t i = 0; !(*sequence)->items.empty() && i < times; ++i) {
        budget.charge_elements((*sequence)->items.size());
        items.insert(items.end(), (*sequence)->items.begin(), (*sequence)->items.end());
    }
    return make_sequence(budget, (*sequence)->kind, std::move(items));
}

std::optional<Value> join(Budget& budget, const Value& left, const Value& right) {
    const auto* text = left.get_if<TextPtr>();
    if (text != nullptr) {
        const auto* other = right.get_if<TextPtr>();
        if (other == nullptr) {
            fail_type("can only concatenate str (not \"" + type_name(right) + "\") to str");
        }
        TextBuilder builder(budget);
        builder.append(**text);
        builder.append(**other);
        return builder.finish();
    }
    const auto* sequence = left.get_if<SequencePtr>();
    if (sequence == nullptr ||
        ((*sequence)->kind != SequenceKind::kList && (*sequence)->kind != SequenceKind::kTuple)) {
        return std::nullopt;
    }
    const auto* other = right.get_if<SequencePtr>();
    if (other == nullptr || (*other)->kind != (*sequence)->kind) {
        const std::string name = type_name(left);
        fail_type("can only concatenate " + name + " (not \"" + type_name(right) + "\") to " +
                  name);
    }
    budget.charge_elements((*sequence)->items.size() + (*other)->items.size());
    std::vector<Value> items = (*sequence)->items;
    items.insert(items.end(), (*other)->items.begin(), (*other)->items.end());
    return make_sequence(budget, (*sequence)->kind, std::move(items));
}

bool contains_item(Budget& budget, const Sequence& sequence, const Value& item) {
    for (const Value& candidate : sequence.items) {
        if (is_equal(budget, candidate, item)) return true;
    }
    return false;
}

}  // namespace

Value arithmetic(Budget& budget, Arithmetic::Op op, const Value& left, const Value& right) {
    if (op == Arithmetic::Op::kModulo && left.is<TextPtr>()) {
        fail_type("formatting a str with % is not supported");
    }
    require_defined(left);
    require_defined(right);
    if (left.is_number() && right.is_number()) {
        const auto a = left.as_integer();
        const auto b = right.as_integer();
        if (a && b) return integer_arithmetic(op, *a, *b);
        return float_arithmetic(op, left.as_double(), right.as_double());
    }
    std::optional<Value> result;
    if (op == Arithmetic::Op::kAdd) result = join(budget, left, right);
    if (op == Arithmetic::Op::kMultiply) {
        result = repeat(budget, left, right);
        if (!result) result = repeat(budget, right, left);
    }
    if (!result) fail_operands(op, left, right);
    return std::move(*result);
}

Value negate(const Value& value, Unary::Op op) {
    require_defined(value);
    const bool is_minus = op == Unary::Op::kMinus;
    if (const auto integer = value.as_integer()) {
        std::int64_t result = 0;
        if (!is_minus) return *integer;
        if (__builtin_sub_overflow(std::int64_t{0}, *integer, &result)) fail_overflow();
        return result;
    }
    if (const auto* real = value.get_if<double>()) return is_minus ? -*real : *real;
    fail_type(std::string("bad operand type for unary ") + (is_minus ? "-" : "+") + ": '" +
              type_name(value) + "'");
}

bool contains(Budget& budget, const Value& container, const Value& item) {
    if (const auto* text = container.get_if<TextPtr>()) {
        const auto* part = item.get_if<TextPtr>();
        if (part == nullptr) {
            fail_type("'in <string>' requires string as left operand, not " + type_name(item));
        }
        budget.charge_bytes((*text)->bytes.size());
        return find_bytes((*text)->bytes, (*part)->bytes) != std::string_view::npos;
    }
    if (const auto* mapping = container.get_if<MappingPtr>()) {
        return (*mapping)->find(item) != nullptr;
    }
    if (container.is<SequencePtr>() || container.is_undefined()) {
        return contains_item(budget, *iterate(budget, container), item);
    }
    fail_type("argument of type '" + type_name(container) + "' is not iterable");
}

}  // namespace replica::chat::jinja

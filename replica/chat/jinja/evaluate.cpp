// Expressions: one small function for each kind of node.
#include <algorithm>

#include "replica/chat/jinja/interpreter.h"
#include "replica/chat/jinja/scopes.h"

namespace replica::chat::jinja {

Value Interpreter::evaluate(const Expression& expression) {
    const DepthScope depth(depth_);
    budget_.charge_nodes(1);
    const int outer_line = line_;  // an error leaves line_ where it happened
    line_ = expression.line;
    Value value =
        std::visit([this](const auto& node) { return evaluate_node(node); }, expression.node);
    line_ = outer_line;
    return value;
}

Value Interpreter::evaluate_node(const Literal& node) {
    return node.value;
}

Value Interpreter::evaluate_node(const Name& node) {
    return look_up(node.id);
}

Value Interpreter::evaluate_node(const SequenceDisplay& node) {
    std::vector<Value> items;
    items.reserve(node.items.size());
    for (const ExpressionPtr& item : node.items)
        items.push_back(evaluate(*item));
    const SequenceKind kind = node.is_tuple ? SequenceKind::kTuple : SequenceKind::kList;
    return make_sequence(budget_, kind, std::move(items));
}

Value Interpreter::evaluate_node(const MappingDisplay& node) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key, value] : node.entries) {
        Value evaluated_key = evaluate(*key);
        entries.emplace_back(std::move(evaluated_key), evaluate(*value));
    }
    return make_mapping(budget_, std::move(entries));
}

Value Interpreter::evaluate_node(const Unary& node) {
    const Value operand = evaluate(*node.operand);
    if (node.op == Unary::Op::kNot) return !is_true(operand);
    return negate(operand, node.op);
}

Value Interpreter::evaluate_node(const Arithmetic& node) {
    const Value left = evaluate(*node.left);
    const Value right = evaluate(*node.right);
    return arithmetic(budget_, node.op, left, right);
}

Value Interpreter::evaluate_node(const Logic& node) {
    Value left = evaluate(*node.left);
    return is_true(left) == node.is_and ? evaluate(*node.right) : left;
}

Value Interpreter::evaluate_node(const Comparison& node) {
    using Op = Comparison::Op;
    const auto holds = [this](Op op, const Value& left, const Value& right) {
        switch (op) {
            case Op::kEqual:
                return is_equal(budget_, left, right);
            case Op::kNotEqual:
                return !is_equal(budget_, left, right);
            case Op::kLess:
                return compare(budget_, left, right, "<") == Order::kLess;
            case Op::kGreater:
                return compare(budget_, left, right, ">") == Order::kGreater;
            case Op::kLessEqual: {
                const Order order = compare(budget_, left, right, "<=");
                return order == Order::kLess || order == Order::kEqual;
            }
            case Op::kGreaterEqual: {
                const Order order = compare(budget_, left, right, ">=");
                return order == Order::kGreater || order == Order::kEqual;
            }
            case Op::kIn:
                return contains(budget_, right, left);
            case Op::kNotIn:
                break;
        }
        return !contains(budget_, right, left);
    };
    Value left = evaluate(*node.first);
    for (const auto& [op, expression] : node.rest) {
        Value right = evaluate(*expression);
        if (!holds(op, left, right)) return false;
        left = std::move(right);
    }
    return true;
}

Value Interpreter::evaluate_node(const Concatenation& node) {
    // All parts first: an error in a later one comes before any text is made.
    std::vector<Value> parts;
    parts.reserve(node.parts.size());
    for (const ExpressionPtr& part : node.parts)
        parts.push_back(evaluate(*part));
    TextBuilder out(budget_);
    for (const Value& part : parts)
        append_text(budget_, out, part);
    return out.finish();
}

Value Interpreter::evaluate_node(const Conditional& node) {
    if (is_true(evaluate(*node.condition))) return evaluate(*node.when_true);
    if (node.when_false) return evaluate(*node.when_false);
    return undefined("the inline if-expression on line " + std::to_string(line_) +
                     " evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate_node(const Attribute& node) {
    return get_attribute(budget_, evaluate(*node.object), node.name);
}

Value Interpreter::evaluate_node(const Item& node) {
    const Value object = evaluate(*node.object);
    return get_item(budget_, object, evaluate(*node.index));
}

Value Interpreter::evaluate_node(const Slice& node) {
    const auto bound = [this](const ExpressionPtr& expression) -> Value {
        return expression ? evaluate(*expression) : Value(None{});
    };
    const Value object = evaluate(*node.object);
    SliceBounds bounds;
    bounds.begin = bound(node.begin);
    bounds.end = bound(node.end);
    bounds.step = bound(node.step);
    return get_slice(budget_, object, bounds);
}

Value Interpreter::evaluate_node(const Call& node) {
    const Value callee = evaluate(*node.callee);
    return call(callee, evaluate_arguments(node.arguments));
}

Value Interpreter::evaluate_node(const FilterCall& node) {
    const Value input = evaluate(*node.input);
    return call_filter(node.name, input, evaluate_arguments(node.arguments));
}

Value Interpreter::evaluate_node(const TestCall& node) {
    const Value input = evaluate(*node.input);
    return call_test(node.name, input, evaluate_arguments(node.arguments));
}

CallArguments Interpreter::evaluate_arguments(const Arguments& arguments) {
    CallArguments result;
    for (const ExpressionPtr& argument : arguments.positional) {
        result.positional.push_back(evaluate(*argument));
    }
    for (const auto& keyword : arguments.keyword) {
        const std::string& name = keyword.first;
        const bool is_repeated = std::any_of(result.keyword.begin(), result.keyword.end(),
                                             [&](const auto& item) { return item.first == name; });
        if (is_repeated) fail_type("keyword argument repeated: " + name);
        result.keyword.emplace_back(name, evaluate(*keyword.second));
    }
    return result;
}

Value Interpreter::call(const Value& callee, const CallArguments& arguments) {
    require_defined(callee);
    if (const auto* macro = callee.get_if<const Macro*>()) return call_macro(**macro, arguments);
    if (const auto* callable = callee.get_if<CallablePtr>()) {
        if ((*callable)->self) return call_method(*this, **callable, arguments);
        return call_function(*this, (*callable)->name, arguments);
    }
    fail_type("'" + type_name(callee) + "' object is not callable");
}

}  // namespace replica::chat::jinja

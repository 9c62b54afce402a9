// Equality and order of values, as Python has them.
#include <cmath>

#include "replica/chat/jinja/value.h"

namespace replica::chat::jinja {

namespace {

Order order_of(double left, double right) {
    if (left < right) return Order::kLess;
    if (left > right) return Order::kGreater;
    return left == right ? Order::kEqual : Order::kUnordered;
}

/// Exact: a double cannot hold every 64 bit integer, so the integer is never rounded.
Order compare_exactly(std::int64_t integer, double real) {
    if (std::isnan(real)) return Order::kUnordered;
    if (real >= 9223372036854775808.0) return Order::kLess;
    if (real < -9223372036854775808.0) return Order::kGreater;
    const double whole = std::trunc(real);
    const auto other = static_cast<std::int64_t>(whole);
    if (integer != other) return integer < other ? Order::kLess : Order::kGreater;
    return order_of(whole, real);
}

Order mirrored(Order order) {
    if (order == Order::kLess) return Order::kGreater;
    return order == Order::kGreater ? Order::kLess : order;
}

Order compare_numbers(const Value& left, const Value& right) {
    const auto a = left.as_integer();
    const auto b = right.as_integer();
    if (a && b) return *a < *b ? Order::kLess : (*a > *b ? Order::kGreater : Order::kEqual);
    if (a) return compare_exactly(*a, right.as_double());
    if (b) return mirrored(compare_exactly(*b, left.as_double()));
    return order_of(left.as_double(), right.as_double());
}

bool equal_mappings(Budget& budget, const Mapping& left, const Mapping& right) {
    if (left.entries.size() != right.entries.size()) return false;
    for (const auto& [key, position] : left.index) {
        budget.charge_nodes(1);
        const auto other = right.index.find(key);
        if (other == right.index.end() ||
            !is_equal(budget, left.entries[position].second, right.entries[other->second].second)) {
            return false;
        }
    }
    return true;
}

/// Dictionary keys and items compare as sets in Python; templates do not, so order counts here.
bool equal_sequences(Budget& budget, const Sequence& left, const Sequence& right) {
    if (left.kind != right.kind || left.items.size() != right.items.size()) return false;
    if (left.kind == SequenceKind::kGenerator || left.kind == SequenceKind::kValues) {
        return &left == &right;
    }
    for (std::size_t i = 0; i < left.items.size(); ++i) {
        if (!is_equal(budget, left.items[i], right.items[i])) return false;
    }
    return true;
}

}  // namespace

bool is_equal(Budget& budget, const Value& left, const Value& right) {
    budget.charge_nodes(1);
    if (left.is_number() && right.is_number()) {
        return compare_numbers(left, right) == Order::kEqual;
    }
    if (left.variant().index() != right.variant().index()) return false;
    if (const auto* text = left.get_if<TextPtr>()) {
        const std::string& other = right.get<TextPtr>()->bytes;
        if ((*text)->bytes.size() == other.size()) budget.charge_bytes(other.size());
        return (*text)->bytes == other;
    }
    if (const auto* sequence = left.get_if<SequencePtr>()) {
        return equal_sequences(budget, **sequence, *right.get<SequencePtr>());
    }
    if (const auto* mapping = left.get_if<MappingPtr>()) {
        return equal_mappings(budget, **mapping, *right.get<MappingPtr>());
    }
    if (const auto* space = left.get_if<Namespace*>()) return *space == right.get<Namespace*>();
    if (const auto* loop = left.get_if<Loop*>()) return *loop == right.get<Loop*>();
    if (const auto* macro = left.get_if<const Macro*>()) return *macro == right.get<const Macro*>();
    if (const auto* callable = left.get_if<CallablePtr>()) {
        const Callable& other = *right.get<CallablePtr>();
        return !(*callable)->self && !other.self && (*callable)->name == other.name;
    }
    return true;  // both undefined or both none
}

Order compare(Budget& budget, const Value& left, const Value& right, std::string_view operation) {
    budget.charge_nodes(1);
    require_defined(left);
    require_defined(right);
    if (left.is_number() && right.is_number()) return compare_numbers(left, right);
    const auto* left_text = left.get_if<TextPtr>();
    const auto* right_text = right.get_if<TextPtr>();
    if (left_text != nullptr && right_text != nullptr) {
        // The order of UTF-8 bytes is the order of code points.
        budget.charge_bytes((*left_text)->bytes.size());
        const int order = (*left_text)->bytes.compare((*right_text)->bytes);
        return order < 0 ? Order::kLess : (order > 0 ? Order::kGreater : Order::kEqual);
    }
    const auto* left_list = left.get_if<SequencePtr>();
    const auto* right_list = right.get_if<SequencePtr>();
    if (left_list != nullptr && right_list != nullptr &&
        (*left_list)->kind == (*right_list)->kind &&
        ((*left_list)->kind == SequenceKind::kList || (*left_list)->kind == SequenceKind::kTuple)) {
        const std::vector<Value>& a = (*left_list)->items;
        const std::vector<Value>& b = (*right_list)->items;
        for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
            if (!is_equal(budget, a[i], b[i])) return compare(budget, a[i], b[i], operation);
        }
        if (a.size() == b.size()) return Order::kEqual;
        return a.size() < b.size() ? Order::kLess : Order::kGreater;
    }
    fail_type("'" + std::string(operation) + "' not supported between instances of '" +
              type_name(left) + "' and '" + type_name(right) + "'");
}

}  // namespace replica::chat::jinja

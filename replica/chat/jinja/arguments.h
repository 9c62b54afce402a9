// Matching the arguments of a call to the parameters of a filter, test, method or function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/chat/jinja/interpreter.h"

namespace replica::chat::jinja {

/// The arguments of one call by position; what was not given is none.
class Bound {
public:
    Bound(std::string_view callee, const CallArguments& arguments,
          std::initializer_list<std::string_view> parameters, std::size_t required = 0);

    bool has(std::size_t index) const { return values_[index].has_value(); }
    /// The value of a parameter that was given.
    const Value& operator[](std::size_t index) const { return *values_[index]; }
    Value or_else(std::size_t index, Value otherwise) const {
        return values_[index] ? *values_[index] : std::move(otherwise);
    }
    bool flag(std::size_t index, bool otherwise = false) const {
        return values_[index] ? is_true(*values_[index]) : otherwise;
    }
    /// Throws kType when the argument is no integer.
    std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
    /// Throws kType when the argument is no text.
    const TextPtr& text(std::size_t index) const;

private:
    std::string callee_;
    std::vector<std::optional<Value>> values_;
};

}  // namespace replica::chat::jinja

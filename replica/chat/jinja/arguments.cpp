#include "replica/chat/jinja/arguments.h"

#include <algorithm>

namespace replica::chat::jinja {

Bound::Bound(std::string_view callee, const CallArguments& arguments,
             std::initializer_list<std::string_view> parameters, std::size_t required)
    : callee_(callee), values_(parameters.size()) {
    if (arguments.positional.size() > parameters.size()) {
        fail_type(callee_ + "() takes at most " + std::to_string(parameters.size()) +
                  " argument(s) (" + std::to_string(arguments.positional.size()) + " given)");
    }
    for (std::size_t i = 0; i < arguments.positional.size(); ++i)
        values_[i] = arguments.positional[i];
    for (const auto& [name, value] : arguments.keyword) {
        const auto* const place = std::find(parameters.begin(), parameters.end(), name);
        if (place == parameters.end()) {
            fail_type(callee_ + "() got an unexpected keyword argument " + repr_of(name));
        }
        std::optional<Value>& slot = values_[static_cast<std::size_t>(place - parameters.begin())];
        if (slot) fail_type(callee_ + "() got multiple values for argument " + repr_of(name));
        slot = value;
    }
    for (std::size_t i = 0; i < required; ++i) {
        if (!values_[i]) {
            fail_type(callee_ + "() missing 1 required positional argument: " +
                      repr_of(*(parameters.begin() + i)));
        }
    }
}

std::int64_t Bound::integer(std::size_t index, std::int64_t otherwise) const {
    if (!values_[index]) return otherwise;
    const std::optional<std::int64_t> integer = values_[index]->as_integer();
    if (!integer) {
        fail_type("'" + type_name(*values_[index]) +
                  "' object cannot be interpreted as an integer");
    }
    return *integer;
}

const TextPtr& Bound::text(std::size_t index) const {
    const auto* text = values_[index]->get_if<TextPtr>();
    if (text == nullptr) {
        fail_type(callee_ + "() argument must be str, not " + type_name(*values_[index]));
    }
    return *text;
}

}  // namespace replica::chat::jinja

#include "replica/chat/jinja/filters.h"

#include <unordered_map>

namespace replica::chat::jinja {

namespace {

const std::unordered_map<std::string_view, filters::Filter>& table() {
    static const std::unordered_map<std::string_view, filters::Filter> kFilters = {
        {"trim", filters::trim},
        {"upper", filters::upper},
        {"lower", filters::lower},
        {"capitalize", filters::capitalize},
        {"title", filters::title},
        {"replace", filters::replace},
        {"indent", filters::indent},
        {"string", filters::string},
        {"safe", filters::string},  // nothing is escaped, so there is nothing to be safe from
        {"tojson", filters::to_json},
        {"default", filters::default_value},
        {"d", filters::default_value},
        {"int", filters::integer},
        {"float", filters::real},
        {"abs", filters::absolute},
        {"round", filters::round},
        {"length", filters::length},
        {"count", filters::length},
        {"first", filters::first},
        {"last", filters::last},
        {"list", filters::list},
        {"join", filters::join},
        {"items", filters::items},
        {"reverse", filters::reverse},
        {"map", filters::map},
        {"select", filters::select},
        {"reject", filters::reject},
        {"selectattr", filters::select_attribute},
        {"rejectattr", filters::reject_attribute},
        {"dictsort", filters::dictsort},
        {"sort", filters::sort},
        {"unique", filters::unique},
        {"sum", filters::sum},
        {"min", filters::minimum},
        {"max", filters::maximum},
    };
    return kFilters;
}

}  // namespace

bool is_filter(std::string_view name) {
    return table().contains(name);
}

Value Interpreter::call_filter(std::string_view name, const Value& input,
                               const CallArguments& arguments) {
    const auto filter = table().find(name);
    if (filter == table().end()) {
        throw Fault(TemplateErrorKind::kUnknownName, "No filter named " + repr_of(name) + ".");
    }
    return filter->second(*this, input, arguments);
}

}  // namespace replica::chat::jinja

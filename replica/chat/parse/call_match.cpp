// When a call is a call: nothing is decided before a continuation could no longer change it.
#include "replica/chat/parse/call_parser.h"
#include "replica/chat/parse/tool_object_scanner.h"

namespace replica::chat::parse {

namespace {

CallMatch match_xml_call(std::string_view text, const CallSearch& search) {
    CallMatch match;
    Cursor cursor{text};
    const Fit tag = cursor.read("<tool_call>");
    if (tag != Fit::kFull) return {tag, 0, {}};
    cursor.skip_whitespace();
    match.fit = cursor.read("<function=");
    if (match.fit == Fit::kFull) match.fit = cursor.read_name(match.name);
    if (match.fit == Fit::kFull && search.in_reasoning && !search.tools->is_declared(match.name)) {
        match.fit = Fit::kNo;
    }
    match.end = cursor.at;
    return match;
}

/// `<function=NAME>` without its opening tag: the name is declared, a parameter or the end follows.
CallMatch match_bare_function(std::string_view text, const CallSearch& search) {
    CallMatch match;
    Cursor cursor{text};
    match.fit = cursor.read("<function=");
    if (match.fit == Fit::kFull) match.fit = cursor.read_name(match.name);
    if (match.fit != Fit::kFull) return match;
    if (!search.tools->is_declared(match.name)) return {};
    match.end = cursor.at;
    cursor.skip_whitespace();
    const Fit parameter = Cursor{text, cursor.at}.read("<parameter=");
    const Fit close = Cursor{text, cursor.at}.read("</function>");
    match.fit = parameter == Fit::kNo ? close : parameter;
    return match;
}

enum class Needs { kName, kNameAndArguments };

/// An object whose opening brace is at `begin`, read until it is known to be a call or not.
CallMatch match_object(std::string_view text, std::size_t begin, const CallSearch& search,
                       Needs needs) {
    if (begin >= text.size()) return {Fit::kPartial, 0, {}};
    ToolObjectScanner scanner;
    const bool declared_only = search.in_reasoning || needs == Needs::kNameAndArguments;
    for (std::size_t at = begin; at < text.size(); ++at) {
        const auto status = scanner.feed(text[at]);
        if (scanner.name()) {
            const bool is_refused =
                (declared_only && !search.tools->is_declared(*scanner.name())) ||
                (search.in_reasoning && !scanner.is_name_first());
            if (is_refused) return {};
            if (needs == Needs::kName || scanner.has_arguments()) {
                return {Fit::kFull, begin, *scanner.name()};
            }
        }
        if (status != ToolObjectScanner::Status::kGoing) return {};
    }
    return {Fit::kPartial, 0, {}};
}

}  // namespace

CallMatch match_tagged_call(std::string_view text, const CallSearch& search) {
    if (search.format == OutputFormat::kQwenXml) {
        CallMatch match = match_xml_call(text, search);
        if (match.fit == Fit::kNo && !search.in_reasoning)
            match = match_bare_function(text, search);
        return match;
    }
    if (search.format != OutputFormat::kHermes) return {};
    Cursor cursor{text};
    const Fit tag = cursor.read("<tool_call>");
    if (tag != Fit::kFull) return {tag, 0, {}};
    cursor.skip_whitespace();
    return match_object(text, cursor.at, search, Needs::kName);
}

CallMatch match_leading_object(std::string_view text, const CallSearch& search) {
    Cursor cursor{text};
    cursor.skip_whitespace();
    if (cursor.read("<|python_tag|>") == Fit::kPartial) return {Fit::kPartial, 0, {}};
    cursor.skip_whitespace();
    return match_object(text, cursor.at, search, Needs::kNameAndArguments);
}

CallMatch match_next_object(std::string_view text, const CallSearch& search) {
    Cursor cursor{text};
    cursor.skip_whitespace();
    bool is_separated = text.substr(0, cursor.at).find('\n') != std::string_view::npos;
    if (cursor.read(";") == Fit::kFull) {
        is_separated = true;
        cursor.skip_whitespace();
    }
    if (cursor.is_at_end()) return {Fit::kPartial, 0, {}};
    if (!is_separated) return {};
    return match_object(text, cursor.at, search, Needs::kNameAndArguments);
}

}  // namespace replica::chat::parse

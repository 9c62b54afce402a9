// str() and repr(): how values turn into text.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "replica/chat/jinja/ast.h"
#include "replica/chat/jinja/unicode.h"
#include "replica/chat/jinja/value.h"

namespace replica::chat::jinja {

namespace {

std::string escape_of(char32_t value, bool is_broken_byte) {
    switch (value) {
        case '\n':
            return "\\n";
        case '\r':
            return "\\r";
        case '\t':
            return "\\t";
        case '\\':
            return "\\\\";
        default:
            break;
    }
    char escape[16];
    const auto number = static_cast<unsigned>(value);
    const char* const format =
        value <= 0xFF || is_broken_byte ? "\\x%02x" : (value <= 0xFFFF ? "\\u%04x" : "\\U%08x");
    std::snprintf(escape, sizeof escape, format, number);
    return escape;
}

void append_text_repr(Budget& budget, TextBuilder& out, const Text& text) {
    const bool has_single = text.bytes.find('\'') != std::string::npos;
    const bool has_double = text.bytes.find('"') != std::string::npos;
    const char quote = has_single && !has_double ? '"' : '\'';
    const std::string quote_text(1, quote);
    out.append(quote_text);
    OriginCursor origin(text);
    std::size_t plain_begin = 0;
    for (std::size_t at = 0; at < text.bytes.size();) {
        const CodePoint point = decode_at(text.bytes, at);
        const bool is_broken =
            point.bytes == 1 && static_cast<unsigned char>(text.bytes[at]) >= 0x80;
        const bool is_quote = text.bytes[at] == quote;
        if (is_broken || is_quote || point.value == '\\' || !is_printable(point.value)) {
            budget.charge_nodes(1);
            out.append_slice(text, {plain_begin, at});
            out.append(is_quote ? "\\" + quote_text : escape_of(point.value, is_broken),
                       origin.at(at));
            plain_begin = at + point.bytes;
        }
        at += point.bytes;
    }
    out.append_slice(text, {plain_begin, text.bytes.size()});
    out.append(quote_text);
}

void append_items(Budget& budget, TextBuilder& out, const std::vector<Value>& items) {
    bool is_first = true;
    for (const Value& item : items) {
        if (!is_first) out.append(", ");
        is_first = false;
        append_repr(budget, out, item);
    }
}

void append_sequence(Budget& budget, TextBuilder& out, const Sequence& sequence) {
    const auto wrapped = [&](std::string_view open, std::string_view close) {
        out.append(open);
        append_items(budget, out, sequence.items);
        out.append(close);
    };
    switch (sequence.kind) {
        case SequenceKind::kList:
            return wrapped("[", "]");
        case SequenceKind::kTuple:
            return wrapped("(", sequence.items.size() == 1 ? ",)" : ")");
        case SequenceKind::kKeys:
            return wrapped("dict_keys([", "])");
        case SequenceKind::kValues:
            return wrapped("dict_values([", "])");
        case SequenceKind::kItems:
            return wrapped("dict_items([", "])");
        case SequenceKind::kRange:
            out.append(
                "range(" + std::to_string(sequence.range_start) + ", " +
                std::to_string(sequence.range_stop) +
                (sequence.range_step == 1 ? "" : ", " + std::to_string(sequence.range_step)) + ")");
            return;
        case SequenceKind::kGenerator:
            out.append("<generator object>");
            return;
    }
}

struct Printer {
    Budget& budget;
    TextBuilder& out;

    void operator()(const Undefined&) const { out.append("Undefined"); }
    void operator()(None) const { out.append("None"); }
    void operator()(bool value) const { out.append(value ? "True" : "False"); }
    void operator()(std::int64_t value) const { out.append(std::to_string(value)); }
    void operator()(double value) const { out.append(print_float(value)); }
    void operator()(const TextPtr& value) const { append_text_repr(budget, out, *value); }
    void operator()(const SequencePtr& value) const { append_sequence(budget, out, *value); }
    void operator()(const MappingPtr& value) const {
        out.append("{");
        bool is_first = true;
        for (const auto& [key, item] : value->entries) {
            if (!is_first) out.append(", ");
            is_first = false;
            append_repr(budget, out, key);
            out.append(": ");
            append_repr(budget, out, item);
        }
        out.append("}");
    }
    // Its attributes are not shown: a namespace may hold itself.
    void operator()(Namespace*) const { out.append("<Namespace>"); }
    void operator()(Loop* loop) const {
        out.append("<LoopContext " + std::to_string(loop->index + 1) + "/" +
                   std::to_string(loop->items->items.size()) + ">");
    }
    void operator()(const Macro* macro) const {
        out.append("<Macro " + repr_of(macro->name) + ">");
    }
    void operator()(const CallablePtr& callable) const {
        out.append("<function " + callable->name + ">");
    }
};

}  // namespace

void append_repr(Budget& budget, TextBuilder& out, const Value& value) {
    budget.charge_nodes(1);
    std::visit(Printer{budget, out}, value.variant());
}

void append_text(Budget& budget, TextBuilder& out, const Value& value) {
    if (const auto* text = value.get_if<TextPtr>()) {
        out.append(**text);
    } else if (!value.is_undefined()) {
        append_repr(budget, out, value);
    }
}

TextPtr to_text(Budget& budget, const Value& value) {
    if (const auto* text = value.get_if<TextPtr>()) return *text;
    TextBuilder out(budget);
    append_text(budget, out, value);
    return out.finish();
}

std::string repr_of(std::string_view text) {
    Budget budget{TemplateLimits{}};
    TextBuilder out(budget);
    append_text_repr(budget, out, *make_text(std::string(text.substr(0, 1000))));
    return out.finish()->bytes;
}

std::string print_float(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char shortest[64];
    const auto end =
        std::to_chars(shortest, shortest + sizeof shortest, value, std::chars_format::scientific)
            .ptr;
    const std::string_view text(shortest, static_cast<std::size_t>(end - shortest));
    const std::size_t mark = text.find('e');
    int exponent = 0;
    const std::size_t exponent_at = mark + (text[mark + 1] == '+' ? 2 : 1);
    std::from_chars(text.data() + exponent_at, text.data() + text.size(), exponent);
    if (exponent < -4 || exponent >= 16) return std::string(text);  // two exponent digits at least

    std::string digits;
    for (const char c : text.substr(0, mark)) {
        if (c >= '0' && c <= '9') digits += c;
    }
    std::string result = text.front() == '-' ? "-" : "";
    if (exponent < 0) {
        return result + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    }
    const std::size_t whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() <= whole)
        return result + digits + std::string(whole - digits.size(), '0') + ".0";
    return result + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace replica::chat::jinja

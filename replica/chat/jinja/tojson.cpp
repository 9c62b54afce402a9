// json.dumps with non-ASCII kept and nothing escaped for HTML; the marks of strings are kept.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "replica/chat/jinja/unicode.h"
#include "replica/chat/jinja/value.h"

namespace replica::chat::jinja {

namespace {

std::string unicode_escape(unsigned unit) {
    char escape[16];
    std::snprintf(escape, sizeof escape, "\\u%04x", unit);
    return escape;
}

/// Empty when the character stands for itself.
std::string json_escape(char32_t value, bool ascii_only) {
    switch (value) {
        case '"':
            return "\\\"";
        case '\\':
            return "\\\\";
        case '\n':
            return "\\n";
        case '\r':
            return "\\r";
        case '\t':
            return "\\t";
        case '\f':
            return "\\f";
        case '\b':
            return "\\b";
        default:
            break;
    }
    const auto number = static_cast<unsigned>(value);
    if (number < 0x20 || (ascii_only && number > 0x7E && number <= 0xFFFF)) {
        return unicode_escape(number);
    }
    if (ascii_only && number > 0xFFFF) {
        return unicode_escape(0xD800 + ((number - 0x10000) >> 10U)) +
               unicode_escape(0xDC00 + ((number - 0x10000) & 0x3FFU));
    }
    return {};
}

class Writer {
public:
    Writer(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style), out_(budget) {}

    TextPtr take() { return out_.finish(); }

    void write(const Value& value) {
        budget_.charge_nodes(1);
        if (const auto* text = value.get_if<TextPtr>()) return write_text(**text);
        if (const auto* sequence = value.get_if<SequencePtr>();
            sequence != nullptr && ((*sequence)->kind == SequenceKind::kList ||
                                    (*sequence)->kind == SequenceKind::kTuple)) {
            return write_sequence(**sequence);
        }
        if (const auto* mapping = value.get_if<MappingPtr>()) return write_mapping(**mapping);
        const std::string scalar = print_scalar(value);
        if (scalar.empty()) {
            const auto* miss = value.get_if<Undefined>();
            if (miss != nullptr && miss->kind == TemplateErrorKind::kSecurity) {
                fail_undefined(*miss);
            }
            fail_type("Object of type " + type_name(value) + " is not JSON serializable");
        }
        out_.append(scalar);
    }

private:
    static std::string print_scalar(const Value& value) {
        if (value.is_none()) return "null";
        if (const auto* truth = value.get_if<bool>()) return *truth ? "true" : "false";
        if (const auto* integer = value.get_if<std::int64_t>()) return std::to_string(*integer);
        if (const auto* real = value.get_if<double>()) {
            if (std::isnan(*real)) return "NaN";
            if (std::isinf(*real)) return *real < 0 ? "-Infinity" : "Infinity";
            return print_float(*real);
        }
        return {};
    }

    void write_text(const Text& text) {
        out_.append("\"");
        OriginCursor origin(text);
        std::size_t plain_begin = 0;
        for (std::size_t at = 0; at < text.bytes.size();) {
            const CodePoint point = decode_at(text.bytes, at);
            const std::string escape = json_escape(point.value, style_.ascii_only);
            if (!escape.empty()) {
                budget_.charge_nodes(1);
                out_.append_slice(text, {plain_begin, at});
                out_.append(escape, origin.at(at));
                plain_begin = at + point.bytes;
            }
            at += point.bytes;
        }
        out_.append_slice(text, {plain_begin, text.bytes.size()});
        out_.append("\"");
    }

    void write_key(const Value& key) {
        if (const auto* text = key.get_if<TextPtr>()) return write_text(**text);
        const std::string scalar = print_scalar(key);
        if (scalar.empty()) {
            fail_type("keys must be str, int, float, bool or None, not " + type_name(key));
        }
        out_.append("\"" + scalar + "\"");
    }

    void write_sequence(const Sequence& sequence) {
        if (sequence.items.empty()) return out_.append("[]");
        open("[");
        bool is_first = true;
        for (const Value& item : sequence.items) {
            separate(is_first);
            write(item);
        }
        close("]");
    }

    void write_mapping(const Mapping& mapping) {
        if (mapping.entries.empty()) return out_.append("{}");
        open("{");
        bool is_first = true;
        for (const std::size_t i : entry_order(mapping)) {
            separate(is_first);
            write_key(mapping.entries[i].first);
            out_.append(style_.key_separator);
            write(mapping.entries[i].second);
        }
        close("}");
    }

    std::vector<std::size_t> entry_order(const Mapping& mapping) {
        std::vector<std::size_t> order(mapping.entries.size());
        for (std::size_t i = 0; i < order.size(); ++i)
            order[i] = i;
        if (style_.sort_keys) {
            std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
                return compare(budget_, mapping.entries[a].first, mapping.entries[b].first, "<") ==
                       Order::kLess;
            });
        }
        return order;
    }

    void open(std::string_view bracket) {
        out_.append(bracket);
        ++level_;
        break_line();
    }
    void separate(bool& is_first) {
        if (!is_first) {
            out_.append(style_.item_separator);
            break_line();
        }
        is_first = false;
    }
    void close(std::string_view bracket) {
        --level_;
        break_line();
        out_.append(bracket);
    }
    void break_line() {
        if (!style_.indent) return;
        out_.append("\n");
        for (int i = 0; i < level_; ++i)
            out_.append(*style_.indent);
    }

    Budget& budget_;
    const JsonStyle& style_;
    TextBuilder out_;
    int level_ = 0;
};

}  // namespace

TextPtr to_json(Budget& budget, const Value& value, const JsonStyle& style) {
    Writer writer(budget, style);
    writer.write(value);
    return writer.take();
}

}  // namespace replica::chat::jinja

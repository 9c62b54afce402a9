// Filters that turn one value into another.
#include <charconv>
#include <cmath>
#include <limits>

#include "replica/chat/jinja/filters.h"
#include "replica/chat/jinja/unicode.h"

namespace replica::chat::jinja::filters {

namespace {

/// A text; anything else is printed first, as most string filters of Jinja do.
TextPtr soft_text(Interpreter& interpreter, const Value& value) {
    return jinja::to_text(interpreter.budget(), value);
}

Value mapped(Interpreter& interpreter, const Value& input, const CallArguments& arguments,
             std::string_view name, Case to) {
    const Bound bound(name, arguments, {});
    return map_case(interpreter.budget(), *soft_text(interpreter, input), to);
}

/// A number as Python's int() and float() read it: blanks around, single underscores between
/// digits.
std::optional<std::string> number_text(const Text& text) {
    std::size_t begin = 0;
    std::size_t end = text.bytes.size();
    while (begin < end && is_space(decode_at(text.bytes, begin).value)) {
        begin += decode_at(text.bytes, begin).bytes;
    }
    while (end > begin) {
        const std::size_t previous = previous_character(text.bytes, end);
        if (!is_space(decode_at(text.bytes, previous).value)) break;
        end = previous;
    }
    std::string digits;
    const auto is_digit = [&](std::size_t at) {
        return at < end && text.bytes[at] >= '0' && text.bytes[at] <= '9';
    };
    for (std::size_t at = begin; at < end; ++at) {
        const char c = text.bytes[at];
        if (c != '_') {
            digits += c;
        } else if (at == begin || !is_digit(at - 1) || !is_digit(at + 1)) {
            return std::nullopt;
        }
    }
    if (digits.starts_with('+') && !digits.starts_with("+-")) digits.erase(0, 1);
    if (digits.empty()) return std::nullopt;
    return digits;
}

std::optional<std::int64_t> parse_integer(const std::string& digits, int base) {
    std::string_view text = digits;
    const bool is_negative = text.starts_with('-');
    if (is_negative) text.remove_prefix(1);
    const auto skip_prefix = [&](std::string_view lower, std::string_view upper) {
        if (text.starts_with(lower) || text.starts_with(upper)) text.remove_prefix(2);
    };
    if (base == 16) skip_prefix("0x", "0X");
    if (base == 8) skip_prefix("0o", "0O");
    if (base == 2) skip_prefix("0b", "0B");
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value, base);
    if (read.ptr != end || read.ec == std::errc::invalid_argument) return std::nullopt;
    const std::uint64_t highest = static_cast<std::uint64_t>(INT64_MAX) + (is_negative ? 1 : 0);
    if (read.ec != std::errc{} || value > highest) {
        throw Fault(TemplateErrorKind::kArithmetic, "the integer needs more than 64 bits");
    }
    return static_cast<std::int64_t>(is_negative ? 0 - value : value);
}

std::optional<double> parse_real(const std::string& digits) {
    double value = 0;
    const char* const end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, value);
    if (read.ptr != end || read.ec == std::errc::invalid_argument) return std::nullopt;
    if (read.ec == std::errc::result_out_of_range) {
        return std::strtod(digits.c_str(), nullptr);  // 0 or infinity, as Python says
    }
    return value;
}

std::int64_t truncated(double value) {
    if (std::isnan(value)) fail_type("cannot convert float NaN to integer");
    if (!(std::fabs(value) < 9223372036854775808.0)) {
        throw Fault(TemplateErrorKind::kArithmetic, "the integer needs more than 64 bits");
    }
    return static_cast<std::int64_t>(value);
}

}  // namespace

Value trim(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("trim", arguments, {"chars"});
    const TextPtr text = soft_text(interpreter, input);
    if (!bound.has(0) || bound[0].is_none()) return jinja::trim(interpreter.budget(), text, {});
    return jinja::trim(interpreter.budget(), text, {}, bound.text(0)->view());
}

Value upper(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    return mapped(interpreter, input, arguments, "upper", Case::kUpper);
}
Value lower(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    return mapped(interpreter, input, arguments, "lower", Case::kLower);
}
Value capitalize(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    return mapped(interpreter, input, arguments, "capitalize", Case::kCapitalized);
}

/// Unlike the method, words begin after blanks, hyphens and opening brackets only.
Value title(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("title", arguments, {});
    const TextPtr text = soft_text(interpreter, input);
    TextBuilder out(interpreter.budget());
    OriginCursor origin(*text);
    bool begins_word = true;
    for (std::size_t at = 0; at < text->bytes.size();) {
        const CodePoint point = decode_at(text->bytes, at);
        interpreter.budget().charge_nodes(1);
        const char32_t changed = begins_word ? to_upper(point.value) : to_lower(point.value);
        if (changed == point.value) {
            out.append_slice(*text, {at, at + point.bytes});
        } else {
            out.append_character(changed, origin.at(at));
        }
        begins_word =
            is_space(point.value) ||
            (point.value < 0x80 && std::string_view("-({[<").find(static_cast<char>(point.value)) !=
                                       std::string_view::npos);
        at += point.bytes;
    }
    return out.finish();
}

Value replace(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
    const std::int64_t count_max = bound.has(2) && !bound[2].is_none() ? bound.integer(2, -1) : -1;
    return jinja::replace(interpreter.budget(), soft_text(interpreter, input),
                          *soft_text(interpreter, bound[0]), *soft_text(interpreter, bound[1]),
                          count_max);
}

Value indent(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("indent", arguments, {"width", "first", "blank"});
    Budget& budget = interpreter.budget();
    TextPtr margin;
    if (bound.has(0) && bound[0].is<TextPtr>()) {
        margin = bound.text(0);
    } else {
        const std::int64_t width = std::max<std::int64_t>(bound.integer(0, 4), 0);
        budget.check_text(static_cast<std::size_t>(width));
        margin = make_text(std::string(static_cast<std::size_t>(width), ' '));
    }
    require_defined(input);
    if (!input.is<TextPtr>()) fail_type("indent takes a str, not " + type_name(input));
    const TextPtr& text = input.get<TextPtr>();
    TextBuilder out(budget);
    bool is_first = true;
    std::size_t begin = 0;
    while (true) {
        const std::size_t end = std::min(text->bytes.find('\n', begin), text->bytes.size());
        budget.charge_nodes(1);
        const bool is_indented = is_first ? bound.flag(1) : (end > begin || bound.flag(2));
        if (is_indented) out.append(*margin);
        out.append_slice(*text, {begin, std::min(end + 1, text->bytes.size())});
        if (end == text->bytes.size()) return out.finish();
        is_first = false;
        begin = end + 1;
    }
}

Value string(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("string", arguments, {});
    return soft_text(interpreter, input);
}

Value to_json(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ascii_only = bound.flag(0);
    style.sort_keys = bound.flag(3);
    if (bound.has(1) && !bound[1].is_none()) {
        if (bound[1].is<TextPtr>()) {
            style.indent = bound.text(1)->bytes;
        } else {
            const std::int64_t width = std::max<std::int64_t>(bound.integer(1, 0), 0);
            interpreter.budget().check_text(static_cast<std::size_t>(width));
            style.indent = std::string(static_cast<std::size_t>(width), ' ');
        }
        style.item_separator = ",";
    }
    if (bound.has(2) && !bound[2].is_none()) {
        const SequencePtr pair = iterate(interpreter.budget(), bound[2]);
        if (pair->items.size() != 2 || !pair->items[0].is<TextPtr>() ||
            !pair->items[1].is<TextPtr>()) {
            fail_type("separators must be a pair of str");
        }
        style.item_separator = pair->items[0].get<TextPtr>()->bytes;
        style.key_separator = pair->items[1].get<TextPtr>()->bytes;
    }
    return jinja::to_json(interpreter.budget(), input, style);
}

Value default_value(Interpreter&, const Value& input, const CallArguments& arguments) {
    const Bound bound("default", arguments, {"default_value", "boolean"});
    const bool is_missing = input.is_undefined() || (bound.flag(1) && !is_true(input));
    return is_missing ? bound.or_else(0, empty_text()) : input;
}

Value integer(Interpreter&, const Value& input, const CallArguments& arguments) {
    const Bound bound("int", arguments, {"default", "base"});
    require_defined(input);
    const Value otherwise = bound.or_else(0, std::int64_t{0});
    if (const auto whole = input.as_integer()) return *whole;
    if (const auto* value = input.get_if<double>()) {
        return std::isnan(*value) ? otherwise : Value(truncated(*value));
    }
    const auto* text = input.get_if<TextPtr>();
    if (text == nullptr) return otherwise;
    const std::optional<std::string> digits = number_text(**text);
    if (!digits) return otherwise;
    const std::int64_t base = bound.integer(1, 10);
    if (base < 2 || base > 36) fail_type("int() base must be >= 2 and <= 36");
    if (const auto whole = parse_integer(*digits, static_cast<int>(base))) return *whole;
    const std::optional<double> value = parse_real(*digits);
    if (!value || !std::isfinite(*value)) return otherwise;
    return truncated(*value);
}

Value real(Interpreter&, const Value& input, const CallArguments& arguments) {
    const Bound bound("float", arguments, {"default"});
    require_defined(input);
    const Value otherwise = bound.or_else(0, 0.0);
    if (input.is_number()) return input.as_double();
    const auto* text = input.get_if<TextPtr>();
    if (text == nullptr) return otherwise;
    const std::optional<std::string> digits = number_text(**text);
    const std::optional<double> value = digits ? parse_real(*digits) : std::nullopt;
    return value ? Value(*value) : otherwise;
}

Value absolute(Interpreter&, const Value& input, const CallArguments& arguments) {
    const Bound bound("abs", arguments, {});
    if (const auto whole = input.as_integer()) {
        return *whole < 0 ? negate(*whole, Unary::Op::kMinus) : Value(*whole);
    }
    if (const auto* value = input.get_if<double>()) return std::fabs(*value);
    fail_type("bad operand type for abs(): '" + type_name(input) + "'");
}

Value round(Interpreter& interpreter, const Value& input, const CallArguments& arguments) {
    const Bound bound("round", arguments, {"precision", "method"});
    if (!input.is_number()) {
        fail_type("type " + type_name(input) + " doesn't define __round__ method");
    }
    const std::string method =
        bound.has(1) ? to_text(interpreter.budget(), bound[1])->bytes : "common";
    const std::int64_t precision = bound.integer(0, 0);
    const double value = input.as_double();
    if (method == "common") {
        if (input.as_integer() && precision >= 0) return *input.as_integer();
        if (precision > 300 || !std::isfinite(value)) return value;
        if (precision < -300) return 0.0;
        if (precision < 0) {
            const double scale = std::pow(10.0, static_cast<double>(-precision));
            return std::nearbyint(value / scale) * scale;
        }
        // Printing rounds the exact binary value, halves to even, as Python's round does.
        char buffer[700];
        const auto written = std::to_chars(buffer, buffer + sizeof buffer, value,
                                           std::chars_format::fixed, static_cast<int>(precision));
        double rounded = value;
        std::from_chars(buffer, written.ptr, rounded);
        return rounded;
    }
    if (method != "ceil" && method != "floor") fail_type("method must be common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(precision));
    return (method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale)) / scale;
}

}  // namespace replica::chat::jinja::filters

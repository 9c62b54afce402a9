#include "replica/chat/parse/tool_object_scanner.h"

#include <utility>

#include "replica/chat/json_text.h"
#include "replica/chat/parse/tag_scan.h"

namespace replica::chat::parse {

namespace {

/// The value of a JSON string whose inside is `raw`; nothing when an escape is not valid.
std::optional<std::string> unescape(const std::string& raw) {
    const std::optional<Json> value = parse_json('"' + raw + '"');
    if (!value || !value->is_string()) return std::nullopt;
    return value->get<std::string>();
}

/// Whether an escape that began with a backslash is complete. A high surrogate waits for the low
/// one, which must follow as an escape of its own.
bool is_whole_escape(std::string_view escape) {
    if (escape.size() < 2) return false;
    if (escape[1] != 'u') return true;
    if (escape.size() < 6) return false;
    const bool is_high = (escape[2] == 'd' || escape[2] == 'D') &&
                         std::string_view("89abAB").find(escape[3]) != std::string_view::npos;
    return !is_high || escape.size() >= 12;
}

}  // namespace

ToolObjectScanner::Status ToolObjectScanner::feed(char c) {
    switch (phase_) {
        case Phase::kStart:
            phase_ = Phase::kKeyOrEnd;
            return c == '{' ? Status::kGoing : Status::kBroken;
        case Phase::kKeyOrEnd:
            return begin_key(c);
        case Phase::kKey:
        case Phase::kName:
            return read_text_byte(c);
        case Phase::kAfterKey:
            if (c == ':') phase_ = Phase::kValue;
            return c == ':' || is_space(c) ? Status::kGoing : Status::kBroken;
        case Phase::kValue:
            return is_space(c) ? Status::kGoing : begin_value(c);
        case Phase::kArguments:
        case Phase::kSkipped:
            if (is_literal_ && end_value(c)) break;  // the byte belongs to what follows
            read_value_byte(c);
            return Status::kGoing;
        case Phase::kAfterValue:
            break;
    }
    if (c == ',') {
        phase_ = Phase::kKeyOrEnd;
        return Status::kGoing;
    }
    if (c == '}') return Status::kDone;
    return is_space(c) ? Status::kGoing : Status::kBroken;
}

std::string ToolObjectScanner::take_arguments() {
    return std::exchange(arguments_, {});
}

std::string ToolObjectScanner::take_rest() {
    if (phase_ == Phase::kArguments) {
        arguments_ += raw_ + (form_ == Form::kUnknown ? string_head_ : escape_);
    }
    raw_.clear();
    string_head_.clear();
    escape_.clear();
    return take_arguments();
}

ToolObjectScanner::Status ToolObjectScanner::begin_key(char c) {
    if (is_space(c)) return Status::kGoing;
    if (c == '}') return Status::kDone;
    if (c != '"') return Status::kBroken;
    phase_ = Phase::kKey;
    in_string_ = true;
    raw_.clear();
    return Status::kGoing;
}

/// A key or the name: collected until its closing quote.
ToolObjectScanner::Status ToolObjectScanner::read_text_byte(char c) {
    if (c != '"' || is_escaped_) {
        raw_ += c;
        is_escaped_ = c == '\\' && !is_escaped_;
        return Status::kGoing;
    }
    in_string_ = false;
    std::optional<std::string> text = unescape(raw_);
    if (!text) return Status::kBroken;
    if (phase_ == Phase::kKey) {
        last_key_ = std::move(*text);
        if (!name_ && last_key_ != "name") ++keys_before_name_;
        phase_ = Phase::kAfterKey;
        return Status::kGoing;
    }
    if (text->empty() || text->size() > kNameBytesMax) return Status::kBroken;
    name_ = std::move(text);
    phase_ = Phase::kAfterValue;
    return Status::kGoing;
}

ToolObjectScanner::Status ToolObjectScanner::begin_value(char c) {
    const bool is_name = last_key_ == "name" && !name_;
    const bool is_arguments =
        (last_key_ == "arguments" || last_key_ == "parameters") && !has_arguments_;
    if (is_name) {
        if (c != '"') return Status::kBroken;
        phase_ = Phase::kName;
        in_string_ = true;
        raw_.clear();
        return Status::kGoing;
    }
    if (c == ',' || c == '}' || c == ']' || c == ':') return Status::kBroken;
    phase_ = is_arguments ? Phase::kArguments : Phase::kSkipped;
    has_arguments_ = has_arguments_ || is_arguments;
    form_ = c == '"' ? Form::kUnknown : Form::kVerbatim;
    is_literal_ = c != '"' && c != '{' && c != '[';
    depth_ = 0;
    raw_.clear();
    read_value_byte(c);
    return Status::kGoing;
}

/// A byte of a value: keeps track of strings and nesting, and passes arguments on.
void ToolObjectScanner::read_value_byte(char c) {
    const bool is_argument = phase_ == Phase::kArguments;
    if (is_literal_) {
        // Held until it ends: `null` stands for no arguments.
        if (is_argument) raw_ += c;
        return;
    }
    const bool was_in_string = in_string_;
    if (in_string_) {
        const bool closes = c == '"' && !is_escaped_;
        is_escaped_ = c == '\\' && !is_escaped_;
        if (closes) in_string_ = false;
    } else if (c == '"') {
        in_string_ = true;
    } else if (c == '{' || c == '[') {
        ++depth_;
    } else if ((c == '}' || c == ']') && depth_ > 0) {
        --depth_;
    }
    if (is_argument) {
        if (depth_ == 0 && (was_in_string || c == '"') && form_ != Form::kVerbatim) {
            pass_on_unwrapped(c);
        } else {
            pass_on(c);
        }
    }
    const bool is_complete = depth_ == 0 && !in_string_ && (c == '}' || c == ']' || c == '"');
    if (!is_complete) return;
    if (is_argument && form_ != Form::kVerbatim) end_string_argument();
    phase_ = Phase::kAfterValue;
}

/// A number or word ends before a comma, a brace or whitespace.
bool ToolObjectScanner::end_value(char c) {
    if (c != ',' && c != '}' && !is_space(c)) return false;
    if (phase_ == Phase::kArguments && raw_ != "null") arguments_ += raw_;
    raw_.clear();
    is_literal_ = false;
    phase_ = Phase::kAfterValue;
    return true;
}

void ToolObjectScanner::pass_on(char c) {
    arguments_ += c;
}

/// A byte of arguments given as a string, its quotes included.
void ToolObjectScanner::pass_on_unwrapped(char c) {
    if (form_ == Form::kUnknown) {
        string_head_ += c;
        if (string_head_.size() == 1 || !in_string_) return;  // the opening or the closing quote
        escape_ += c;
        if (escape_.front() == '\\' && !is_whole_escape(escape_)) return;
        const std::optional<std::string> text = unescape(std::exchange(escape_, {}));
        if (text && !text->empty() && is_space(text->front())) return;
        const bool is_object = text && text->starts_with('{');
        form_ = is_object ? Form::kUnwrapped : Form::kVerbatim;
        arguments_ += is_object ? "{" : std::exchange(string_head_, {});
        return;
    }
    if (!in_string_) return;  // the closing quote
    escape_ += c;
    if (escape_.front() == '\\' && !is_whole_escape(escape_)) return;
    const std::string spelled = std::exchange(escape_, {});
    // What is no valid escape is passed on as it is spelled: nothing is lost.
    arguments_ += spelled.front() == '\\' ? unescape(spelled).value_or(spelled) : spelled;
}

void ToolObjectScanner::end_string_argument() {
    if (form_ == Form::kUnwrapped) arguments_ += escape_;
    escape_.clear();
    string_head_.clear();  // a string of blanks is no arguments
}

}  // namespace replica::chat::parse

// The inside of a call of the XML-like format:
//
//   between ─<parameter=KEY>─▶ value ─</parameter>─▶ between ─</function>─▶ after body ─▶ ended
//
// The hard part is where a value ends: at a </parameter> that something of the format follows. All
// else, other tags included, is the value.
#include <set>

#include "replica/chat/parse/call_parser.h"

namespace replica::chat::parse {

namespace {

using Kind = CallStep::Kind;

std::string_view without_line_break(std::string_view text) {
    if (text.ends_with('\n'))
        text.remove_suffix(1);
    else
        return text;
    if (text.ends_with('\r')) text.remove_suffix(1);
    return text;
}

/// A `</parameter>` at `at` that ends a value: `end` is behind the tag.
struct ValueEnd {
    Fit fit = Fit::kNo;
    std::size_t end = 0;
};

ValueEnd match_value_end(std::string_view text, std::size_t at, Moment moment) {
    Cursor cursor{text, at};
    ValueEnd result;
    result.fit = cursor.read("</parameter>");
    if (result.fit != Fit::kFull) return result;
    result.end = cursor.at;
    cursor.skip_whitespace();
    if (cursor.is_at_end()) {
        const bool is_over = moment == Moment::kEnd || moment == Moment::kLength;
        result.fit = is_over ? Fit::kFull : Fit::kPartial;
        return result;
    }
    result.fit = Fit::kNo;
    for (const std::string_view next : {"<parameter=", "<tool_call>", "</function", "</tool"}) {
        const Fit fit = Cursor{text, cursor.at}.read(next);
        if (fit == Fit::kFull) result.fit = fit;
        if (fit == Fit::kPartial && result.fit == Fit::kNo) result.fit = fit;
    }
    return result;
}

/// Close tags at `at` that may be the end of the generation: </function>, </tool_call> or both,
/// with whitespace. kFull: they reach the end of `text`; kPartial: they may come to do so.
Fit match_trailing_tags(std::string_view text, std::size_t at) {
    Cursor cursor{text, at};
    const Fit function = cursor.read("</function>");
    if (function == Fit::kFull) {
        cursor.skip_whitespace();
        if (cursor.is_at_end()) return Fit::kFull;
    }
    const Fit call = cursor.read("</tool_call>");
    if (call != Fit::kFull) {
        return function == Fit::kPartial || call == Fit::kPartial ? Fit::kPartial : Fit::kNo;
    }
    cursor.skip_whitespace();
    return cursor.is_at_end() ? Fit::kFull : Fit::kNo;
}

class XmlCall final : public CallParser {
public:
    XmlCall(const ToolTypes& tools, std::string name, CallSink& sink)
        : tools_(tools), name_(std::move(name)), sink_(sink) {}

    CallStep step(std::string_view pending, Moment moment) override {
        switch (state_) {
            case State::kBetween:
                return step_between(pending, moment);
            case State::kValue:
                return step_value(pending, moment);
            case State::kAfterBody:
                break;
        }
        return step_after_body(pending, moment);
    }

    void finish(FinishKind kind) override {
        if (state_ == State::kAfterBody) return;
        sink_.on_fallback("unclosed_call");
        if (kind == FinishKind::kEnd) {
            if (state_ == State::kValue) end_value();
            close_arguments();
        } else if (state_ == State::kValue) {
            write_unfinished_value();
        }
    }

private:
    enum class State { kBetween, kValue, kAfterBody };

    CallStep step_between(std::string_view pending, Moment moment) {
        const std::size_t plain = skip_plain(pending, 0);
        if (plain > 0) return stray(pending.substr(0, plain));
        const std::size_t tag = skip_space(pending, 0);
        if (tag == pending.size()) {
            if (moment == Moment::kMore) return {Kind::kWaiting, 0};
            return {Kind::kGoing, tag};
        }
        if (pending[tag] != '<') return space_before_text(tag, pending);

        std::string key;
        Cursor parameter{pending, tag};
        Fit fit = parameter.read("<parameter=");
        if (fit == Fit::kFull) fit = parameter.read_name(key);
        if (fit == Fit::kFull) {
            begin_value(std::move(key));
            return {Kind::kGoing, parameter.at};
        }
        const Fit opening = Cursor{pending, tag}.read("<tool_call>");
        if (opening == Fit::kFull) return end_call(tag);
        Cursor close{pending, tag};
        const Fit close_fit = close.read_close_tag();
        if (close_fit == Fit::kFull) return drop_close_tag(pending, tag, close.at);
        const bool is_open =
            fit == Fit::kPartial || opening == Fit::kPartial || close_fit == Fit::kPartial;
        if (is_open && moment == Moment::kMore) return {Kind::kWaiting, 0};
        if (is_open && moment == Moment::kLength) return cut_tag(pending);
        if (tag > 0) return space_before_text(tag, pending);
        return stray(pending.substr(0, 1));
    }

    CallStep drop_close_tag(std::string_view pending, std::size_t begin, std::size_t end) {
        const std::string_view tag = pending.substr(begin, end - begin);
        is_in_stray_text_ = false;
        if (tag == "</tool_call>") {
            close_arguments();
            return {Kind::kEnded, end};
        }
        if (tag == "</function>") {
            close_arguments();
            state_ = State::kAfterBody;
        }
        return {Kind::kGoing, end};
    }

    /// The token limit fell into a tag. What is there of it is no text: the arguments stay a prefix
    /// of those the whole call would have had.
    static CallStep cut_tag(std::string_view pending) { return {Kind::kGoing, pending.size()}; }

    CallStep end_call(std::size_t consumed) {
        close_arguments();
        return {Kind::kEnded, consumed};
    }

    /// Text between values: content, trimmed.
    CallStep stray(std::string_view text) {
        if (!is_in_stray_text_) sink_.on_fallback("stray_text");
        is_in_stray_text_ = true;
        sink_.on_content(text);
        return {Kind::kGoing, text.size()};
    }

    CallStep space_before_text(std::size_t size, std::string_view pending) {
        if (is_in_stray_text_) sink_.on_content(pending.substr(0, size));
        return {Kind::kGoing, size};
    }

    CallStep step_value(std::string_view pending, Moment moment) {
        if (is_value_begin_) {
            if (pending == "\r" && moment == Moment::kMore) return {Kind::kWaiting, 0};
            is_value_begin_ = false;
            if (pending.starts_with("\r\n")) return {Kind::kGoing, 2};
            if (pending.starts_with('\n')) return {Kind::kGoing, 1};
        }
        const std::size_t plain = skip_plain(pending, 0);
        if (plain > 0) return value_text(pending.substr(0, plain));
        const std::size_t tag = skip_space(pending, 0);
        const std::string_view space = pending.substr(0, tag);
        if (tag == pending.size()) {
            if (moment == Moment::kMore) return {Kind::kWaiting, 0};
            const bool is_over = moment == Moment::kEnd || moment == Moment::kLength;
            value_text(is_over ? without_line_break(space) : space);
            return {Kind::kGoing, tag};
        }
        if (pending[tag] != '<') return value_text(space);

        const ValueEnd end = match_value_end(pending, tag, moment);
        if (end.fit == Fit::kFull) {
            value_text(without_line_break(space));
            end_value();
            return {Kind::kGoing, end.end};
        }
        const Fit trailing = match_trailing_tags(pending, tag);
        if (trailing == Fit::kFull && moment == Moment::kEnd) {
            return {Kind::kGoing, pending.size()};  // finish() closes the value
        }
        const bool is_open = end.fit == Fit::kPartial || trailing != Fit::kNo;
        if (is_open && moment == Moment::kMore) return {Kind::kWaiting, 0};
        if (is_open && moment == Moment::kLength) return cut_tag(pending);
        return value_text(pending.substr(0, tag + 1));
    }

    CallStep step_after_body(std::string_view pending, Moment moment) {
        const std::size_t tag = skip_space(pending, 0);
        Cursor close{pending, tag};
        const Fit fit = close.read_close_tag();
        if (fit == Fit::kFull) {
            const bool ends = pending.substr(tag, close.at - tag) == "</tool_call>";
            return {ends ? Kind::kEnded : Kind::kGoing, close.at};
        }
        if (fit == Fit::kPartial && moment == Moment::kMore) return {Kind::kWaiting, 0};
        if (fit == Fit::kPartial && moment == Moment::kLength) return cut_tag(pending);
        return {Kind::kEnded, 0};
    }

    void begin_value(std::string key) {
        state_ = State::kValue;
        is_value_begin_ = true;
        is_in_stray_text_ = false;
        value_.clear();
        is_repeated_ = !keys_.insert(key).second;
        types_ = tools_.types_of(name_, key);
        key_ = std::move(key);
        if (!is_repeated_ && types_.is_only_string()) write(key_prefix() + '"');
    }

    CallStep value_text(std::string_view text) {
        if (!is_repeated_ && types_.is_only_string()) {
            std::string escaped;
            append_escaped(escaped, text);
            write(escaped);
        } else if (!is_repeated_) {
            value_ += text;
        }
        return {Kind::kGoing, text.size()};
    }

    void end_value() {
        state_ = State::kBetween;
        if (is_repeated_) return;
        if (types_.is_only_string()) return write("\"");
        const WrittenValue written = write_value(value_, types_);
        if (!written.fits) sink_.on_fallback("value_as_string");
        write(key_prefix() + written.json);
    }

    /// The token limit came within a value that is written when it is complete.
    void write_unfinished_value() {
        if (is_repeated_ || types_.is_only_string() || value_.empty()) return;
        const std::string json = write_unfinished(value_, types_);
        if (!json.empty()) write(key_prefix() + json);
    }

    std::string key_prefix() {
        std::string prefix(has_pairs_ ? "," : "{");
        has_pairs_ = true;
        prefix += '"';
        append_escaped(prefix, key_);
        return prefix + "\":";
    }

    void close_arguments() { write(has_pairs_ ? "}" : "{}"); }
    void write(std::string_view json) {
        if (!json.empty()) sink_.on_arguments(json);
    }

    const ToolTypes& tools_;
    std::string name_;
    CallSink& sink_;
    State state_ = State::kBetween;
    bool is_in_stray_text_ = false;
    bool has_pairs_ = false;
    std::set<std::string, std::less<>> keys_;
    // Of the value being read:
    std::string key_;
    TypeSet types_;
    bool is_repeated_ = false;
    bool is_value_begin_ = false;
    std::string value_;  // raw, when it can only be written complete
};

}  // namespace

std::unique_ptr<CallParser> make_xml_call(const ToolTypes& tools, std::string name,
                                          CallSink& sink) {
    return std::make_unique<XmlCall>(tools, std::move(name), sink);
}

}  // namespace replica::chat::parse

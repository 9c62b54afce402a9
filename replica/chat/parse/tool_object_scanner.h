// Reads a tool call written as a JSON object, byte by byte: {"name": "f", "arguments": {…}}.
//
//   { ─▶ key ─▶ : ─▶ value ─▶ , ─▶ key …  } ─▶ done
//                     │ name: a string            anything else on the way ─▶ broken
//                     │ arguments, parameters: passed on as they come
//                     └ other keys: skipped
//
// It knows strings and nesting, so that a tag or a brace within a string ends nothing; it does not
// check the arguments any further. A string that holds an object is unwrapped.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace replica::chat::parse {

class ToolObjectScanner {
public:
    enum class Status { kGoing, kDone, kBroken };

    /// The next byte; the first one is the opening brace. After kDone or kBroken: no more.
    Status feed(char c);

    const std::optional<std::string>& name() const { return name_; }
    bool is_name_first() const { return name_ && keys_before_name_ == 0; }
    bool has_arguments() const { return has_arguments_; }
    /// The value of the arguments has ended.
    bool has_all_arguments() const { return has_arguments_ && phase_ != Phase::kArguments; }
    bool is_in_string() const { return in_string_; }
    /// Text of the arguments read since the last call.
    std::string take_arguments();
    /// The same, with what was still held: the object ends early.
    std::string take_rest();

private:
    enum class Phase {
        kStart,
        kKeyOrEnd,
        kKey,
        kAfterKey,
        kValue,
        kName,
        kArguments,
        kSkipped,
        kAfterValue
    };
    enum class Form { kUnknown, kVerbatim, kUnwrapped };

    Status begin_key(char c);
    Status begin_value(char c);
    Status read_text_byte(char c);
    void read_value_byte(char c);
    bool end_value(char c);
    void pass_on(char c);
    void pass_on_unwrapped(char c);
    void end_string_argument();

    Phase phase_ = Phase::kStart;
    std::string raw_;       // a key or the name, or a literal that may be null, as spelled
    std::string last_key_;  // the key whose value is being read
    std::optional<std::string> name_;
    int keys_before_name_ = 0;
    bool has_arguments_ = false;
    bool in_string_ = false;
    bool is_escaped_ = false;  // the byte before was a backslash within a string
    bool is_literal_ = false;  // the value is a number or a word: it has no closing byte
    std::size_t depth_ = 0;    // of brackets within the value

    Form form_ = Form::kUnknown;  // of arguments given as a string
    std::string string_head_;     // its bytes until the form is known
    std::string escape_;          // an escape that is not complete yet
    std::string arguments_;
};

}  // namespace replica::chat::parse

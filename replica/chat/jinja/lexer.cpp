// The rules of jinja2/lexer.py, written as a scanner instead of regular expressions.
#include "replica/chat/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "replica/chat/jinja/fault.h"
#include "replica/chat/jinja/string_literal.h"
#include "replica/chat/jinja/unicode.h"

namespace replica::chat::jinja {

namespace {

/// CRLF and CR become LF; one line break at the end goes.
std::string normalize_lines(std::string_view source) {
    std::string result;
    result.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            result += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            result += source[i];
        }
    }
    if (!result.empty() && result.back() == '\n') result.pop_back();
    return result;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

class Lexer {
public:
    explicit Lexer(std::string_view source) : source_(normalize_lines(source)) {}

    std::vector<Token> run() {
        while (at_ < source_.size())
            read_text_and_tag();
        push(TokenKind::kEnd, "");
        return std::move(tokens_);
    }

private:
    [[noreturn]] void fail(std::string message) const {
        throw Fault(TemplateErrorKind::kSyntax, std::move(message), line_);
    }
    std::string_view rest() const { return std::string_view(source_).substr(at_); }
    bool looking_at(std::string_view text) const { return rest().starts_with(text); }

    void push(TokenKind kind, std::string text) {
        tokens_.push_back({kind, std::move(text), line_});
    }

    void advance(std::size_t bytes) {
        const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
        line_ +=
            static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
        at_ += bytes;
    }

    std::size_t skip_whitespace_from(std::size_t at) const {
        while (at < source_.size()) {
            const CodePoint point = decode_at(source_, at);
            if (!is_space(point.value)) break;
            at += point.bytes;
        }
        return at;
    }

    /// The next `{{`, `{%` or `{#` from `at_`.
    std::size_t find_tag() const {
        for (std::size_t at = source_.find('{', at_); at != std::string::npos;
             at = source_.find('{', at + 1)) {
            if (at + 1 < source_.size() &&
                (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#')) {
                return at;
            }
        }
        return std::string::npos;
    }

    char sign_at(std::size_t at) const {
        return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at]
                                                                                 : '\0';
    }

    /// Text from `at_` up to a tag at `end`, with the whitespace before the tag taken away.
    void push_text(std::size_t end, char sign, bool is_print) {
        std::string_view text = std::string_view(source_).substr(at_, end - at_);
        if (sign == '-') {
            while (!text.empty()) {
                const std::size_t begin = previous_character(text, text.size());
                if (!is_space(decode_at(text, begin).value)) break;
                text = text.substr(0, begin);
            }
        } else if (sign != '+' && !is_print) {
            const std::size_t line_break = text.rfind('\n');
            const std::size_t line_begin =
                line_break == std::string_view::npos ? 0 : line_break + 1;
            std::size_t at = line_begin;
            while (at < text.size() && is_space(decode_at(text, at).value)) {
                at += decode_at(text, at).bytes;
            }
            if ((line_begin > 0 || is_line_start_) && at == text.size()) {
                text = text.substr(0, line_begin);
            }
        }
        if (!text.empty()) push(TokenKind::kText, std::string(text));
        advance(end - at_);
    }

    void read_text_and_tag() {
        const std::size_t tag = find_tag();
        if (tag == std::string::npos) {
            push(TokenKind::kText, std::string(rest()));
            return advance(source_.size() - at_);
        }
        const char kind = source_[tag + 1];
        const char sign = sign_at(tag + 2);
        push_text(tag, sign, kind == '{');
        const std::size_t opening = sign != '\0' ? 3 : 2;
        if (kind == '#') {
            read_comment(opening);
        } else if (kind == '%') {
            if (!read_raw(opening)) {
                push(TokenKind::kBlockBegin, "{%");
                advance(opening);
                read_words("%}", TokenKind::kBlockEnd);
            }
        } else {
            push(TokenKind::kPrintBegin, "{{");
            advance(opening);
            read_words("}}", TokenKind::kPrintEnd);
        }
        is_line_start_ = at_ > 0 && source_[at_ - 1] == '\n';
    }

    /// Moves behind a closing delimiter at `end` (its sign already passed) and what it takes along.
    void close_tag(std::size_t end, char sign, bool trims_line_break) {
        std::size_t after = end + 2;
        if (sign == '-') {
            after = skip_whitespace_from(after);
        } else if (sign != '+' && trims_line_break && after < source_.size() &&
                   source_[after] == '\n') {
            ++after;
        }
        advance(after - at_);
    }

    void read_comment(std::size_t opening) {
        const std::size_t end = source_.find("#}", at_ + opening);
        if (end == std::string::npos) fail("Missing end of comment tag");
        const bool has_sign = end > at_ + opening && sign_at(end - 1) != '\0';
        close_tag(end, has_sign ? source_[end - 1] : '\0', true);
    }

    /// The byte behind `{% word` when the tag at `tag` is of that word and closes at once.
    struct WordTag {
        std::size_t end = 0;  // of the closing delimiter
        char sign = '\0';     // before it
    };
    std::optional<WordTag> match_word_tag(std::size_t after_opening, std::string_view word) const {
        std::size_t at = skip_whitespace_from(after_opening);
        if (std::string_view(source_).substr(at, word.size()) != word) return std::nullopt;
        at = skip_whitespace_from(at + word.size());
        const char sign = sign_at(at);
        if (sign != '\0') ++at;
        if (std::string_view(source_).substr(at, 2) != "%}") return std::nullopt;
        return WordTag{at, sign};
    }

    bool read_raw(std::size_t opening) {
        const std::optional<WordTag> begin = match_word_tag(at_ + opening, "raw");
        if (!begin || begin->sign == '+') return false;
        close_tag(begin->end, begin->sign, false);
        is_line_start_ = source_[at_ - 1] == '\n';
        for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
             tag = source_.find("{%", tag + 1)) {
            const char sign = sign_at(tag + 2);
            const auto end = match_word_tag(tag + (sign != '\0' ? 3 : 2), "endraw");
            if (!end) continue;
            push_text(tag, sign, false);
            close_tag(end->end, end->sign, true);
            return true;
        }
        fail("Missing end of raw directive");
    }

    /// Tokens up to the closing delimiter, which does not count within brackets.
    void read_words(std::string_view closing, TokenKind end_kind) {
        std::string open_brackets;
        while (true) {
            advance(skip_whitespace_from(at_) - at_);
            if (at_ >= source_.size()) return;  // the parser says what is missing
            if (open_brackets.empty()) {
                const bool may_have_plus = end_kind == TokenKind::kBlockEnd;
                const char sign = sign_at(at_);
                const bool has_sign = sign == '-' || (sign == '+' && may_have_plus);
                const std::size_t end = at_ + (has_sign ? 1 : 0);
                if (std::string_view(source_).substr(end, 2) == closing) {
                    push(end_kind, std::string(closing));
                    return close_tag(end, has_sign ? sign : '\0', end_kind == TokenKind::kBlockEnd);
                }
            }
            read_word(open_brackets);
        }
    }

    void read_word(std::string& open_brackets) {
        const char c = source_[at_];
        if (is_digit(c)) return read_number();
        if (c == '\'' || c == '"') return read_string();
        if (is_name_byte(c)) {
            std::size_t end = at_;
            while (end < source_.size() && is_name_byte(source_[end]))
                ++end;
            push(TokenKind::kName, source_.substr(at_, end - at_));
            return advance(end - at_);
        }
        read_operator(open_brackets);
    }

    void read_operator(std::string& open_brackets) {
        static constexpr std::array<std::string_view, 26> kOperators = {
            "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
        for (const std::string_view spelling : kOperators) {
            if (!looking_at(spelling)) continue;
            balance(spelling.front(), open_brackets);
            push(TokenKind::kOperator, std::string(spelling));
            return advance(spelling.size());
        }
        fail("unexpected char " + quoted_char());
    }

    void balance(char c, std::string& open_brackets) const {
        if (c == '(') open_brackets += ')';
        if (c == '[') open_brackets += ']';
        if (c == '{') open_brackets += '}';
        if (c != ')' && c != ']' && c != '}') return;
        if (open_brackets.empty()) fail(std::string("unexpected '") + c + "'");
        if (open_brackets.back() != c) {
            fail(std::string("unexpected '") + c + "', expected '" + open_brackets.back() + "'");
        }
        open_brackets.pop_back();
    }

    std::string quoted_char() const {
        return "'" + source_.substr(at_, decode_at(source_, at_).bytes) + "' at " +
               std::to_string(at_);
    }

    /// Digits with single underscores between them, from `at`; the end of them.
    std::size_t skip_digits(std::size_t at) const {
        while (at < source_.size() && (is_digit(source_[at]) ||
                                       (source_[at] == '_' && at + 1 < source_.size() &&
                                        is_digit(source_[at + 1]) && is_digit(source_[at - 1])))) {
            ++at;
        }
        return at;
    }

    void read_number() {
        std::size_t end = skip_digits(at_);
        bool is_float = false;
        const auto digit_at = [&](std::size_t at) {
            return at < source_.size() && is_digit(source_[at]);
        };
        const bool follows_dot = at_ > 0 && source_[at_ - 1] == '.';
        if (!follows_dot && digit_at(end + 1) && source_[end] == '.') {
            is_float = true;
            end = skip_digits(end + 1);
        }
        if (!follows_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
            const std::size_t digits = end + (sign_at(end + 1) != '\0' ? 2 : 1);
            if (digit_at(digits)) {
                is_float = true;
                end = skip_digits(digits);
            }
        }
        std::string text = source_.substr(at_, end - at_);
        std::erase(text, '_');
        push(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
        advance(end - at_);
    }

    void read_string() {
        const char quote = source_[at_];
        std::size_t end = at_ + 1;
        while (end < source_.size() && source_[end] != quote) {
            end += source_[end] == '\\' ? 2U : 1U;
        }
        if (end >= source_.size()) fail("unexpected char " + quoted_char());
        const std::string_view body = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
        std::optional<std::string> value = resolve_escapes(body);
        if (!value) fail("a string literal holds an escape that is not valid");
        push(TokenKind::kString, std::move(*value));
        advance(end + 1 - at_);
    }

    std::string source_;
    std::size_t at_ = 0;
    int line_ = 1;
    bool is_line_start_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
    return Lexer(source).run();
}

}  // namespace replica::chat::jinja

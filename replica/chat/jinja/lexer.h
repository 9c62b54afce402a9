// From template text to tokens: text between tags, and the words within them.
//
// Whitespace control happens here and nowhere else, as Jinja does it with trim_blocks and
// lstrip_blocks: a block or comment tag takes the line break after it and the blanks before it when
// it begins its line; `-` takes all whitespace on its side; `+` keeps what would go.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace replica::chat::jinja {

enum class TokenKind {
    kText,        // between tags; `text` is what is left after whitespace control
    kPrintBegin,  // {{
    kPrintEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,  // `text` is the value, escapes resolved
    kInteger,
    kFloat,
    kOperator,  // `text` is its spelling
    kEnd,
};

struct Token {
    TokenKind kind = TokenKind::kEnd;
    std::string text;
    int line = 1;
};

/// Throws Fault(kSyntax). The last token is kEnd. `source` is valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

}  // namespace replica::chat::jinja

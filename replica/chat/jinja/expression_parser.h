// The half of the parser that reads expressions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "replica/chat/jinja/token_stream.h"

namespace replica::chat::jinja {

class ExpressionParser {
public:
    ExpressionParser(TokenStream& tokens, Names& names, int& depth)
        : tokens_(tokens), names_(names), depth_(depth) {}

    struct TupleOptions {
        bool with_inline_if = true;
        std::string_view end_name;  // a word that ends the list as well
        bool may_be_empty = false;  // within parentheses
    };
    /// One expression, or a tuple when commas follow.
    ExpressionPtr parse_tuple(TupleOptions options);
    ExpressionPtr parse() { return parse_expression(true); }
    ExpressionPtr parse_without_inline_if() { return parse_expression(false); }
    /// `| name(…)` and so on, applied to `input`, which may be null for the first of a block set.
    ExpressionPtr parse_filter(ExpressionPtr input);

private:
    ExpressionPtr parse_expression(bool with_inline_if);
    ExpressionPtr parse_or();
    ExpressionPtr parse_and();
    ExpressionPtr parse_not();
    ExpressionPtr parse_comparison();
    ExpressionPtr parse_sum();
    ExpressionPtr parse_concatenation();
    ExpressionPtr parse_product();
    ExpressionPtr parse_unary(bool with_filters);
    ExpressionPtr parse_primary();
    ExpressionPtr parse_word();
    ExpressionPtr parse_number();
    ExpressionPtr parse_list();
    ExpressionPtr parse_mapping();
    ExpressionPtr parse_postfix(ExpressionPtr object);
    ExpressionPtr parse_subscript(ExpressionPtr object);
    ExpressionPtr parse_filters_and_tests(ExpressionPtr input);
    ExpressionPtr parse_test(ExpressionPtr input);
    Arguments parse_arguments();
    bool is_tuple_end(std::string_view end_name) const;

    ExpressionPtr make(Expression::Node node, int line, int height) const;

    TokenStream& tokens_;
    Names& names_;
    int& depth_;
};

}  // namespace replica::chat::jinja

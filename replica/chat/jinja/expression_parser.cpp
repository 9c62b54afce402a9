#include "replica/chat/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "replica/chat/jinja/parser.h"

namespace replica::chat::jinja {

namespace {

int height_of(const ExpressionPtr& expression) {
    return expression ? expression->height : 0;
}

int height_of(const Arguments& arguments) {
    int height = 0;
    for (const ExpressionPtr& argument : arguments.positional) {
        height = std::max(height, height_of(argument));
    }
    for (const auto& [name, argument] : arguments.keyword) {
        height = std::max(height, height_of(argument));
    }
    return height;
}

int highest(const std::vector<ExpressionPtr>& expressions) {
    int height = 0;
    for (const ExpressionPtr& expression : expressions) {
        height = std::max(height, height_of(expression));
    }
    return height;
}

}  // namespace

ExpressionPtr ExpressionParser::make(Expression::Node node, int line, int height) const {
    if (height >= kExpressionHeightMax) {
        throw Fault(TemplateErrorKind::kLimit,
                    "an expression has more than " + std::to_string(kExpressionHeightMax) +
                        " operations within each other",
                    line);
    }
    return std::make_unique<Expression>(Expression{std::move(node), line, height + 1});
}

bool ExpressionParser::is_tuple_end(std::string_view end_name) const {
    return tokens_.is(TokenKind::kPrintEnd) || tokens_.is(TokenKind::kBlockEnd) ||
           tokens_.is_operator(")") || (!end_name.empty() && tokens_.is_name(end_name));
}

ExpressionPtr ExpressionParser::parse_tuple(TupleOptions options) {
    const int line = tokens_.current().line;
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    while (true) {
        if (!items.empty()) tokens_.expect_operator(",");
        if (is_tuple_end(options.end_name)) break;
        items.push_back(parse_expression(options.with_inline_if));
        if (!tokens_.is_operator(",")) break;
        is_tuple = true;
    }
    if (!is_tuple) {
        if (!items.empty()) return std::move(items.front());
        if (!options.may_be_empty) tokens_.fail_unexpected();
    }
    const int height = highest(items);
    return make(SequenceDisplay{true, std::move(items)}, line, height);
}

ExpressionPtr ExpressionParser::parse_expression(bool with_inline_if) {
    const NestingGuard guard(depth_, tokens_.current().line);
    const int line = tokens_.current().line;
    ExpressionPtr result = parse_or();
    while (with_inline_if && tokens_.skip_name("if")) {
        ExpressionPtr condition = parse_or();
        ExpressionPtr otherwise = tokens_.skip_name("else") ? parse_expression(true) : nullptr;
        const int height =
            std::max({height_of(result), height_of(condition), height_of(otherwise)});
        result = make(Conditional{std::move(condition), std::move(result), std::move(otherwise)},
                      line, height);
    }
    return result;
}

ExpressionPtr ExpressionParser::parse_or() {
    ExpressionPtr left = parse_and();
    while (tokens_.is_name("or")) {
        const int line = tokens_.take().line;
        ExpressionPtr right = parse_and();
        const int height = std::max(height_of(left), height_of(right));
        left = make(Logic{false, std::move(left), std::move(right)}, line, height);
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_and() {
    ExpressionPtr left = parse_not();
    while (tokens_.is_name("and")) {
        const int line = tokens_.take().line;
        ExpressionPtr right = parse_not();
        const int height = std::max(height_of(left), height_of(right));
        left = make(Logic{true, std::move(left), std::move(right)}, line, height);
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_not() {
    if (!tokens_.is_name("not")) return parse_comparison();
    const NestingGuard guard(depth_, tokens_.current().line);
    const int line = tokens_.take().line;
    ExpressionPtr operand = parse_not();
    const int height = height_of(operand);
    return make(Unary{Unary::Op::kNot, std::move(operand)}, line, height);
}

ExpressionPtr ExpressionParser::parse_comparison() {
    using Op = Comparison::Op;
    static constexpr std::pair<std::string_view, Op> kSymbols[] = {
        {"==", Op::kEqual},     {"!=", Op::kNotEqual}, {"<", Op::kLess},
        {"<=", Op::kLessEqual}, {">", Op::kGreater},   {">=", Op::kGreaterEqual}};
    const int line = tokens_.current().line;
    ExpressionPtr first = parse_sum();
    int height = height_of(first);
    std::vector<std::pair<Op, ExpressionPtr>> rest;
    const auto add = [&](Op op) {
        rest.emplace_back(op, parse_sum());
        height = std::max(height, height_of(rest.back().second));
    };
    while (true) {
        if (tokens_.skip_name("in")) {
            add(Op::kIn);
        } else if (tokens_.is_name("not")) {
            tokens_.take();
            tokens_.expect_name("in");
            add(Op::kNotIn);
        } else {
            const auto* const symbol =
                std::find_if(std::begin(kSymbols), std::end(kSymbols),
                             [&](const auto& pair) { return tokens_.is_operator(pair.first); });
            if (symbol == std::end(kSymbols)) break;
            tokens_.take();
            add(symbol->second);
        }
    }
    if (rest.empty()) return first;
    return make(Comparison{std::move(first), std::move(rest)}, line, height);
}

ExpressionPtr ExpressionParser::parse_sum() {
    ExpressionPtr left = parse_concatenation();
    while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
        const Token token = tokens_.take();
        ExpressionPtr right = parse_concatenation();
        const int height = std::max(height_of(left), height_of(right));
        const auto op = token.text == "+" ? Arithmetic::Op::kAdd : Arithmetic::Op::kSubtract;
        left = make(Arithmetic{op, std::move(left), std::move(right)}, token.line, height);
    }
    return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
    const int line = tokens_.current().line;
    std::vector<ExpressionPtr> parts;
    parts.push_back(parse_product());
    while (tokens_.skip_operator("~"))
        parts.push_back(parse_product());
    if (parts.size() == 1) return std::move(parts.front());
    const int height = highest(parts);
    return make(Concatenation{std::move(parts)}, line, height);
}

ExpressionPtr ExpressionParser::parse_product() {
    using Op = Arithmetic::Op;
    static constexpr std::pair<std::string_view, Op> kSymbols[] = {
        {"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}};
    ExpressionPtr left = parse_unary(true);
    while (true) {
        const auto* const symbol =
            std::find_if(std::begin(kSymbols), std::end(kSymbols),
                         [&](const auto& pair) { return tokens_.is_operator(pair.first); });
        if (symbol == std::end(kSymbols)) return left;
        const int line = tokens_.take().line;
        ExpressionPtr right = parse_unary(true);
        const int height = std::max(height_of(left), height_of(right));
        left = make(Arithmetic{symbol->second, std::move(left), std::move(right)}, line, height);
    }
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
    ExpressionPtr node;
    if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
        const NestingGuard guard(depth_, tokens_.current().line);
        const Token sign = tokens_.take();
        ExpressionPtr operand = parse_unary(false);
        const int height = height_of(operand);
        const auto op = sign.text == "-" ? Unary::Op::kMinus : Unary::Op::kPlus;
        node = make(Unary{op, std::move(operand)}, sign.line, height);
    } else {
        node = parse_primary();
    }
    node = parse_postfix(std::move(node));
    return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
    const Token& token = tokens_.current();
    const int line = token.line;
    if (token.kind == TokenKind::kName) return parse_word();
    if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return parse_number();
    if (token.kind == TokenKind::kString) {
        std::string text;
        while (tokens_.is(TokenKind::kString))
            text += tokens_.take().text;
        return make(Literal{make_text(std::move(text))}, line, 0);
    }
    if (tokens_.skip_operator("(")) {
        ExpressionPtr inner = parse_tuple({.may_be_empty = true});
        tokens_.expect_operator(")");
        return inner;
    }
    if (tokens_.is_operator("[")) return parse_list();
    if (tokens_.is_operator("{")) return parse_mapping();
    tokens_.fail_unexpected();
}

ExpressionPtr ExpressionParser::parse_word() {
    const Token token = tokens_.take();
    const std::string& word = token.text;
    if (word == "true" || word == "True") return make(Literal{true}, token.line, 0);
    if (word == "false" || word == "False") return make(Literal{false}, token.line, 0);
    if (word == "none" || word == "None") return make(Literal{None{}}, token.line, 0);
    const NameId id = names_.id_of(word);
    names_.mark_read(id);
    return make(Name{id}, token.line, 0);
}

ExpressionPtr ExpressionParser::parse_number() {
    const Token token = tokens_.current();
    const char* const end = token.text.data() + token.text.size();
    if (token.kind == TokenKind::kFloat) {
        double value = 0;
        const auto read = std::from_chars(token.text.data(), end, value);
        if (read.ec != std::errc{}) tokens_.fail("the number " + token.text + " is out of range");
        tokens_.take();
        return make(Literal{value}, token.line, 0);
    }
    const bool has_leading_zero = token.text.size() > 1 &&
                                  token.text.find_first_not_of('0') != std::string::npos &&
                                  token.text.front() == '0';
    std::int64_t value = 0;
    const auto read = std::from_chars(token.text.data(), end, value);
    if (has_leading_zero || read.ec != std::errc{}) {
        tokens_.fail("the number " + token.text + " is no integer of 64 bits");
    }
    tokens_.take();
    return make(Literal{value}, token.line, 0);
}

ExpressionPtr ExpressionParser::parse_list() {
    const int line = tokens_.take().line;
    std::vector<ExpressionPtr> items;
    while (!tokens_.is_operator("]")) {
        if (!items.empty()) tokens_.expect_operator(",");
        if (tokens_.is_operator("]")) break;
        items.push_back(parse());
    }
    tokens_.expect_operator("]");
    const int height = highest(items);
    return make(SequenceDisplay{false, std::move(items)}, line, height);
}

ExpressionPtr ExpressionParser::parse_mapping() {
    const int line = tokens_.take().line;
    MappingDisplay mapping;
    int height = 0;
    while (!tokens_.is_operator("}")) {
        if (!mapping.entries.empty()) tokens_.expect_operator(",");
        if (tokens_.is_operator("}")) break;
        ExpressionPtr key = parse();
        tokens_.expect_operator(":");
        ExpressionPtr value = parse();
        height = std::max({height, height_of(key), height_of(value)});
        mapping.entries.emplace_back(std::move(key), std::move(value));
    }
    tokens_.expect_operator("}");
    return make(std::move(mapping), line, height);
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr object) {
    while (true) {
        const int line = tokens_.current().line;
        if (tokens_.is_operator("(")) {
            Arguments arguments = parse_arguments();
            const int height = std::max(height_of(object), height_of(arguments));
            object = make(Call{std::move(object), std::move(arguments)}, line, height);
        } else if (tokens_.is_operator(".") || tokens_.is_operator("[")) {
            object = parse_subscript(std::move(object));
        } else {
            return object;
        }
    }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
    const int line = tokens_.current().line;
    const int height = height_of(object);
    if (tokens_.skip_operator(".")) {
        if (tokens_.is(TokenKind::kInteger)) {
            return make(Item{std::move(object), parse_number()}, line, height);
        }
        std::string name = tokens_.expect_any_name();
        return make(Attribute{std::move(object), make_text(std::move(name))}, line, height);
    }
    const NestingGuard guard(depth_, line);
    tokens_.expect_operator("[");
    ExpressionPtr parts[3];
    std::vector<ExpressionPtr> items;  // a[1, 2] means a[(1, 2)]
    int index = 0;
    bool is_slice = false;
    bool is_tuple = tokens_.is_operator("]");
    int inner_height = 0;
    while (!tokens_.is_operator("]")) {
        if (tokens_.is_operator(":") && !is_tuple) {
            is_slice = true;
            if (++index > 2) tokens_.fail_unexpected();
            tokens_.take();
        } else if (tokens_.is_operator(",") && !is_slice && parts[0]) {
            is_tuple = true;
            tokens_.take();
            items.push_back(std::move(parts[0]));
        } else {
            if (parts[index]) tokens_.fail_unexpected();
            parts[index] = parse();
            inner_height = std::max(inner_height, height_of(parts[index]));
        }
    }
    tokens_.expect_operator("]");
    if (is_tuple) {
        if (parts[0]) items.push_back(std::move(parts[0]));
        parts[0] = make(SequenceDisplay{true, std::move(items)}, line, inner_height);
        inner_height = parts[0]->height;
    }
    const int joint_height = std::max(height, inner_height);
    if (!is_slice) return make(Item{std::move(object), std::move(parts[0])}, line, joint_height);
    return make(
        Slice{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])},
        line, joint_height);
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr input) {
    while (true) {
        if (tokens_.is_operator("|")) {
            tokens_.take();
            input = parse_filter(std::move(input));
        } else if (tokens_.is_name("is")) {
            input = parse_test(std::move(input));
        } else if (tokens_.is_operator("(")) {
            input = parse_postfix(std::move(input));
        } else {
            return input;
        }
    }
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
    const int line = tokens_.current().line;
    std::string name = tokens_.expect_any_name();
    while (tokens_.skip_operator("."))
        name += "." + tokens_.expect_any_name();
    names_.note_filter(name, line);
    Arguments arguments;
    if (tokens_.is_operator("(")) arguments = parse_arguments();
    const int height = std::max(height_of(input), height_of(arguments));
    return make(FilterCall{std::move(input), std::move(name), std::move(arguments)}, line, height);
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
    const int line = tokens_.take().line;
    const bool is_negated = tokens_.skip_name("not");
    std::string name = tokens_.expect_any_name();
    while (tokens_.skip_operator("."))
        name += "." + tokens_.expect_any_name();
    names_.note_test(name, line);
    Arguments arguments;
    const bool may_begin_operand = tokens_.is(TokenKind::kName) || tokens_.is(TokenKind::kString) ||
                                   tokens_.is(TokenKind::kInteger) ||
                                   tokens_.is(TokenKind::kFloat) || tokens_.is_operator("[") ||
                                   tokens_.is_operator("{");
    if (tokens_.is_operator("(")) {
        arguments = parse_arguments();
    } else if (may_begin_operand && !tokens_.is_name("else") && !tokens_.is_name("or") &&
               !tokens_.is_name("and")) {
        if (tokens_.is_name("is")) tokens_.fail("You cannot chain multiple tests with is");
        const NestingGuard guard(depth_, line);
        arguments.positional.push_back(parse_postfix(parse_primary()));
    }
    const int height = std::max(height_of(input), height_of(arguments));
    ExpressionPtr test =
        make(TestCall{std::move(input), std::move(name), std::move(arguments)}, line, height);
    if (!is_negated) return test;
    return make(Unary{Unary::Op::kNot, std::move(test)}, line, height + 1);
}

Arguments ExpressionParser::parse_arguments() {
    const NestingGuard guard(depth_, tokens_.current().line);
    tokens_.expect_operator("(");
    Arguments arguments;
    bool is_first = true;
    while (!tokens_.is_operator(")")) {
        if (!is_first) {
            tokens_.expect_operator(",");
            if (tokens_.is_operator(")")) break;
        }
        is_first = false;
        if (arguments.positional.size() + arguments.keyword.size() >= kArgumentsMax) {
            throw Fault(TemplateErrorKind::kLimit,
                        "a call has more than " + std::to_string(kArgumentsMax) + " arguments",
                        tokens_.current().line);
        }
        if (tokens_.is(TokenKind::kName) && tokens_.next_is_operator("=")) {
            std::string name = tokens_.take().text;
            tokens_.take();
            arguments.keyword.emplace_back(std::move(name), parse());
        } else if (arguments.keyword.empty()) {
            arguments.positional.push_back(parse());
        } else {
            tokens_.fail("invalid syntax for function call expression");
        }
    }
    tokens_.expect_operator(")");
    return arguments;
}

}  // namespace replica::chat::jinja

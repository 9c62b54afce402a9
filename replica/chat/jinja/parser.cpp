#include "replica/chat/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "replica/chat/jinja/expression_parser.h"
#include "replica/chat/jinja/token_stream.h"

namespace replica::chat::jinja {

namespace {

using EndTags = std::initializer_list<std::string_view>;

class Parser {
public:
    explicit Parser(std::string_view source)
        : tokens_(tokenize(source)), names_(program_), expressions_(tokens_, names_, depth_) {}

    Program run() {
        program_.body = parse_block({}, "");
        return std::move(program_);
    }

private:
    /// Statements up to one of `ends` (whose name is left to be read) or, without ends, up to the
    /// end of the template. `opened_by` is for the message.
    Block parse_block(EndTags ends, std::string_view opened_by) {
        const NestingGuard guard(depth_, tokens_.current().line);
        Block block;
        while (true) {
            const int line = tokens_.current().line;
            if (tokens_.is(TokenKind::kEnd)) {
                if (ends.size() == 0) return block;
                fail_open("Unexpected end of template.", ends, opened_by);
            }
            if (tokens_.is(TokenKind::kText)) {
                block.push_back({PrintText{make_text(tokens_.take().text)}, line});
            } else if (tokens_.is(TokenKind::kPrintBegin)) {
                tokens_.take();
                ExpressionPtr expression = expressions_.parse_tuple({});
                tokens_.expect(TokenKind::kPrintEnd);
                block.push_back({Print{std::move(expression)}, line});
            } else {
                tokens_.expect(TokenKind::kBlockBegin);
                if (!tokens_.is(TokenKind::kName)) tokens_.fail("tag name expected");
                const std::string& tag = tokens_.current().text;
                if (std::find(ends.begin(), ends.end(), tag) != ends.end()) return block;
                block.push_back(parse_statement(ends, opened_by));
            }
        }
    }

    [[noreturn]] void fail_open(std::string message, EndTags ends,
                                std::string_view opened_by) const {
        if (ends.size() > 0) {
            message += " Jinja was looking for the following tags: ";
            bool is_first = true;
            for (const std::string_view end : ends) {
                if (!is_first) message += " or ";
                is_first = false;
                message += "'" + std::string(end) + "'";
            }
            message += ". The innermost block that needs to be closed is '" +
                       std::string(opened_by) + "'.";
        }
        tokens_.fail(std::move(message));
    }

    Statement parse_statement(EndTags ends, std::string_view opened_by) {
        const Token tag = tokens_.current();
        const auto statement = [&](Statement::Node node) {
            tokens_.expect(TokenKind::kBlockEnd);
            return Statement{std::move(node), tag.line};
        };
        if (tag.text == "if") return statement(parse_if());
        if (tag.text == "for") return statement(parse_for());
        if (tag.text == "set") return statement(parse_set());
        if (tag.text == "macro") return statement(parse_macro());
        if (tag.text == "generation") return statement(parse_generation());
        if (tag.text == "break" || tag.text == "continue") {
            if (loop_depth_ == 0) tokens_.fail("'" + tag.text + "' outside of a loop");
            tokens_.take();
            if (tag.text == "break") return statement(Break{});
            return statement(Continue{});
        }
        fail_open("Encountered unknown tag '" + tag.text + "'.", ends, opened_by);
    }

    If parse_if() {
        If result;
        while (true) {
            tokens_.take();  // if, elif
            ExpressionPtr condition = expressions_.parse_tuple({.with_inline_if = false});
            tokens_.expect(TokenKind::kBlockEnd);
            result.branches.push_back(
                {std::move(condition), parse_block({"elif", "else", "endif"}, "if")});
            if (!tokens_.is_name("elif")) break;
        }
        if (tokens_.skip_name("else")) {
            tokens_.expect(TokenKind::kBlockEnd);
            result.otherwise = parse_block({"endif"}, "if");
        }
        tokens_.take();  // endif
        return result;
    }

    For parse_for() {
        tokens_.take();
        For result;
        result.target = parse_target("in", false);
        tokens_.expect_name("in");
        result.sequence =
            expressions_.parse_tuple({.with_inline_if = false, .end_name = "recursive"});
        if (tokens_.skip_name("if")) result.condition = expressions_.parse();
        if (tokens_.is_name("recursive")) tokens_.fail("recursive loops are not supported");
        tokens_.expect(TokenKind::kBlockEnd);
        ++loop_depth_;
        result.body = parse_block({"endfor", "else"}, "for");
        --loop_depth_;
        if (tokens_.skip_name("else")) {
            tokens_.expect(TokenKind::kBlockEnd);
            result.otherwise = parse_block({"endfor"}, "for");
        }
        tokens_.take();  // endfor
        return result;
    }

    Statement::Node parse_set() {
        tokens_.take();
        Target target = parse_target("", true);
        if (tokens_.skip_operator("=")) return Set{std::move(target), expressions_.parse_tuple({})};
        SetBlock result{std::move(target), {}, {}};
        while (tokens_.skip_operator("|")) {
            result.filters.push_back(expressions_.parse_filter(nullptr));
        }
        tokens_.expect(TokenKind::kBlockEnd);
        result.body = parse_body("endset", "set");
        return result;
    }

    /// One name, or several with commas between them.
    Target parse_target(std::string_view end_name, bool may_be_attribute) {
        std::vector<Target> targets;
        bool is_tuple = false;
        while (true) {
            if (!targets.empty()) {
                tokens_.expect_operator(",");
                const bool is_end = tokens_.is_operator("=") || tokens_.is_operator(")") ||
                                    tokens_.is(TokenKind::kBlockEnd) ||
                                    (!end_name.empty() && tokens_.is_name(end_name));
                if (is_end) break;
            }
            targets.push_back(parse_single_target(may_be_attribute));
            if (!tokens_.is_operator(",")) break;
            is_tuple = true;
        }
        if (!is_tuple) return std::move(targets.front());
        return {std::move(targets)};
    }

    Target parse_single_target(bool may_be_attribute) {
        if (tokens_.skip_operator("(")) {
            const NestingGuard guard(depth_, tokens_.current().line);
            Target inner = parse_target("", may_be_attribute);
            tokens_.expect_operator(")");
            return inner;
        }
        const std::string name = tokens_.expect_any_name();
        static constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                                          "False", "none", "None"};
        if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
            tokens_.fail("can't assign to '" + name + "'");
        }
        const NameId id = names_.id_of(name);
        if (may_be_attribute && tokens_.skip_operator(".")) {
            return {Target::NamespaceAttribute{id, tokens_.expect_any_name()}};
        }
        return {id};
    }

    DefineMacro parse_macro() {
        tokens_.take();
        auto macro = std::make_unique<Macro>();
        macro->name = tokens_.expect_any_name();
        macro->id = names_.id_of(macro->name);
        tokens_.expect_operator("(");
        bool has_default = false;
        while (!tokens_.is_operator(")")) {
            if (!macro->parameters.empty()) tokens_.expect_operator(",");
            if (macro->parameters.size() >= kArgumentsMax) {
                throw Fault(
                    TemplateErrorKind::kLimit,
                    "a macro has more than " + std::to_string(kArgumentsMax) + " parameters",
                    tokens_.current().line);
            }
            Macro::Parameter parameter;
            parameter.spelling = tokens_.expect_any_name();
            parameter.name = names_.id_of(parameter.spelling);
            if (tokens_.skip_operator("=")) {
                parameter.default_value = expressions_.parse();
                has_default = true;
            } else if (has_default) {
                tokens_.fail("non-default argument follows default argument");
            }
            macro->parameters.push_back(std::move(parameter));
        }
        tokens_.expect_operator(")");
        tokens_.expect(TokenKind::kBlockEnd);
        const int outer_loop_depth = std::exchange(loop_depth_, 0);
        macro->body = parse_body("endmacro", "macro");
        loop_depth_ = outer_loop_depth;
        return {std::move(macro)};
    }

    Generation parse_generation() {
        tokens_.take();
        tokens_.expect(TokenKind::kBlockEnd);
        const int outer_loop_depth = std::exchange(loop_depth_, 0);
        Block body = parse_body("endgeneration", "generation");
        loop_depth_ = outer_loop_depth;
        return {std::move(body)};
    }

    Block parse_body(std::string_view end, std::string_view opened_by) {
        Block body = parse_block({end}, opened_by);
        tokens_.take();
        return body;
    }

    Program program_;
    int depth_ = 0;
    int loop_depth_ = 0;
    TokenStream tokens_;
    Names names_;
    ExpressionParser expressions_;
};

}  // namespace

Program parse_template(std::string_view source) {
    return Parser(source).run();
}

}  // namespace replica::chat::jinja

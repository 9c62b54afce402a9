// What the two halves of the parser (statements, expressions) share: the tokens and the names.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "replica/chat/jinja/ast.h"
#include "replica/chat/jinja/lexer.h"

namespace replica::chat::jinja {

class TokenStream {
public:
    explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    const Token& current() const { return tokens_[at_]; }
    Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
    bool is(TokenKind kind) const { return current().kind == kind; }
    bool is_operator(std::string_view spelling) const {
        return is(TokenKind::kOperator) && current().text == spelling;
    }
    bool next_is_operator(std::string_view spelling) const {
        return at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TokenKind::kOperator &&
               tokens_[at_ + 1].text == spelling;
    }
    bool is_name(std::string_view name) const {
        return is(TokenKind::kName) && current().text == name;
    }
    bool skip_operator(std::string_view spelling) { return is_operator(spelling) && skip(); }
    bool skip_name(std::string_view name) { return is_name(name) && skip(); }
    void expect_operator(std::string_view spelling);
    void expect_name(std::string_view name);
    void expect(TokenKind kind);
    std::string expect_any_name();

    [[noreturn]] void fail(std::string message) const;
    [[noreturn]] void fail_unexpected() const;

private:
    bool skip() {
        ++at_;
        return true;
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
};

/// The name table of the program being parsed.
class Names {
public:
    explicit Names(Program& program) : program_(&program) {}

    NameId id_of(const std::string& name);
    void mark_read(NameId id) { program_->is_read[static_cast<std::size_t>(id)] = true; }
    void note_filter(const std::string& name, int line);
    void note_test(const std::string& name, int line);

private:
    Program* program_;
    std::unordered_map<std::string, NameId> ids_;
    std::unordered_set<std::string> noted_filters_;
    std::unordered_set<std::string> noted_tests_;
};

/// Counts how deep the parser is; throws Fault(kLimit) beyond kTemplateNestingMax.
class NestingGuard {
public:
    NestingGuard(int& depth, int line);
    ~NestingGuard() { --depth_; }
    NestingGuard(const NestingGuard&) = delete;
    NestingGuard& operator=(const NestingGuard&) = delete;

private:
    int& depth_;
};

}  // namespace replica::chat::jinja

#include "replica/chat/jinja/token_stream.h"

namespace replica::chat::jinja {

namespace {

std::string describe(const Token& token) {
    switch (token.kind) {
        case TokenKind::kText:
            return "template data";
        case TokenKind::kPrintBegin:
            return "begin of print statement";
        case TokenKind::kPrintEnd:
            return "end of print statement";
        case TokenKind::kBlockBegin:
            return "begin of statement block";
        case TokenKind::kBlockEnd:
            return "end of statement block";
        case TokenKind::kEnd:
            return "end of template";
        default:
            return token.text;
    }
}

}  // namespace

void TokenStream::expect_operator(std::string_view spelling) {
    if (!skip_operator(spelling)) {
        fail("expected token '" + std::string(spelling) + "', got '" + describe(current()) + "'");
    }
}

void TokenStream::expect_name(std::string_view name) {
    if (!skip_name(name)) {
        fail("expected token '" + std::string(name) + "', got '" + describe(current()) + "'");
    }
}

void TokenStream::expect(TokenKind kind) {
    if (is(TokenKind::kEnd) && kind != TokenKind::kEnd) {
        fail("unexpected end of template, expected '" + describe({kind, "", 0}) + "'.");
    }
    if (!is(kind)) {
        fail("expected token '" + describe({kind, "", 0}) + "', got '" + describe(current()) + "'");
    }
    take();
}

std::string TokenStream::expect_any_name() {
    if (!is(TokenKind::kName)) fail("expected token 'name', got '" + describe(current()) + "'");
    return take().text;
}

void TokenStream::fail(std::string message) const {
    throw Fault(TemplateErrorKind::kSyntax, std::move(message), current().line);
}

void TokenStream::fail_unexpected() const {
    fail("unexpected '" + describe(current()) + "'");
}

NameId Names::id_of(const std::string& name) {
    const auto [place, is_new] = ids_.emplace(name, static_cast<NameId>(program_->names.size()));
    if (is_new) {
        program_->names.push_back(name);
        program_->is_read.push_back(false);
    }
    return place->second;
}

void Names::note_filter(const std::string& name, int line) {
    if (!noted_filters_.insert(name).second) return;
    program_->filters.push_back(name);
    program_->filter_lines.push_back(line);
}

void Names::note_test(const std::string& name, int line) {
    if (!noted_tests_.insert(name).second) return;
    program_->tests.push_back(name);
    program_->test_lines.push_back(line);
}

NestingGuard::NestingGuard(int& depth, int line) : depth_(depth) {
    if (depth_ >= kTemplateNestingMax) {
        throw Fault(
            TemplateErrorKind::kLimit,
            "the template is nested more than " + std::to_string(kTemplateNestingMax) + " deep",
            line);
    }
    ++depth_;
}

}  // namespace replica::chat::jinja

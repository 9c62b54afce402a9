#include "replica/chat/template.h"

#include <algorithm>

#include "replica/chat/jinja/interpreter.h"
#include "replica/chat/jinja/parser.h"
#include "replica/chat/jinja/unicode.h"

namespace replica::chat {

namespace {

constexpr std::int64_t kTextBytesPerToken = 8;

std::vector<std::string> warnings_of(const jinja::Program& program) {
    std::vector<std::string> warnings;
    const auto add = [&](std::string_view what, const std::string& name, int line) {
        warnings.push_back("chat template, line " + std::to_string(line) + ": unknown " +
                           std::string(what) + " '" + name + "'");
    };
    for (std::size_t i = 0; i < program.filters.size(); ++i) {
        if (!jinja::is_filter(program.filters[i])) {
            add("filter", program.filters[i], program.filter_lines[i]);
        }
    }
    for (std::size_t i = 0; i < program.tests.size(); ++i) {
        if (!jinja::is_test(program.tests[i])) add("test", program.tests[i], program.test_lines[i]);
    }
    return warnings;
}

}  // namespace

struct Template::Compiled {
    std::string source;
    jinja::Program program;
    std::vector<std::string> warnings;
};

Template::Template(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

tl::expected<Template, TemplateError> Template::compile(std::string_view text) {
    if (text.size() > kTemplateBytesMax) {
        return tl::unexpected(TemplateError{
            TemplateErrorKind::kLimit,
            "the template has more than " + std::to_string(kTemplateBytesMax) + " bytes", 0});
    }
    if (!jinja::is_valid_utf8(text)) {
        return tl::unexpected(
            TemplateError{TemplateErrorKind::kSyntax, "the template is not valid UTF-8", 0});
    }
    try {
        auto compiled = std::make_shared<Compiled>();
        compiled->source = text;
        compiled->program = jinja::parse_template(text);
        compiled->warnings = warnings_of(compiled->program);
        return Template(std::move(compiled));
    } catch (const jinja::Fault& fault) {
        return tl::unexpected(fault.error());
    }
}

tl::expected<Rendered, TemplateError> Template::render(const Json& context,
                                                       const RenderOptions& options) const {
    try {
        return jinja::Interpreter(compiled_->program, context, options).run();
    } catch (const jinja::Fault& fault) {
        return tl::unexpected(fault.error());
    }
}

bool Template::reads(std::string_view name) const {
    const jinja::Program& program = compiled_->program;
    const auto found = std::find(program.names.begin(), program.names.end(), name);
    return found != program.names.end() &&
           program.is_read[static_cast<std::size_t>(found - program.names.begin())];
}

const std::vector<std::string>& Template::warnings() const {
    return compiled_->warnings;
}
const std::string& Template::source() const {
    return compiled_->source;
}

TemplateLimits TemplateLimits::for_context(std::int64_t context_tokens) {
    TemplateLimits limits;
    const std::int64_t bytes = std::max<std::int64_t>(context_tokens, 0) * kTextBytesPerToken;
    limits.text_bytes_max = std::max(limits.text_bytes_max, static_cast<std::size_t>(bytes));
    return limits;
}

std::string_view name_of(TemplateErrorKind kind) {
    switch (kind) {
        case TemplateErrorKind::kRaised:
            return "raised";
        case TemplateErrorKind::kUndefined:
            return "undefined";
        case TemplateErrorKind::kType:
            return "type";
        case TemplateErrorKind::kArithmetic:
            return "arithmetic";
        case TemplateErrorKind::kSecurity:
            return "security";
        case TemplateErrorKind::kUnknownName:
            return "unknown_name";
        case TemplateErrorKind::kLimit:
            return "limit";
        case TemplateErrorKind::kSyntax:
            break;
    }
    return "syntax";
}

std::string describe(const TemplateError& error) {
    if (error.kind == TemplateErrorKind::kRaised) return error.message;
    if (error.line == 0) return "chat template: " + error.message;
    return "chat template, line " + std::to_string(error.line) + ": " + error.message;
}

}  // namespace replica::chat

// Chat templates: the Jinja subset that models ship, interpreted by our own small engine.
//
//   text ─ compile ─▶ Template (immutable tree) ─ render(context) ─▶ text + data_spans
//            │ TemplateError{syntax, line}            │ TemplateError{raised | undefined | … ,
//            line}
//
// A template from a file is untrusted code and the context is untrusted data. The first is answered
// by limits on everything that can grow, each with its name; the second by provenance: every string
// carries which of its bytes came from the request, through all operations, and the rendered text
// says where they lie. The tokenizer then refuses to match control tokens there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include <tl/expected.hpp>

#include "replica/byte_span.h"

namespace replica::chat {

/// Context values and tool declarations: object keys stay in order, integers and floats apart.
using Json = nlohmann::ordered_json;

enum class TemplateErrorKind {
    kRaised,       // raise_exception of the template; `message` is its text, unchanged
    kUndefined,    // attribute, item, call or arithmetic on an undefined value
    kType,         // an operation on the wrong kind of value
    kArithmetic,   // division by zero, integer overflow
    kSecurity,     // a name that begins with "_", a method that would change a value
    kUnknownName,  // a filter or test that does not exist, reached while rendering
    kLimit,        // one of TemplateLimits
    kSyntax,       // compile only
};

/// "raised", "undefined", "type", "arithmetic", "security", "unknown_name", "limit", "syntax".
std::string_view name_of(TemplateErrorKind kind);

struct TemplateError {
    TemplateErrorKind kind = TemplateErrorKind::kSyntax;
    std::string message;
    int line = 0;  // of the template, from 1; 0 when there is none to blame
};

/// What the client reads: a raised message as it is, any other as "chat template, line 12: …".
std::string describe(const TemplateError& error);

/// Everything that can grow while a template is rendered.
struct TemplateLimits {
    std::uint64_t loop_iterations_max = 1'000'000;  // over all loops and implicit ones (map, join)
    std::uint64_t nodes_max = 16'000'000;           // evaluated expressions and statements
    std::size_t macro_depth_max = 64;
    std::int64_t range_max = 100'000;
    std::size_t text_bytes_max = 4U << 20U;  // the output, and any one string; see for_context()
    std::chrono::milliseconds cpu_time_max{1000};

    /// The limits for a model with this context: text_bytes_max is 8 bytes a token, at least 4 MiB.
    static TemplateLimits for_context(std::int64_t context_tokens);
};

inline constexpr std::size_t kTemplateBytesMax = 1U << 20U;
inline constexpr int kTemplateNestingMax = 64;  // blocks and expressions within each other

struct RenderOptions {
    TemplateLimits limits;
    std::chrono::local_seconds now{};  // what strftime_now shows
    /// Top-level context names whose strings are the server's own, not request data.
    std::vector<std::string> trusted_names{"bos_token", "eos_token"};
};

struct Rendered {
    std::string text;
    std::vector<ByteSpan>
        data_spans;  // bytes that came from the request: sorted, disjoint, not empty
};

/// A compiled template. Copies share one immutable tree; any number of threads may render at once.
class Template {
public:
    /// Refuses text above kTemplateBytesMax (kLimit) and anything the parser does not know
    /// (kSyntax).
    static tl::expected<Template, TemplateError> compile(std::string_view text);

    /// `context` is an object: the names the template sees. O(work of the template), within limits.
    tl::expected<Rendered, TemplateError> render(const Json& context,
                                                 const RenderOptions& options = {}) const;

    /// Whether the template reads the variable `name` anywhere.
    bool reads(std::string_view name) const;
    /// Unknown filters and tests, a sentence each: a warning at load, an error when reached.
    const std::vector<std::string>& warnings() const;
    const std::string& source() const;

private:
    struct Compiled;
    explicit Template(std::shared_ptr<const Compiled> compiled);
    std::shared_ptr<const Compiled> compiled_;
};

}  // namespace replica::chat

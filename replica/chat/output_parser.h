// From generated text to a message: reasoning, content and tool calls, one incremental parser for
// streamed and for plain replies (a plain reply is the sum of the deltas).
//
//   START ─▶ REASONING ─</think>─▶ LEAD ─▶ CONTENT ◀──────┐
//     └──────────▲──────────────────────────▶ │          text
//                └── (a call closes it) ─▶ CALL ─end─▶ AFTER
//
// Split rule: the sum of the deltas depends on the whole text and the way it finished, never on how
// it was cut into chunks. A decision is taken when no continuation could change it. Nothing is
// lost: every character ends in reasoning, content or a call, or is a recognised tag, whitespace
// around one, or a repeated parameter. There is no failing path; malformed output becomes text. One
// exception: a tag that the token limit cuts within a call is dropped, so that the arguments sent
// are a prefix of those of the whole call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "replica/chat/template.h"

namespace replica::chat {

enum class OutputFormat { kNone, kQwenXml, kHermes, kLlama3Json };
/// "none", "qwen_xml", "hermes", "llama3_json".
std::string_view name_of(OutputFormat format);
/// False and `out` untouched when `name` is none of those above.
[[nodiscard]] bool parse_output_format(std::string_view name, OutputFormat& out);

/// Where the generated text begins; from the rendered prompt, see initial_state().
enum class ParserState { kStart, kReasoning, kContent };
std::string_view name_of(ParserState state);

/// kEnd: an end token, stop string or stop id. kLength: the token limit or the context cut it.
enum class FinishKind { kEnd, kLength };

struct ReasoningDelta {
    std::string text;
};
struct ContentDelta {
    std::string text;
};
/// The name of a call is complete; its arguments follow in fragments. Calls do not overlap.
struct ToolCallStart {
    int index = 0;
    std::string id;
    std::string name;
};
struct ToolCallArguments {
    int index = 0;
    std::string text;  // a piece of JSON text
};
using OutputDelta = std::variant<ReasoningDelta, ContentDelta, ToolCallStart, ToolCallArguments>;

/// "call_" and 24 random letters and digits. Each call draws anew.
std::string random_tool_call_id();

/// More undecided text than this is decided as text.
inline constexpr std::size_t kUndecidedMax = 4096;

struct ParserOptions {
    OutputFormat format = OutputFormat::kNone;
    ParserState initial = ParserState::kContent;
    Json tools = Json::array();  // declarations in OpenAI form
    /// Calls are looked for only when this holds (tool_choice is not none), tools are declared and
    /// the format is not none.
    bool calls_enabled = true;
    /// False under tool_choice required and named: the constraint begins after the close tag.
    bool calls_in_reasoning = true;
    /// Whether template or vocabulary know think tags; without them START is CONTENT.
    bool think_tags = true;
    std::function<std::string()> make_id = random_tool_call_id;
    bool reports_origins = false;  // fills take_origins()
    std::size_t undecided_max = kUndecidedMax;
};

/// Which bytes of all text fed so far a piece of reasoning or content is a copy of.
struct TextOrigin {
    enum class Kind { kReasoning, kContent } kind = Kind::kContent;
    ByteSpan bytes;
};

/// Used by one thread at a time. Memory: the undecided tail, at most `undecided_max` bytes, and one
/// parameter value that can only be written when it is complete.
class OutputParser {
public:
    explicit OutputParser(ParserOptions options);
    ~OutputParser();
    OutputParser(OutputParser&&) noexcept;
    OutputParser& operator=(OutputParser&&) noexcept;

    /// The next piece of detokenised text, special tokens spelled out, whole characters only.
    std::vector<OutputDelta> feed(std::string_view text);
    /// Releases what is held. Called once; feed must not follow.
    std::vector<OutputDelta> finish(FinishKind kind);

    /// Where the reasoning and the content of the deltas since the last call came from, in order:
    /// all their bytes are copies of what was fed. Only with `reports_origins`.
    std::vector<TextOrigin> take_origins();
    /// Bytes of the fed text that are decided: no later origin begins before them.
    std::size_t decided_bytes() const;
    /// Whether the reasoning has begun and not ended yet.
    bool in_reasoning() const;
    int tool_call_count() const;
    /// How often malformed output became text, by kind; for output_parse_fallback_total{kind}.
    const std::map<std::string, std::uint64_t>& fallbacks() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// The sum of deltas, in OpenAI's shape (without role).
struct ParsedToolCall {
    std::string id;
    std::string name;
    std::string arguments;
};
struct ParsedMessage {
    std::string reasoning;
    std::string content;
    std::vector<ParsedToolCall> tool_calls;
};
void accumulate(ParsedMessage& message, const std::vector<OutputDelta>& deltas);

/// The call format a template teaches, found by rendering a probe call with it.
OutputFormat detect_output_format(const Template& chat_template);
/// Whether the template text knows `</think>`; a vocabulary with that token counts too (the
/// caller).
bool has_think_tags(const Template& chat_template);
/// The parser's first state: the prompt, trailing whitespace removed, ends in `<think>` (REASONING)
/// or `</think>` (CONTENT) in the template's own bytes; otherwise START.
ParserState initial_state(const Rendered& prompt);

}  // namespace replica::chat

// From OpenAI-shaped messages to the prompt text: the context a template sees, and the second try
// with system messages folded into one when the template refuses them where they stand.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "replica/chat/output_parser.h"
#include "replica/chat/template.h"

namespace replica::chat {

enum class ChatErrorCode {
    kInvalidType,
    kInvalidValue,
    kUnsupportedContent,
    kTemplateError,
    kTemplateLimit
};
/// "invalid_type", "invalid_value", "unsupported_content", "template_error", "template_limit": the
/// `code` of the 400 that answers it.
std::string_view name_of(ChatErrorCode code);

struct ChatError {
    ChatErrorCode code = ChatErrorCode::kInvalidValue;
    std::string message;
    std::string param;  // "messages[3].content[1]"; empty when no parameter is to blame
};

struct ChatInput {
    Json messages = Json::array();
    std::optional<Json> tools;        // undefined in the template when absent or empty
    Json variables = Json::object();  // chat_template_kwargs, enable_thinking, …
    bool add_generation_prompt = true;
    std::string bos_token, eos_token;  // the server's own: control tokens there are matched
};

/// warnings: a request may carry them to the client.
inline constexpr std::string_view kWarnSystemFolded = "system_messages_folded";

struct RenderedPrompt {
    std::string text;
    std::vector<ByteSpan> data_spans;  // where control tokens must not be matched
    std::vector<std::string> warnings;
    ParserState initial_state = ParserState::kStart;
};

/// Messages as the template sees them: developer is system, `reasoning` is reasoning_content,
/// argument text is an object, null content is an empty string, refusal parts are text, and a run
/// of tool messages stands in the order of the calls it answers.
tl::expected<Json, ChatError> template_messages(const Json& messages);

/// Renders `input` with `chat_template`. When the template raises and a system message is not
/// first, the system texts are merged into one leading message and rendered once more.
tl::expected<RenderedPrompt, ChatError> render_chat(const Template& chat_template,
                                                    const ChatInput& input,
                                                    const RenderOptions& options = {});

}  // namespace replica::chat

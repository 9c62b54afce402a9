#include "proto/chat_request.h"

#include <algorithm>
#include <array>

#include "proto/chat_messages.h"
#include "proto/chat_tools.h"
#include "proto/field_check.h"

namespace proto {
namespace {

constexpr std::array<std::string_view, 7> kEffortNames = {"none", "minimal", "low", "medium",
                                                          "high", "xhigh",   "max"};
constexpr std::array<std::string_view, 4> kFieldNames = {"reasoning_content", "reasoning", "both",
                                                         "inline"};

/// The enumerator whose name the member holds; the field table has checked that there is one.
template <class Enum, std::size_t kCount>
void read_enum(const Json& body, std::string_view name,
               const std::array<std::string_view, kCount>& names, std::optional<Enum>& out) {
    const Json* const value = find_member(body, name);
    if (value == nullptr) return;
    const auto found = std::ranges::find(names, value->get_ref<const std::string&>());
    out = static_cast<Enum>(found - names.begin());
}

Result<void> read_template_kwargs(const Json& body, ChatRequest& request) {
    read_member(body, "enable_thinking", request.enable_thinking);
    const Json* const kwargs = find_member(body, "chat_template_kwargs");
    if (kwargs == nullptr) return {};
    for (const std::string_view name :
         {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
        if (kwargs->contains(name)) {
            const std::string param = member_of("chat_template_kwargs", name);
            return fail(ErrorCode::kUnsupportedParameter,
                        "'" + param + "' is refused: the server sets it itself.", param);
        }
    }
    if (const Json* thinking = find_member(*kwargs, "enable_thinking")) {
        if (!thinking->is_boolean()) {
            return wrong_type("chat_template_kwargs.enable_thinking", "true or false");
        }
        if (!request.enable_thinking) request.enable_thinking = thinking->get<bool>();
    }
    request.chat_template_kwargs = *kwargs;
    return {};
}

Result<void> read_template_fields(const Json& body, const RequestLimits& limits,
                                  ChatRequest& request) {
    if (const Json* text = find_member(body, "chat_template")) {
        if (!limits.allow_chat_template) {
            return fail(ErrorCode::kUnsupportedParameter,
                        "'chat_template' is refused: this server renders its own template.",
                        "chat_template");
        }
        request.chat_template = text->get<std::string>();
    }
    if (Result<void> read = read_template_kwargs(body, request); !read) return read;
    std::optional<bool> add_generation_prompt;
    read_member(body, "add_generation_prompt", add_generation_prompt);
    read_member(body, "continue_final_message", request.continue_final_message);
    request.add_generation_prompt = add_generation_prompt.value_or(!request.continue_final_message);
    if (!request.continue_final_message) return {};
    if (request.add_generation_prompt) {
        return fail(ErrorCode::kUnsupportedValue,
                    "'continue_final_message' and 'add_generation_prompt' exclude each other.",
                    "continue_final_message");
    }
    if (request.messages.back()["role"] != "assistant") {
        return fail(ErrorCode::kInvalidValue,
                    "'continue_final_message' needs an assistant message at the end.",
                    "continue_final_message");
    }
    return {};
}

void read_reasoning_fields(const Json& body, ChatRequest& request) {
    read_enum(body, "reasoning_effort", kEffortNames, request.reasoning_effort);
    read_enum(body, "reasoning_field", kFieldNames, request.reasoning_field);
    read_member(body, "include_reasoning", request.include_reasoning);
    for (const std::string_view name :
         {"thinking_token_budget", "reasoning_budget", "thinking_budget"}) {
        if (!request.thinking_token_budget) {
            read_member(body, name, request.thinking_token_budget);
        }
    }
}

Result<void> read_logprobs(const Json& body, ChatRequest& request) {
    read_member(body, "logprobs", request.logprobs);
    read_member(body, "top_logprobs", request.top_logprobs);
    if (request.top_logprobs > 0 && !request.logprobs) {
        return fail(ErrorCode::kInvalidValue, "'top_logprobs' wants \"logprobs\": true.",
                    "top_logprobs");
    }
    return {};
}

/// A constraint and a call cannot both decide the same tokens.
Result<void> check_constraint_with_tools(const ChatRequest& request) {
    if (!request.constraint) return {};
    const ToolChoiceMode mode = request.tool_choice.mode;
    const bool must_call = mode == ToolChoiceMode::kRequired || mode == ToolChoiceMode::kNamed;
    const ConstraintKind kind = request.constraint->kind;
    const bool is_json = kind == ConstraintKind::kJsonObject || kind == ConstraintKind::kJsonSchema;
    const bool may_call = mode != ToolChoiceMode::kNone;
    if (!must_call && (is_json || !may_call)) return {};
    return fail(ErrorCode::kConflictingConstraints,
                "'" + request.constraint->param + "' cannot hold together with tools that " +
                    (must_call ? "must" : "may") + " be called.",
                request.constraint->param);
}

}  // namespace

std::string_view reasoning_effort_name(ReasoningEffort effort) {
    return kEffortNames[static_cast<std::size_t>(effort)];
}

Result<ChatRequest> parse_chat_request(std::string_view body_text, const RequestLimits& limits) {
    Result<Json> body = read_json_object(body_text, limits.json);
    if (!body) return tl::unexpected(body.error());
    ChatRequest request;
    if (Result<void> checked = check_fields(*body, kChat, request); !checked) {
        return tl::unexpected(checked.error());
    }
    if (find_member(*body, "messages") == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'messages' is missing.", "messages");
    }
    Result<Json> read_all =
        read_messages(std::move((*body)["messages"]), limits.json, request.warnings);
    if (!read_all) return tl::unexpected(read_all.error());
    request.messages = std::move(*read_all);
    if (Result<void> read = read_generation_fields(*body, limits.vocabulary, request); !read) {
        return tl::unexpected(read.error());
    }
    if (Result<void> read = read_tools(*body, request); !read) {
        return tl::unexpected(read.error());
    }
    read_member(*body, "parallel_tool_calls", request.parallel_tool_calls);
    if (Result<void> read = read_logprobs(*body, request); !read) {
        return tl::unexpected(read.error());
    }
    read_reasoning_fields(*body, request);
    if (Result<void> read = read_template_fields(*body, limits, request); !read) {
        return tl::unexpected(read.error());
    }
    if (Result<void> checked = check_constraint_with_tools(request); !checked) {
        return tl::unexpected(checked.error());
    }
    return request;
}

}  // namespace proto

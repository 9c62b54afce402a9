// chat_request: the body of POST /v1/chat/completions, validated. Router and replica call the same
// function on the same bytes and read the same values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/error.h"
#include "proto/generation_request.h"
#include "proto/json.h"
#include "proto/json_reader.h"

namespace proto {

enum class ToolChoiceMode { kNone, kAuto, kRequired, kNamed };

struct ToolChoice {
    ToolChoiceMode mode = ToolChoiceMode::kNone;
    std::string name;  // kNamed
    /// allowed_tools: the subset that may be called; empty means all. `mode` is then auto or
    /// required.
    std::vector<std::string> allowed;
};

/// One function. The request's own JSON stays in ChatRequest::tools for the template.
struct Tool {
    std::string name;
    std::string description;
    Json parameters;  // null when absent
    bool strict = false;
};

enum class ReasoningEffort { kNone, kMinimal, kLow, kMedium, kHigh, kXhigh, kMax };
std::string_view reasoning_effort_name(ReasoningEffort effort);

enum class ReasoningField { kReasoningContent, kReasoning, kBoth, kInline };

struct ChatRequest : GenerationRequest {
    /// As the template gets them: roles system, user, assistant, tool (developer became system);
    /// `content` a string or an array of {"type":"text","text"} parts (null and absent became "",
    /// refusal parts became text); `reasoning_content` where reasoning was given under either
    /// name; `tool_calls[].function.arguments` an object, key order kept; a run of tool messages in
    /// the order of the calls. Other keys of a message stay.
    Json messages = Json::array();

    Json tools = Json::array();  // as sent; empty = none
    std::vector<Tool> functions;
    ToolChoice tool_choice;  // auto with tools, none without, unless the request says otherwise
    bool parallel_tool_calls = true;

    bool logprobs = false;
    int top_logprobs = 0;

    std::optional<ReasoningEffort> reasoning_effort;
    std::optional<std::int64_t> thinking_token_budget;  // -1: no bound
    std::optional<bool> enable_thinking;                // also from chat_template_kwargs
    std::optional<ReasoningField> reasoning_field;
    bool include_reasoning = true;

    Json chat_template_kwargs = Json::object();
    std::optional<std::string> chat_template;
    bool add_generation_prompt = true;
    bool continue_final_message = false;
};

/// What the validation needs to know of the server.
struct RequestLimits {
    JsonLimits json;
    std::int64_t vocabulary = 0;  // ids must be below; 0: not known here (router), only >= 0
    bool allow_chat_template = false;
};

Result<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits = {});

}  // namespace proto

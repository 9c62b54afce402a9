// Chat: fields this server does not offer are refused, the template renders the messages, and each
// choice gets an output parser that knows where the prompt left off.
#include <ctime>

#include "replica/chat/messages.h"
#include "replica/server/prepare.h"
#include "replica/server/prompt_boundaries.h"

namespace replica::server {
namespace {

using proto::ErrorCode;
using proto::fail;
using proto::ReasoningEffort;

/// Local wall time for templates that print a date.
std::chrono::local_seconds local_now() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    return std::chrono::local_seconds{std::chrono::seconds{now + local.tm_gmtoff}};
}

proto::Result<void> check_offered(const ServedModel& model, const proto::ChatRequest& request) {
    if (request.continue_final_message) {
        return fail(ErrorCode::kUnsupportedParameter,
                    "Continuing an assistant message is not offered.", "continue_final_message");
    }
    if (request.thinking_token_budget.value_or(-1) > 0) {
        return fail(ErrorCode::kUnsupportedParameter,
                    "A thinking budget above 0 is not offered; 0 turns thinking off.",
                    "thinking_token_budget");
    }
    if (request.thinking_token_budget == 0 && !model.efforts.template_reads_thinking) {
        return fail(ErrorCode::kUnsupportedValue, "This model's template cannot turn thinking off.",
                    "thinking_token_budget");
    }
    if (request.tool_choice.mode == proto::ToolChoiceMode::kRequired ||
        request.tool_choice.mode == proto::ToolChoiceMode::kNamed ||
        !request.tool_choice.allowed.empty()) {
        return fail(ErrorCode::kUnsupportedValue,
                    "Forcing or restricting tool calls needs constrained output, which this server "
                    "does not offer; use auto or none.",
                    "tool_choice");
    }
    if (!request.tools.empty() && model.tool_format == chat::OutputFormat::kNone) {
        return fail(ErrorCode::kUnsupportedParameter,
                    "This model's chat template does not teach a call format we know.", "tools");
    }
    return {};
}

/// What the template sees beside messages and tools.
proto::Json template_variables(const ServedModel& model, const proto::ChatRequest& request,
                               std::vector<std::string>& warnings) {
    proto::Json variables = request.chat_template_kwargs;
    if (request.enable_thinking) {
        variables["enable_thinking"] = *request.enable_thinking;
    } else if (request.reasoning_effort == ReasoningEffort::kNone ||
               request.thinking_token_budget == 0) {
        variables["enable_thinking"] = false;
    }
    if (request.reasoning_effort && request.reasoning_effort != ReasoningEffort::kNone) {
        if (const auto effort = model.efforts.nearest(*request.reasoning_effort)) {
            variables["reasoning_effort"] = proto::reasoning_effort_name(*effort);
        } else if (*request.reasoning_effort < ReasoningEffort::kHigh) {
            proto::add_warning(warnings, "reasoning_effort_not_enforced");
        }
    }
    return variables;
}

ChoiceTextOptions chat_text_options(const ServedModel& model, const proto::ChatRequest& request,
                                    chat::ParserState initial_state) {
    ChoiceTextOptions options = text_options(request);
    const auto field = request.reasoning_field.value_or(model.reasoning_field);
    options.reasoning = !request.include_reasoning                ? ReasoningMode::kHidden
                        : field == proto::ReasoningField::kInline ? ReasoningMode::kInline
                                                                  : ReasoningMode::kSeparate;
    options.ends_after_first_call = !request.parallel_tool_calls;
    chat::ParserOptions parser;
    parser.format = model.tool_format;
    parser.initial = model.has_think_tags ? initial_state : chat::ParserState::kContent;
    parser.tools = request.tools;
    parser.calls_enabled =
        !request.tools.empty() && request.tool_choice.mode != proto::ToolChoiceMode::kNone;
    options.parser = std::move(parser);
    return options;
}

}  // namespace

proto::Result<RenderedChat> render_prompt(const ServedModel& model,
                                          const proto::ChatRequest& request) {
    if (!model.chat_template) {
        return fail(ErrorCode::kTemplateError, "The model file has no chat template.", "messages");
    }
    RenderedChat result;
    chat::ChatInput input;
    input.messages = request.messages;
    if (!request.tools.empty()) input.tools = request.tools;
    input.variables = template_variables(model, request, result.warnings);
    input.add_generation_prompt = request.add_generation_prompt;
    input.bos_token = model.tokenizer.bos_text();
    input.eos_token = model.tokenizer.eos_text();
    chat::RenderOptions options;
    options.limits = chat::TemplateLimits::for_context(model.max_model_len());
    options.now = local_now();
    auto rendered = chat::render_chat(*model.chat_template, input, options);
    if (!rendered) {
        const chat::ChatError& error = rendered.error();
        const auto code = proto::error_code_from_name(chat::name_of(error.code));
        return fail(code.value_or(ErrorCode::kInvalidValue), error.message,
                    error.param.empty() ? "messages" : error.param);
    }
    for (const std::string& warning : rendered->warnings) {
        proto::add_warning(result.warnings, warning);
    }
    result.data_spans = std::move(rendered->data_spans);
    result.text = std::move(rendered->text);
    result.initial_state = rendered->initial_state;
    // The template writes bos itself where the model wants it.
    result.tokens = model.tokenizer.encode(result.text, result.data_spans,
                                           {.add_special = false, .parse_special = true});
    return result;
}

proto::Result<PreparedRequest> prepare_chat(const ServedModel& model, std::string_view body,
                                            const RequestContext& context) {
    const auto request = proto::parse_chat_request(body, request_limits(model));
    if (!request) return tl::make_unexpected(request.error());
    if (auto checked = check_common(model, *request); !checked) {
        return tl::make_unexpected(checked.error());
    }
    if (auto checked = check_offered(model, *request); !checked) {
        return tl::make_unexpected(checked.error());
    }
    auto rendered = render_prompt(model, *request);
    if (!rendered) return tl::make_unexpected(rendered.error());
    if (rendered->tokens.empty()) {
        return fail(ErrorCode::kInvalidValue, "The messages give an empty prompt.", "messages");
    }
    if (auto checked = check_context(model, rendered->tokens.size(), "messages"); !checked) {
        return tl::make_unexpected(checked.error());
    }
    PreparedRequest prepared;
    prepared.kind = PreparedRequest::Kind::kChat;
    prepared.head.id = proto::make_id("chatcmpl-");
    fill_common(prepared, model, *request);
    for (const std::string& warning : rendered->warnings) {
        proto::add_warning(prepared.warnings, warning);
    }
    for (const proto::Tool& tool : request->functions) {
        if (tool.strict) proto::add_warning(prepared.warnings, "strict_not_enforced " + tool.name);
    }
    prepared.prompt_tokens = static_cast<std::int64_t>(rendered->tokens.size());
    prepared.reasoning_field = request->reasoning_field.value_or(model.reasoning_field);
    PreparedPrompt& prompt = prepared.prompts.emplace_back();
    prompt.engine = engine_request(model, *request, seed_of(*request), context);
    prompt.engine.boundaries =
        prompt_boundaries(rendered->tokens, model.turn_marks, request->add_generation_prompt);
    prompt.engine.prompt = std::move(rendered->tokens);
    if (!request->tools.empty() && request->tool_choice.mode == proto::ToolChoiceMode::kNone &&
        model.call_tag) {
        constexpr float kBan = -100.0F;
        prompt.engine.sampling.logit_bias.push_back({*model.call_tag, kBan});
    }
    prompt.text = chat_text_options(model, *request, rendered->initial_state);
    if (request->logprobs) ask_for_logprobs(prepared, request->top_logprobs);
    return prepared;
}

}  // namespace replica::server

// The JSON reader and the request bodies: text completions, chats, messages.
//
//   byte 0: what the server allows (1 a template, 2 a small vocabulary, 4 small JSON limits); with
//   8 the bytes 1 and 2 of the body stand for many openings and many ends of objects   rest: the
//   body
//
// Holds: the reader accepts only what nlohmann's strict parser accepts, with the same value, and
// refuses as malformed only what that refuses too; its values survive being written and read;
// errors are fit for a client. Of a request that is accepted: every number is within its range,
// every list within its limit, and the messages are in the one form templates get: read again, they
// stay as they are.
#include <algorithm>
#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "proto/chat_messages.h"
#include "proto/limits.h"
#include "proto/openai.h"
#include "proto/utf8.h"
#include "replica/chat/messages.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using proto::Json;

constexpr std::size_t kErrorBytesMax = 2048;  // two quoted names of 256 bytes, each escaped
constexpr int kDepth = 30'000;  // too deep for the stack, were it copied under the sanitizers
constexpr std::size_t kBodyBytesMax = 1U << 20U;

int depth_of(const Json& value) {
    int deepest = 0;
    if (!value.is_structured()) return 0;
    for (const Json& child : value)
        deepest = std::max(deepest, depth_of(child));
    return deepest + 1;
}

void check_error(const proto::ApiError& error) {
    assert(fuzz::is_message(error.message, kErrorBytesMax));
    assert(error.param.empty() || fuzz::is_message(error.param, kErrorBytesMax));
    assert(error.http_status() == 400);
    assert(proto::read_json(proto::error_body(error)) && "an error body is JSON");
}

/// What nlohmann does otherwise on purpose: it skips a byte order mark and stops at a NUL.
void check_reader(std::string_view text, const proto::JsonLimits& limits) {
    const proto::Result<Json> value = proto::read_json(text, limits);
    const Json reference = Json::parse(text, nullptr, false);
    if (!value) {
        check_error(value.error());
        const bool is_malformed = value.error().code == proto::ErrorCode::kInvalidJson;
        const bool is_special =
            text.starts_with("\xEF\xBB\xBF") || text.find('\0') != std::string_view::npos;
        assert((!is_malformed || is_special || reference.is_discarded()) && "for us alone");
        return;
    }
    assert(!reference.is_discarded() && *value == reference);
    assert(depth_of(*value) <= limits.depth_max);
    const std::string written = proto::json_text(*value);
    assert(proto::find_broken_utf8(written) == std::string::npos);
    const proto::Result<Json> again = proto::read_json(written, limits);
    assert(again && *again == *value && proto::json_text(*again) == written);
}

void check_in_range(const std::optional<double>& value, double min, double max) {
    assert(!value || (*value >= min && *value <= max));
}

void check_token(std::int64_t token, const proto::RequestLimits& limits) {
    assert(token >= 0 && (limits.vocabulary == 0 || token < limits.vocabulary));
}

void check_constraint(const proto::Constraint& constraint) {
    assert(!constraint.param.empty());
    assert(constraint.text.size() <= proto::kSchemaBytesMax);
    if (constraint.kind == proto::ConstraintKind::kChoice) assert(!constraint.choices.empty());
    if (constraint.kind == proto::ConstraintKind::kJsonSchema) {
        assert(constraint.schema.is_object() || constraint.schema.is_boolean());
        assert(depth_of(constraint.schema) <= proto::kSchemaDepthMax);
    }
}

void check_generation(const proto::GenerationRequest& request, const proto::RequestLimits& limits) {
    assert(request.n >= 1 && request.n <= 16);
    assert(!request.max_tokens || *request.max_tokens >= 1);
    check_in_range(request.temperature, 0, 2);
    check_in_range(request.top_p, 0, 1);
    check_in_range(request.min_p, 0, 1);
    check_in_range(request.frequency_penalty, -2, 2);
    check_in_range(request.presence_penalty, -2, 2);
    check_in_range(request.repetition_penalty, 0.01, 10);
    assert(request.logit_bias.size() <= proto::kLogitBiasMax);
    for (const proto::LogitBias& bias : request.logit_bias) {
        check_token(bias.token, limits);
        assert(bias.bias >= -100 && bias.bias <= 100);
    }
    assert(request.stop.size() <= proto::kStopStringsMax);
    for (const std::string& stop : request.stop)
        assert(!stop.empty() && stop.size() <= proto::kStopStringBytesMax);
    assert(request.stop_token_ids.size() <= proto::kStopTokenIdsMax);
    for (const std::int32_t token : request.stop_token_ids)
        check_token(token, limits);
    assert(request.min_tokens >= 0);
    if (request.constraint) check_constraint(*request.constraint);
    assert(request.warnings.size() <= proto::kWarningsMax);
    for (const std::string& warning : request.warnings)
        assert(fuzz::is_message(warning, proto::kWarningBytesMax));
}

void check_content(const Json& content) {
    if (content.is_string()) return;
    assert(content.is_array());
    for (const Json& part : content)
        assert(part.size() == 2 && part.at("type") == "text" && part.at("text").is_string());
}

void check_messages(const Json& messages, const proto::JsonLimits& limits) {
    assert(messages.is_array() && !messages.empty());
    assert(messages.size() <= proto::kMessagesMax);
    for (const Json& message : messages) {
        const std::string& role = message.at("role").get_ref<const std::string&>();
        assert(role == "system" || role == "user" || role == "assistant" || role == "tool");
        check_content(message.at("content"));
        if (role != "assistant") continue;
        assert(!message.contains("reasoning"));
        if (message.contains("reasoning_content")) assert(message["reasoning_content"].is_string());
        if (!message.contains("tool_calls")) continue;
        assert(!message["tool_calls"].empty());
        for (const Json& call : message["tool_calls"])
            assert(call.at("function").at("arguments").is_object());
    }
    std::vector<std::string> warnings;
    const proto::Result<Json> again = proto::read_messages(messages, limits, warnings);
    assert(again && *again == messages && "the form is final");
    // The chat module reads the same form once more, and refuses odd members of other roles.
    const auto templated = replica::chat::template_messages(messages);
    if (templated) {
        const auto repeated = replica::chat::template_messages(*templated);
        assert(repeated && *repeated == *templated);
    } else {
        assert(!templated.error().message.empty());
    }
}

void check_chat(std::string_view body, const proto::RequestLimits& limits) {
    const proto::Result<proto::ChatRequest> request = proto::parse_chat_request(body, limits);
    if (!request) return check_error(request.error());
    check_generation(*request, limits);
    check_messages(request->messages, limits.json);
    assert(request->functions.size() <= proto::kToolsMax);
    assert(request->functions.size() == request->tools.size());
    for (const proto::Tool& tool : request->functions) {
        assert(!tool.name.empty() && tool.name.size() <= proto::kToolNameBytesMax);
        assert(tool.parameters.is_object() || tool.parameters.is_null());
    }
    const auto is_declared = [&](const std::string& name) {
        return std::ranges::find(request->functions, name, &proto::Tool::name) !=
               request->functions.end();
    };
    const proto::ToolChoice& choice = request->tool_choice;
    assert(choice.mode != proto::ToolChoiceMode::kNamed || is_declared(choice.name));
    assert(std::ranges::all_of(choice.allowed, is_declared));
    assert(request->top_logprobs >= 0 && request->top_logprobs <= 20);
    assert(!request->thinking_token_budget || *request->thinking_token_budget >= -1);
    assert(request->chat_template_kwargs.is_object());
    assert(request->chat_template_kwargs.size() <= proto::kTemplateKwargsMax);
    assert(limits.allow_chat_template || !request->chat_template);
}

void check_completion(std::string_view body, const proto::RequestLimits& limits) {
    const auto request = proto::parse_completion_request(body, limits);
    if (!request) return check_error(request.error());
    check_generation(*request, limits);
    assert(request->max_tokens);
    assert(!request->prompts.empty() && request->prompts.size() <= proto::kPromptsMax);
    for (const proto::Prompt& prompt : request->prompts) {
        if (const auto* text = std::get_if<std::string>(&prompt)) {
            assert(!text->empty());
            continue;
        }
        const auto& ids = std::get<std::vector<std::int32_t>>(prompt);
        assert(!ids.empty());
        for (const std::int32_t id : ids)
            check_token(id, limits);
    }
}

/// Depth that short inputs would not reach, as objects in the text of arguments.
std::string deepened(std::string_view body) {
    std::string text;
    for (const char c : body) {
        const bool is_special = c == '\x01' || c == '\x02';
        const int count = is_special && text.size() < kBodyBytesMax ? kDepth : 1;
        for (int i = 0; i < count; ++i)
            text += c == '\x01' ? R"({\"k\":)" : std::string(1, c == '\x02' ? '}' : c);
    }
    return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const unsigned flags = input.byte();
    proto::RequestLimits limits;
    limits.allow_chat_template = (flags & 1U) != 0;
    if ((flags & 2U) != 0) limits.vocabulary = 512;
    if ((flags & 4U) != 0) {
        limits.json = {.depth_max = 4, .members_max = 8, .values_max = 64, .key_bytes_max = 16};
    }
    const std::string body = (flags & 8U) == 0 ? std::string(input.rest()) : deepened(input.rest());
    check_reader(body, limits.json);
    check_chat(body, limits);
    check_completion(body, limits);
    return 0;
}

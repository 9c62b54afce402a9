#include "replica/chat/messages.h"

#include <algorithm>
#include <set>

#include "replica/chat/json_text.h"

namespace replica::chat {

namespace {

using Status = tl::expected<void, ChatError>;

tl::unexpected<ChatError> invalid(ChatErrorCode code, std::string param, std::string message) {
    return tl::unexpected(ChatError{code, std::move(message), std::move(param)});
}

/// The member `key`, or null when it is absent.
const Json* member(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string at_index(const std::string& name, std::size_t index) {
    return name + "[" + std::to_string(index) + "]";
}

tl::expected<Json, ChatError> read_part(const Json& part, const std::string& param) {
    const Json* type = part.is_object() ? member(part, "type") : nullptr;
    const std::string kind = type != nullptr && type->is_string() ? type->get<std::string>() : "";
    if (kind == "text" || kind == "refusal") {
        const Json* text = member(part, kind.c_str());
        if (text == nullptr || !text->is_string()) {
            return invalid(ChatErrorCode::kInvalidType, param + "." + kind, "must be a string");
        }
        return Json{{"type", "text"}, {"text", *text}};
    }
    return invalid(ChatErrorCode::kUnsupportedContent, param,
                   "this server reads text parts only" + (kind.empty() ? "" : ", not " + kind));
}

tl::expected<Json, ChatError> read_content(const Json& message, const std::string& param) {
    const Json* content = member(message, "content");
    if (content == nullptr) {
        const Json* refusal = member(message, "refusal");
        return refusal != nullptr && refusal->is_string() ? *refusal : Json("");
    }
    if (content->is_string()) return *content;
    if (!content->is_array()) {
        return invalid(ChatErrorCode::kInvalidType, param, "must be a string or an array of parts");
    }
    Json parts = Json::array();
    for (std::size_t i = 0; i < content->size(); ++i) {
        auto part = read_part((*content)[i], at_index(param, i));
        if (!part) return part;
        parts.push_back(std::move(*part));
    }
    return parts;
}

/// A call with its arguments as an object; they may come as JSON text.
tl::expected<Json, ChatError> read_call(const Json& call, const std::string& param) {
    const Json* function = call.is_object() ? member(call, "function") : nullptr;
    if (function == nullptr || !function->is_object()) {
        return invalid(ChatErrorCode::kInvalidType, param + ".function", "must be an object");
    }
    const Json* name = member(*function, "name");
    if (name == nullptr || !name->is_string()) {
        return invalid(ChatErrorCode::kInvalidType, param + ".function.name", "must be a string");
    }
    std::optional<Json> arguments = Json::object();
    if (const Json* given = member(*function, "arguments")) {
        arguments = given->is_string() ? parse_json(given->get_ref<const std::string&>()) : *given;
    }
    if (!arguments || !arguments->is_object()) {
        return invalid(ChatErrorCode::kInvalidValue, param + ".function.arguments",
                       "must be a JSON object, or text that holds one");
    }
    Json result = call;
    result["function"]["arguments"] = *std::move(arguments);
    return result;
}

Status read_calls(const Json& message, Json& result, const std::string& param) {
    const Json* calls = member(message, "tool_calls");
    result.erase("tool_calls");
    if (calls == nullptr) return {};
    if (!calls->is_array()) {
        return invalid(ChatErrorCode::kInvalidType, param, "must be an array");
    }
    if (calls->empty()) return {};
    Json read = Json::array();
    for (std::size_t i = 0; i < calls->size(); ++i) {
        auto call = read_call((*calls)[i], at_index(param, i));
        if (!call) return tl::unexpected(call.error());
        read.push_back(std::move(*call));
    }
    result["tool_calls"] = std::move(read);
    return {};
}

tl::expected<Json, ChatError> read_message(const Json& message, const std::string& param) {
    static const std::set<std::string> kRoles = {"system", "developer", "user", "assistant",
                                                 "tool"};
    if (!message.is_object()) {
        return invalid(ChatErrorCode::kInvalidType, param, "must be an object");
    }
    const Json* role = member(message, "role");
    if (role == nullptr || !role->is_string()) {
        return invalid(ChatErrorCode::kInvalidType, param + ".role", "must be a string");
    }
    if (!kRoles.contains(role->get<std::string>())) {
        return invalid(ChatErrorCode::kInvalidValue, param + ".role",
                       "must be system, developer, user, assistant or tool");
    }
    auto content = read_content(message, param + ".content");
    if (!content) return content;
    Json result = message;
    if (*role == "developer") result["role"] = "system";
    result["content"] = std::move(*content);
    result.erase("refusal");

    const Json* reasoning = member(message, "reasoning_content");
    if (reasoning == nullptr) reasoning = member(message, "reasoning");
    if (reasoning != nullptr && !reasoning->is_string()) {
        return invalid(ChatErrorCode::kInvalidType, param + ".reasoning_content",
                       "must be a string");
    }
    result.erase("reasoning");
    result.erase("reasoning_content");
    if (reasoning != nullptr) result["reasoning_content"] = *reasoning;

    if (const Status calls = read_calls(message, result, param + ".tool_calls"); !calls) {
        return tl::unexpected(calls.error());
    }
    return result;
}

std::string id_of(const Json& object, const char* key) {
    const Json* id = member(object, key);
    return id != nullptr && id->is_string() ? id->get<std::string>() : std::string();
}

/// Puts the tool messages [begin, end) in the order of `calls` when every one answers one of them.
void order_tool_messages(Json& messages, std::size_t begin, std::size_t end, const Json& calls) {
    const auto position = [&](const Json& message) {
        const std::string id = id_of(message, "tool_call_id");
        const auto call = std::find_if(calls.begin(), calls.end(), [&](const Json& candidate) {
            return !id.empty() && id_of(candidate, "id") == id;
        });
        return call - calls.begin();
    };
    std::vector<std::pair<std::ptrdiff_t, Json>> run;
    for (std::size_t i = begin; i < end; ++i) {
        const std::ptrdiff_t at = position(messages[i]);
        if (at == calls.end() - calls.begin()) return;
        run.emplace_back(at, messages[i]);
    }
    std::stable_sort(run.begin(), run.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = begin; i < end; ++i)
        messages[i] = std::move(run[i - begin].second);
}

void order_all_tool_messages(Json& messages) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
        if (messages[i]["role"] != "assistant" || !messages[i].contains("tool_calls")) continue;
        std::size_t end = i + 1;
        while (end < messages.size() && messages[end]["role"] == "tool")
            ++end;
        const Json calls = messages[i]["tool_calls"];
        order_tool_messages(messages, i + 1, end, calls);
    }
}

std::string text_of(const Json& content) {
    if (content.is_string()) return content.get<std::string>();
    std::string text;
    for (const Json& part : content)
        text += part.at("text").get_ref<const std::string&>();
    return text;
}

bool has_late_system_message(const Json& messages) {
    for (std::size_t i = 1; i < messages.size(); ++i) {
        if (messages[i]["role"] == "system") return true;
    }
    return false;
}

/// All system texts in one leading message, a blank line between them.
Json folded(const Json& messages) {
    std::string text;
    bool is_first = true;
    Json rest = Json::array({nullptr});
    for (const Json& message : messages) {
        if (message["role"] != "system") {
            rest.push_back(message);
            continue;
        }
        if (!is_first) text += "\n\n";
        is_first = false;
        text += text_of(message["content"]);
    }
    rest[0] = Json{{"role", "system"}, {"content", text}};
    return rest;
}

Json context_of(const ChatInput& input, Json messages) {
    Json context = input.variables.is_object() ? input.variables : Json::object();
    context["messages"] = std::move(messages);
    context.erase("tools");
    if (input.tools && !input.tools->empty()) context["tools"] = *input.tools;
    context["add_generation_prompt"] = input.add_generation_prompt;
    context["bos_token"] = input.bos_token;
    context["eos_token"] = input.eos_token;
    return context;
}

ChatError error_of(const TemplateError& error) {
    const auto code = error.kind == TemplateErrorKind::kLimit ? ChatErrorCode::kTemplateLimit
                                                              : ChatErrorCode::kTemplateError;
    return {code, describe(error), "messages"};
}

}  // namespace

std::string_view name_of(ChatErrorCode code) {
    switch (code) {
        case ChatErrorCode::kInvalidType:
            return "invalid_type";
        case ChatErrorCode::kInvalidValue:
            return "invalid_value";
        case ChatErrorCode::kUnsupportedContent:
            return "unsupported_content";
        case ChatErrorCode::kTemplateError:
            return "template_error";
        case ChatErrorCode::kTemplateLimit:
            break;
    }
    return "template_limit";
}

tl::expected<Json, ChatError> template_messages(const Json& messages) {
    if (!messages.is_array()) {
        return invalid(ChatErrorCode::kInvalidType, "messages", "must be an array");
    }
    Json result = Json::array();
    for (std::size_t i = 0; i < messages.size(); ++i) {
        auto message = read_message(messages[i], at_index("messages", i));
        if (!message) return message;
        result.push_back(std::move(*message));
    }
    order_all_tool_messages(result);
    return result;
}

tl::expected<RenderedPrompt, ChatError> render_chat(const Template& chat_template,
                                                    const ChatInput& input,
                                                    const RenderOptions& options) {
    auto messages = template_messages(input.messages);
    if (!messages) return tl::unexpected(messages.error());
    std::vector<std::string> warnings;
    auto rendered = chat_template.render(context_of(input, *messages), options);
    const bool may_fold = !rendered && rendered.error().kind == TemplateErrorKind::kRaised &&
                          has_late_system_message(*messages);
    if (may_fold) {
        rendered = chat_template.render(context_of(input, folded(*messages)), options);
        warnings.emplace_back(kWarnSystemFolded);
    }
    if (!rendered) return tl::unexpected(error_of(rendered.error()));
    const ParserState state = initial_state(*rendered);
    return RenderedPrompt{std::move(rendered->text), std::move(rendered->data_spans),
                          std::move(warnings), state};
}

}  // namespace replica::chat

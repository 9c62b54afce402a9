#include "proto/chat_messages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/field_check.h"

namespace proto {
namespace {

/// {"type":"text","text":…}; a refusal is text that the assistant once said.
Result<Json> read_part(const Json& part, const std::string& path) {
    if (!part.is_object()) return wrong_type(path, "an object");
    const Json* const type = find_member(part, "type");
    if (type == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + path + ".type' is missing.",
                    path + ".type");
    }
    if (!type->is_string()) return wrong_type(path + ".type", "a string");
    const std::string& name = type->get_ref<const std::string&>();
    if (name != "text" && name != "refusal") {
        return fail(ErrorCode::kUnsupportedContent,
                    "Content of type '" + printable(name, 32) +
                        "' is not supported: only text is, and nothing is fetched.",
                    path);
    }
    const Json* const text = find_member(part, name);
    const std::string text_path = member_of(path, name);
    if (text == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + text_path + "' is missing.",
                    text_path);
    }
    if (!text->is_string()) return wrong_type(text_path, "a string");
    return Json{{"type", "text"}, {"text", *text}};
}

/// The parts of a content that is no string.
Result<Json> read_content(const Json* content, const std::string& path) {
    if (content == nullptr) return Json("");
    if (!content->is_array()) return wrong_type(path, "a string or an array of parts");
    Json parts = Json::array();
    for (std::size_t i = 0; i < content->size(); ++i) {
        Result<Json> part = read_part((*content)[i], indexed(path, i));
        if (!part) return part;
        parts.push_back(std::move(*part));
    }
    return parts;
}

Result<Json> read_arguments(const Json* arguments, const std::string& path,
                            const JsonLimits& limits) {
    if (arguments == nullptr) return Json::object();
    if (arguments->is_object()) return *arguments;
    if (!arguments->is_string()) return wrong_type(path, "JSON text or an object");
    Result<Json> object = read_json_object(arguments->get_ref<const std::string&>(), limits);
    if (!object) {
        return fail(ErrorCode::kInvalidValue,
                    "'" + path + "' must be the JSON text of an object. " + object.error().message,
                    path);
    }
    return object;
}

Result<Json> read_call(const Json& call, const std::string& path, const JsonLimits& limits) {
    if (!call.is_object()) return wrong_type(path, "an object");
    if (const Json* type = find_member(call, "type"); type != nullptr && *type != "function") {
        return fail(ErrorCode::kUnsupportedToolType, "Only calls of functions are supported.",
                    path + ".type");
    }
    if (const Json* id = find_member(call, "id"); id != nullptr && !id->is_string()) {
        return wrong_type(path + ".id", "a string");
    }
    const std::string function_path = path + ".function";
    const Json* const function = find_member(call, "function");
    if (function == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + function_path + "' is missing.",
                    function_path);
    }
    if (!function->is_object()) return wrong_type(function_path, "an object");
    const Json* const name = find_member(*function, "name");
    if (name == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter,
                    "'" + function_path + ".name' is missing.", function_path + ".name");
    }
    if (!name->is_string()) return wrong_type(function_path + ".name", "a string");
    Result<Json> arguments =
        read_arguments(find_member(*function, "arguments"), function_path + ".arguments", limits);
    if (!arguments) return arguments;
    Json out = call;
    out["function"]["arguments"] = std::move(*arguments);
    return out;
}

Result<void> read_assistant(Json& message, const std::string& path, const JsonLimits& limits) {
    for (const std::string_view name : {"reasoning_content", "reasoning"}) {
        const Json* const reasoning = find_member(message, name);
        if (reasoning != nullptr && !reasoning->is_string()) {
            return wrong_type(member_of(path, name), "a string");
        }
    }
    if (find_member(message, "reasoning_content") == nullptr) {
        message.erase("reasoning_content");
        if (const Json* reasoning = find_member(message, "reasoning")) {
            Json text = *reasoning;
            message["reasoning_content"] = std::move(text);
        }
    }
    message.erase("reasoning");
    const Json* const calls = find_member(message, "tool_calls");
    if (calls == nullptr) {
        message.erase("tool_calls");
        return {};
    }
    const std::string calls_path = path + ".tool_calls";
    if (!calls->is_array()) return wrong_type(calls_path, "an array");
    Json read = Json::array();
    for (std::size_t i = 0; i < calls->size(); ++i) {
        Result<Json> call = read_call((*calls)[i], indexed(calls_path, i), limits);
        if (!call) return tl::unexpected(call.error());
        read.push_back(std::move(*call));
    }
    if (read.empty()) {
        message.erase("tool_calls");
    } else {
        message["tool_calls"] = std::move(read);
    }
    return {};
}

Result<Json> read_message(Json message, const std::string& path, const JsonLimits& limits) {
    if (!message.is_object()) return wrong_type(path, "an object");
    const Json* const role = find_member(message, "role");
    if (role == nullptr) {
        return fail(ErrorCode::kMissingRequiredParameter, "'" + path + ".role' is missing.",
                    path + ".role");
    }
    if (!role->is_string()) return wrong_type(path + ".role", "a string");
    std::string name = role->get<std::string>();
    if (name == "developer") name = "system";
    if (name != "system" && name != "user" && name != "assistant" && name != "tool") {
        return fail(ErrorCode::kInvalidValue,
                    "'" + path + ".role' must be system, developer, user, assistant or tool.",
                    path + ".role");
    }
    if (const Json* id = find_member(message, "tool_call_id"); id != nullptr && !id->is_string()) {
        return wrong_type(path + ".tool_call_id", "a string");
    }
    const Json* const content = find_member(message, "content");
    if (content == nullptr || !content->is_string()) {
        Result<Json> parts = read_content(content, path + ".content");
        if (!parts) return parts;
        message["content"] = std::move(*parts);
    }
    message["role"] = name;
    if (name == "assistant") {
        if (Result<void> read = read_assistant(message, path, limits); !read) {
            return tl::unexpected(read.error());
        }
    }
    return message;
}

bool has_role(const Json& message, std::string_view role) {
    return message["role"].get_ref<const std::string&>() == role;
}

/// The ids of a message's calls; empty when it has none, or one without an id.
std::vector<std::string> call_ids(const Json& message) {
    std::vector<std::string> ids;
    const Json* const calls =
        has_role(message, "assistant") ? find_member(message, "tool_calls") : nullptr;
    if (calls == nullptr) return ids;
    for (const Json& call : *calls) {
        const Json* const id = find_member(call, "id");
        if (id == nullptr) return {};
        ids.push_back(id->get<std::string>());
    }
    return ids;
}

/// Puts the tool messages [begin, end) in the order of the calls they answer, if all are known.
void order_run(Json::array_t& messages, std::size_t begin, std::size_t end) {
    if (begin == 0 || end - begin < 2) return;
    const std::vector<std::string> ids = call_ids(messages[begin - 1]);
    std::vector<std::pair<std::ptrdiff_t, std::size_t>> order;  // place of the call, message
    for (std::size_t i = begin; i < end; ++i) {
        const Json* const id = find_member(messages[i], "tool_call_id");
        if (id == nullptr) return;
        const auto found = std::ranges::find(ids, id->get_ref<const std::string&>());
        if (found == ids.end()) return;
        order.emplace_back(found - ids.begin(), i);
    }
    std::ranges::stable_sort(order, {}, &std::pair<std::ptrdiff_t, std::size_t>::first);
    Json::array_t sorted;
    sorted.reserve(order.size());
    for (const auto& [place, index] : order)
        sorted.push_back(std::move(messages[index]));
    std::ranges::move(sorted, messages.begin() + static_cast<std::ptrdiff_t>(begin));
}

void order_tool_messages(Json::array_t& messages) {
    std::size_t begin = 0;
    while (begin < messages.size()) {
        if (!has_role(messages[begin], "tool")) {
            ++begin;
            continue;
        }
        std::size_t end = begin;
        while (end < messages.size() && has_role(messages[end], "tool"))
            ++end;
        order_run(messages, begin, end);
        begin = end;
    }
}

}  // namespace

Result<Json> read_messages(Json messages, const JsonLimits& limits,
                           std::vector<std::string>& warnings) {
    if (messages.empty()) {
        return fail(ErrorCode::kInvalidValue, "'messages' must not be empty.", "messages");
    }
    auto& list = messages.get_ref<Json::array_t&>();
    for (std::size_t i = 0; i < list.size(); ++i) {
        const bool has_content = list[i].is_object() && find_member(list[i], "content") != nullptr;
        Result<Json> message = read_message(std::move(list[i]), indexed("messages", i), limits);
        if (!message) return message;
        if (!has_content && !has_role(*message, "assistant")) {
            add_warning(warnings,
                        "empty_content " + indexed("messages", i) + ".content is missing");
        }
        list[i] = std::move(*message);
    }
    order_tool_messages(list);
    return messages;
}

}  // namespace proto

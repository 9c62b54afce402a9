#include "proto/chat_tools.h"

#include <algorithm>

#include "proto/field_check.h"
#include "proto/limits.h"

namespace proto {
namespace {

bool is_tool_name(std::string_view name) {
    constexpr std::string_view kAllowed =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:/-";
    return !name.empty() && name.size() <= kToolNameBytesMax &&
           name.find_first_not_of(kAllowed) == std::string_view::npos;
}

tl::unexpected<ApiError> missing(const std::string& path) {
    return fail(ErrorCode::kMissingRequiredParameter, "'" + path + "' is missing.", path);
}

Result<Tool> read_function(const Json& function, const std::string& path) {
    if (!function.is_object()) return wrong_type(path, "an object");
    Tool tool;
    const Json* const name = find_member(function, "name");
    if (name == nullptr) return missing(path + ".name");
    if (!name->is_string()) return wrong_type(path + ".name", "a string");
    tool.name = name->get<std::string>();
    if (!is_tool_name(tool.name)) {
        return fail(ErrorCode::kInvalidValue,
                    "A function's name has 1 to 64 characters of [A-Za-z0-9_.:/-].",
                    path + ".name");
    }
    if (const Json* description = find_member(function, "description")) {
        if (!description->is_string()) return wrong_type(path + ".description", "a string");
        tool.description = description->get<std::string>();
    }
    if (const Json* parameters = find_member(function, "parameters")) {
        if (!parameters->is_object()) return wrong_type(path + ".parameters", "an object");
        tool.parameters = *parameters;
    }
    if (const Json* strict = find_member(function, "strict")) {
        if (!strict->is_boolean()) return wrong_type(path + ".strict", "true or false");
        tool.strict = strict->get<bool>();
    }
    return tool;
}

Result<Tool> read_tool(const Json& tool, const std::string& path) {
    if (!tool.is_object()) return wrong_type(path, "an object");
    const Json* const type = find_member(tool, "type");
    if (type == nullptr) return missing(path + ".type");
    if (!type->is_string()) return wrong_type(path + ".type", "a string");
    if (*type != "function") {
        return fail(ErrorCode::kUnsupportedToolType, "Only tools of type 'function' are supported.",
                    path + ".type");
    }
    const Json* const function = find_member(tool, "function");
    if (function == nullptr) return missing(path + ".function");
    return read_function(*function, path + ".function");
}

Result<void> read_tool_list(const Json& tools, ChatRequest& request) {
    for (std::size_t i = 0; i < tools.size(); ++i) {
        Result<Tool> tool = read_tool(tools[i], indexed("tools", i));
        if (!tool) return tl::unexpected(tool.error());
        if (std::ranges::find(request.functions, tool->name, &Tool::name) !=
            request.functions.end()) {
            return fail(ErrorCode::kInvalidValue, "Two tools have the name '" + tool->name + "'.",
                        indexed("tools", i) + ".function.name");
        }
        request.functions.push_back(std::move(*tool));
    }
    if (json_text(tools).size() > kToolsBytesMax) {
        return fail(ErrorCode::kInvalidValue, "'tools' has more than 1 MiB of JSON.", "tools");
    }
    request.tools = tools;
    return {};
}

/// The name in {"type":"function","function":{"name":…}}, which must be one of the tools.
Result<std::string> read_named(const Json& choice, const std::string& path,
                               const std::vector<Tool>& functions) {
    const Json* const function = find_member(choice, "function");
    if (function == nullptr) return missing(path + ".function");
    if (!function->is_object()) return wrong_type(path + ".function", "an object");
    const Json* const name = find_member(*function, "name");
    const std::string name_path = path + ".function.name";
    if (name == nullptr) return missing(name_path);
    if (!name->is_string()) return wrong_type(name_path, "a string");
    if (std::ranges::find(functions, name->get_ref<const std::string&>(), &Tool::name) ==
        functions.end()) {
        return fail(ErrorCode::kInvalidValue,
                    "There is no tool named '" +
                        printable(name->get_ref<const std::string&>(), kToolNameBytesMax) + "'.",
                    name_path);
    }
    return name->get<std::string>();
}

Result<ToolChoiceMode> read_mode(const Json& mode, const std::string& path) {
    if (!mode.is_string()) return wrong_type(path, "a string");
    if (mode == "none") return ToolChoiceMode::kNone;
    if (mode == "auto") return ToolChoiceMode::kAuto;
    if (mode == "required") return ToolChoiceMode::kRequired;
    return fail(ErrorCode::kInvalidValue,
                "'" + path + "' must be none, auto, required, a function or allowed_tools.", path);
}

Result<ToolChoice> read_allowed(const Json& choice, const std::vector<Tool>& functions) {
    const std::string path = "tool_choice.allowed_tools";
    // Nested as the chat API has it, or flat as the responses API has it.
    const Json* const nested = find_member(choice, "allowed_tools");
    if (nested != nullptr && !nested->is_object()) return wrong_type(path, "an object");
    const Json& allowed = nested != nullptr ? *nested : choice;
    ToolChoice out;
    out.mode = ToolChoiceMode::kAuto;
    if (const Json* mode = find_member(allowed, "mode")) {
        Result<ToolChoiceMode> read = read_mode(*mode, path + ".mode");
        if (!read) return tl::unexpected(read.error());
        if (*read == ToolChoiceMode::kNone) {
            return fail(ErrorCode::kInvalidValue, "'" + path + ".mode' must be auto or required.",
                        path + ".mode");
        }
        out.mode = *read;
    }
    const Json* const tools = find_member(allowed, "tools");
    if (tools == nullptr) return missing(path + ".tools");
    if (!tools->is_array()) return wrong_type(path + ".tools", "an array");
    if (tools->empty() || tools->size() > kToolsMax) {
        return fail(ErrorCode::kInvalidValue, "'" + path + ".tools' must name 1 to 128 tools.",
                    path + ".tools");
    }
    for (std::size_t i = 0; i < tools->size(); ++i) {
        const std::string item = indexed(path + ".tools", i);
        if (!(*tools)[i].is_object()) return wrong_type(item, "an object");
        Result<std::string> name = read_named((*tools)[i], item, functions);
        if (!name) return tl::unexpected(name.error());
        out.allowed.push_back(std::move(*name));
    }
    return out;
}

Result<ToolChoice> read_choice(const Json& choice, const std::vector<Tool>& functions) {
    ToolChoice out;
    if (choice.is_string()) {
        Result<ToolChoiceMode> mode = read_mode(choice, "tool_choice");
        if (!mode) return tl::unexpected(mode.error());
        out.mode = *mode;
        if (functions.empty()) {
            if (out.mode == ToolChoiceMode::kRequired) {
                return fail(ErrorCode::kInvalidValue, "'tool_choice' required needs tools.",
                            "tool_choice");
            }
            out.mode = ToolChoiceMode::kNone;
        }
        return out;
    }
    const Json* const type = find_member(choice, "type");
    if (type == nullptr) return missing("tool_choice.type");
    if (*type != "function" && *type != "allowed_tools") {
        return fail(ErrorCode::kInvalidValue,
                    "'tool_choice.type' must be function or allowed_tools.", "tool_choice.type");
    }
    if (functions.empty()) {
        return fail(ErrorCode::kInvalidValue, "'tool_choice' names a tool, but there are none.",
                    "tool_choice");
    }
    if (*type == "allowed_tools") return read_allowed(choice, functions);
    Result<std::string> name = read_named(choice, "tool_choice", functions);
    if (!name) return tl::unexpected(name.error());
    out.mode = ToolChoiceMode::kNamed;
    out.name = std::move(*name);
    return out;
}

}  // namespace

Result<void> read_tools(const Json& body, ChatRequest& request) {
    if (const Json* tools = find_member(body, "tools")) {
        if (Result<void> read = read_tool_list(*tools, request); !read) return read;
    }
    if (const Json* choice = find_member(body, "tool_choice")) {
        Result<ToolChoice> read = read_choice(*choice, request.functions);
        if (!read) return tl::unexpected(read.error());
        request.tool_choice = std::move(*read);
    } else if (!request.functions.empty()) {
        request.tool_choice.mode = ToolChoiceMode::kAuto;
    }
    return {};
}

}  // namespace proto

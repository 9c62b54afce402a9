#include "replica/server/served_model.h"

#include <algorithm>
#include <array>

namespace replica::server {

bool ServedModel::answers_to(std::string_view model) const {
    return model.empty() || model == name ||
           std::find(aliases.begin(), aliases.end(), model) != aliases.end();
}

void describe_template(ServedModel& model, std::string_view tool_format_override) {
    constexpr std::array<std::string_view, 5> kTags = {"<think>", "</think>", "<tool_call>",
                                                       "</tool_call>", "<|python_tag|>"};
    for (const std::string_view tag : kTags) {
        if (const auto id = model.tokenizer.find(tag)) model.tag_tokens.push_back(*id);
    }
    std::sort(model.tag_tokens.begin(), model.tag_tokens.end());
    model.call_tag = model.tokenizer.find("<tool_call>");
    model.has_think_tags = model.tokenizer.find("</think>").has_value();
    if (model.chat_template) {
        model.tool_format = chat::detect_output_format(*model.chat_template);
        model.has_think_tags |= chat::has_think_tags(*model.chat_template);
        model.efforts = probe_efforts(*model.chat_template);
        model.turn_marks = find_turn_marks(*model.chat_template, model.tokenizer);
    }
    chat::OutputFormat forced{};
    if (chat::parse_output_format(tool_format_override, forced)) model.tool_format = forced;
}

}  // namespace replica::server

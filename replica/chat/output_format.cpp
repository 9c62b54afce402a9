// What a template says about the output: its call format, its think tags, where generation begins.
#include <array>
#include <random>

#include "replica/chat/output_parser.h"
#include "replica/chat/parse/tag_scan.h"

namespace replica::chat {

namespace {

constexpr std::string_view kProbeName = "probe_function";
constexpr std::string_view kProbeArgument = "probe_argument";
constexpr std::string_view kProbeValue = "probe_value";

/// A chat in which the assistant calls the probe function once.
Json probe_context() {
    const Json tool = {{"type", "function"},
                       {"function",
                        {{"name", kProbeName},
                         {"description", "probe"},
                         {"parameters",
                          {{"type", "object"},
                           {"properties", {{std::string(kProbeArgument), {{"type", "string"}}}}},
                           {"required", Json::array({kProbeArgument})}}}}}};
    const Json call = {
        {"id", "call_0"},
        {"type", "function"},
        {"function",
         {{"name", kProbeName}, {"arguments", {{std::string(kProbeArgument), kProbeValue}}}}}};
    const Json assistant = {
        {"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}};
    return {{"messages", Json::array({{{"role", "user"}, {"content", "probe"}}, assistant})},
            {"tools", Json::array({tool})},
            {"add_generation_prompt", false},
            {"bos_token", ""},
            {"eos_token", ""}};
}

/// The call as the template writes it: the text from a little before the last place of the name,
/// since declarations and instructions come before it.
struct ProbeCall {
    std::string_view before;  // up to the name
    std::string_view after;   // from the name on
};

std::string_view trimmed_end(std::string_view text) {
    while (!text.empty() && parse::is_space(text.back()))
        text.remove_suffix(1);
    return text;
}

bool has_tag_open(std::string_view before) {
    const std::size_t open = before.rfind("<tool_call>");
    if (open == std::string_view::npos) return false;
    return before.find("</tool_call>", open) == std::string_view::npos;
}

bool is_json_name(std::string_view before) {
    // … {"name": "probe_function
    if (!before.ends_with('"')) return false;
    before = trimmed_end(before.substr(0, before.size() - 1));
    if (!before.ends_with(':')) return false;
    return trimmed_end(before.substr(0, before.size() - 1)).ends_with("\"name\"");
}

bool has_key(std::string_view after, std::string_view key) {
    return after.find('"' + std::string(key) + '"') != std::string_view::npos;
}

OutputFormat format_of(const ProbeCall& call) {
    if (call.before.ends_with("<function=") && has_tag_open(call.before)) {
        return OutputFormat::kQwenXml;
    }
    if (!is_json_name(call.before)) return OutputFormat::kNone;
    if (has_tag_open(call.before)) return OutputFormat::kHermes;
    return has_key(call.after, "parameters") ? OutputFormat::kLlama3Json : OutputFormat::kNone;
}

}  // namespace

OutputFormat detect_output_format(const Template& chat_template) {
    const auto rendered = chat_template.render(probe_context());
    if (!rendered) return OutputFormat::kNone;
    const std::string_view text = rendered->text;
    const std::size_t name = text.rfind(kProbeName);
    if (name == std::string_view::npos) return OutputFormat::kNone;
    // A declaration names the function too, but only a call has the value.
    if (text.find(kProbeValue, name) == std::string_view::npos) return OutputFormat::kNone;
    return format_of({text.substr(0, name), text.substr(name)});
}

bool has_think_tags(const Template& chat_template) {
    return chat_template.source().find("</think>") != std::string::npos;
}

ParserState initial_state(const Rendered& prompt) {
    const std::string_view text = trimmed_end(prompt.text);
    const auto ends_in_own = [&](std::string_view tag) {
        if (!text.ends_with(tag)) return false;
        const std::size_t begin = text.size() - tag.size();
        for (const ByteSpan& span : prompt.data_spans) {
            if (span.end > begin && span.begin < text.size()) return false;
        }
        return true;
    };
    if (ends_in_own("<think>")) return ParserState::kReasoning;
    return ends_in_own("</think>") ? ParserState::kContent : ParserState::kStart;
}

std::string random_tool_call_id() {
    static constexpr std::string_view kLetters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    constexpr int kIdLetters = 24;
    thread_local std::mt19937_64 generator = [] {
        std::random_device device;
        std::array<std::uint32_t, 8> entropy{};
        for (std::uint32_t& word : entropy)
            word = device();
        std::seed_seq seed(entropy.begin(), entropy.end());
        return std::mt19937_64(seed);
    }();
    std::uniform_int_distribution<std::size_t> letter(0, kLetters.size() - 1);
    std::string id = "call_";
    for (int i = 0; i < kIdLetters; ++i)
        id += kLetters[letter(generator)];
    return id;
}

std::string_view name_of(OutputFormat format) {
    switch (format) {
        case OutputFormat::kNone:
            return "none";
        case OutputFormat::kQwenXml:
            return "qwen_xml";
        case OutputFormat::kHermes:
            return "hermes";
        case OutputFormat::kLlama3Json:
            break;
    }
    return "llama3_json";
}

bool parse_output_format(std::string_view name, OutputFormat& out) {
    for (const OutputFormat format : {OutputFormat::kNone, OutputFormat::kQwenXml,
                                      OutputFormat::kHermes, OutputFormat::kLlama3Json}) {
        if (name != name_of(format)) continue;
        out = format;
        return true;
    }
    return false;
}

std::string_view name_of(ParserState state) {
    if (state == ParserState::kStart) return "start";
    return state == ParserState::kReasoning ? "reasoning" : "content";
}

}  // namespace replica::chat

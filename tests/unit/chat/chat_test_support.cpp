#include "tests/unit/chat/chat_test_support.h"

#include <fstream>

#include <gtest/gtest.h>

namespace replica::chat {

const std::string_view kCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>";

Json read_golden(const std::string& file) {
    std::ifstream stream(std::string(QUADRIGA_SOURCE_DIR) + "/tests/golden/" + file);
    EXPECT_TRUE(stream) << file;
    return Json::parse(stream);
}

std::chrono::local_seconds golden_time() {
    using namespace std::chrono;
    return local_days(2031y / February / 3) + 4h + 5min + 6s;
}

std::string render(std::string_view text, const Json& context, const RenderOptions& options) {
    const auto compiled = Template::compile(text);
    const auto describe_error = [](const TemplateError& error) {
        return std::string(name_of(error.kind)) + ": " + error.message;
    };
    if (!compiled) return describe_error(compiled.error());
    const auto rendered = compiled->render(context, options);
    return rendered ? rendered->text : describe_error(rendered.error());
}

std::string error_kind(std::string_view text, const Json& context, const RenderOptions& options) {
    const auto compiled = Template::compile(text);
    if (!compiled) return std::string(name_of(compiled.error().kind));
    const auto rendered = compiled->render(context, options);
    return rendered ? "" : std::string(name_of(rendered.error().kind));
}

Json case_tools() {
    return Json::parse(R"([
        {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
        {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}}},
        {"type": "function", "function": {"name": "ping"}}])");
}

ParsedMessage parse_chunks(const ParseCase& parse_case, const std::vector<std::string_view>& chunks,
                           FinishKind finish) {
    int next_id = 0;
    ParserOptions options;
    options.format = parse_case.format;
    options.initial = parse_case.initial;
    options.tools = parse_case.tools;
    options.calls_in_reasoning = parse_case.calls_in_reasoning;
    options.make_id = [&next_id] { return "call_" + std::to_string(next_id++); };
    options.reports_origins = true;
    OutputParser parser(std::move(options));
    ParsedMessage message, copied;
    std::string fed;
    std::size_t last_end = 0;
    const auto add = [&](const std::vector<OutputDelta>& deltas) {
        accumulate(message, deltas);
        for (const TextOrigin& origin : parser.take_origins()) {
            EXPECT_GE(origin.bytes.begin, last_end) << "origins ascend";
            last_end = origin.bytes.end;
            (origin.kind == TextOrigin::Kind::kReasoning ? copied.reasoning : copied.content) +=
                fed.substr(origin.bytes.begin, origin.bytes.end - origin.bytes.begin);
        }
        EXPECT_LE(last_end, parser.decided_bytes());
    };
    for (const std::string_view chunk : chunks) {
        fed += chunk;
        add(parser.feed(chunk));
    }
    add(parser.finish(finish));
    EXPECT_EQ(copied.reasoning, message.reasoning) << "all of it is a copy of what was fed";
    EXPECT_EQ(copied.content, message.content);
    return message;
}

ParsedMessage parse(const ParseCase& parse_case, FinishKind finish) {
    return parse_chunks(parse_case, {parse_case.text}, finish);
}

std::string to_line(const ParsedMessage& message) {
    std::string line = message.reasoning + "|" + message.content + "|";
    for (const ParsedToolCall& call : message.tool_calls) {
        line += call.name + "(" + call.arguments + ")";
    }
    return line;
}

}  // namespace replica::chat

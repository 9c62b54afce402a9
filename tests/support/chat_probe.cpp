// chat-probe KIND: drives replica/chat/ from outside. Reads one JSON document a line from standard
// input and writes one a line; KIND is
//   jinja   {template, context, now: "2031-02-03T04:05:06"} → {output, data_spans}
//           or {error: {kind, message, line}}
//   parse   {format, initial, tools, chunks: [...], finish: "end" | "length"} → {message, deltas}
// Ids are call_0, call_1, … so that equal input gives equal output.
#include <charconv>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "replica/chat/output_parser.h"
#include "replica/chat/template.h"

namespace {

using replica::chat::Json;

std::chrono::local_seconds parse_time(const std::string& text) {
    const auto number = [&](std::size_t at, std::size_t size) {
        int value = 0;
        if (at + size <= text.size()) {
            std::from_chars(text.data() + at, text.data() + at + size, value);
        }
        return value;
    };
    const std::chrono::year_month_day date{std::chrono::year(number(0, 4)),
                                           std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                           std::chrono::day(static_cast<unsigned>(number(8, 2)))};
    return std::chrono::local_days(date) + std::chrono::hours(number(11, 2)) +
           std::chrono::minutes(number(14, 2)) + std::chrono::seconds(number(17, 2));
}

Json error_of(const replica::chat::TemplateError& error) {
    return {{"error",
             {{"kind", replica::chat::name_of(error.kind)},
              {"message", error.message},
              {"line", error.line}}}};
}

Json probe_jinja(const Json& request) {
    const auto compiled =
        replica::chat::Template::compile(request.at("template").get_ref<const std::string&>());
    if (!compiled) return error_of(compiled.error());
    replica::chat::RenderOptions options;
    options.now = parse_time(request.value("now", "1970-01-01T00:00:00"));
    const auto rendered = compiled->render(request.value("context", Json::object()), options);
    if (!rendered) return error_of(rendered.error());
    Json spans = Json::array();
    for (const auto& span : rendered->data_spans)
        spans.push_back({span.begin, span.end});
    return {{"output", rendered->text}, {"data_spans", std::move(spans)}};
}

Json to_json(const replica::chat::OutputDelta& delta) {
    struct Visitor {
        Json operator()(const replica::chat::ReasoningDelta& d) const {
            return {{"reasoning", d.text}};
        }
        Json operator()(const replica::chat::ContentDelta& d) const {
            return {{"content", d.text}};
        }
        Json operator()(const replica::chat::ToolCallStart& d) const {
            return {{"index", d.index}, {"id", d.id}, {"name", d.name}};
        }
        Json operator()(const replica::chat::ToolCallArguments& d) const {
            return {{"index", d.index}, {"arguments", d.text}};
        }
    };
    return std::visit(Visitor{}, delta);
}

Json probe_parse(const Json& request) {
    replica::chat::ParserOptions options;
    if (!replica::chat::parse_output_format(request.value("format", "qwen_xml"), options.format)) {
        return {{"error", {{"kind", "format"}}}};
    }
    const std::string initial = request.value("initial", "start");
    options.initial = initial == "reasoning" ? replica::chat::ParserState::kReasoning
                      : initial == "content" ? replica::chat::ParserState::kContent
                                             : replica::chat::ParserState::kStart;
    options.tools = request.value("tools", Json::array());
    options.calls_enabled = request.value("calls_enabled", true);
    options.calls_in_reasoning = request.value("calls_in_reasoning", true);
    int next_id = 0;
    options.make_id = [&next_id] { return "call_" + std::to_string(next_id++); };

    replica::chat::OutputParser parser(std::move(options));
    replica::chat::ParsedMessage message;
    Json deltas = Json::array();
    const auto take = [&](const std::vector<replica::chat::OutputDelta>& batch) {
        replica::chat::accumulate(message, batch);
        for (const auto& delta : batch)
            deltas.push_back(to_json(delta));
    };
    for (const Json& chunk : request.at("chunks")) {
        take(parser.feed(chunk.get_ref<const std::string&>()));
    }
    take(parser.finish(request.value("finish", "end") == "length"
                           ? replica::chat::FinishKind::kLength
                           : replica::chat::FinishKind::kEnd));
    Json calls = Json::array();
    for (const auto& call : message.tool_calls) {
        calls.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
    }
    return {{"message",
             {{"reasoning_content", message.reasoning},
              {"content", message.content},
              {"tool_calls", std::move(calls)}}},
            {"deltas", std::move(deltas)}};
}

}  // namespace

int main(int argc, char** argv) {
    const std::string kind = argc == 2 ? argv[1] : "";
    if (kind != "jinja" && kind != "parse") {
        std::cerr << "usage: chat-probe jinja|parse  (JSON lines in, JSON lines out)\n";
        return 2;
    }
    for (std::string line; std::getline(std::cin, line);) {
        if (line.empty()) continue;
        Json answer;
        try {
            const Json request = Json::parse(line);
            answer = kind == "jinja" ? probe_jinja(request) : probe_parse(request);
        } catch (const Json::exception& error) {
            answer = {{"error", {{"kind", "input"}, {"message", error.what()}}}};
        }
        std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n'
                  << std::flush;
    }
    return 0;
}

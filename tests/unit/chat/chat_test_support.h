// What the chat tests share: golden files, rendering and parsing in one call, the tools and the
// call of the specification's table of cases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "replica/chat/output_parser.h"
#include "replica/chat/template.h"

namespace replica::chat {

/// A file of tests/golden.
Json read_golden(const std::string& file);

/// 3 February 2031, 04:05:06: the clock of the golden files.
std::chrono::local_seconds golden_time();

/// The text, or "kind: message" of the error.
std::string render(std::string_view text, const Json& context = Json::object(),
                   const RenderOptions& options = {});
/// "" when it renders, else the kind of the error.
std::string error_kind(std::string_view text, const Json& context = Json::object(),
                       const RenderOptions& options = {});

/// get_weather {city: string, days: integer}, write_file {path, text: string}, ping.
Json case_tools();
/// get_weather(city Köln, days 2) in qwen_xml.
extern const std::string_view kCall;
inline constexpr std::string_view kCallArguments = R"({"city":"Köln","days":2})";

/// How a text is parsed; chunks are what matters least.
struct ParseCase {
    std::string text;
    ParserState initial = ParserState::kContent;
    OutputFormat format = OutputFormat::kQwenXml;
    Json tools = case_tools();
    bool calls_in_reasoning = true;
};

/// The sum of the deltas for these chunks; checks on the way that the parser says truly where its
/// text came from. Ids are call_0, call_1, …
ParsedMessage parse_chunks(const ParseCase& parse_case, const std::vector<std::string_view>& chunks,
                           FinishKind finish);
ParsedMessage parse(const ParseCase& parse_case, FinishKind finish = FinishKind::kEnd);

/// One line: reasoning|content|name(arguments)…, for comparing and printing.
std::string to_line(const ParsedMessage& message);

}  // namespace replica::chat

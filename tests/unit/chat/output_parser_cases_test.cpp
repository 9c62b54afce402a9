// The table of cases of the output parser, and one case for each rule that the table leaves out.
// Results are written reasoning|content|name(arguments).
#include <gtest/gtest.h>

#include "tests/unit/chat/chat_test_support.h"

namespace replica::chat {
namespace {

constexpr auto kReasoning = ParserState::kReasoning;
constexpr auto kStart = ParserState::kStart;
constexpr auto kHermes = OutputFormat::kHermes;
constexpr auto kLlama = OutputFormat::kLlama3Json;

std::string line(const ParseCase& parse_case, FinishKind finish = FinishKind::kEnd) {
    return to_line(parse(parse_case, finish));
}

const std::string kOne = "get_weather(" + std::string(kCallArguments) + ")";

std::string call_with(std::string_view from, std::string_view to) {
    std::string text(kCall);
    return text.replace(text.find(from), from.size(), to);
}

TEST(OutputParserTest, SeparatesReasoningContentAndCall) {
    EXPECT_EQ(line({"hm\n</think>\n\nLet me check.\n\n" + std::string(kCall), kReasoning}),
              "hm|Let me check.|" + kOne);
}

TEST(OutputParserTest, TakesABareFunctionOfADeclaredNameForACall) {
    const std::string bare(kCall.substr(kCall.find('\n') + 1));
    EXPECT_EQ(line({"Let me check.\n\n" + bare}), "|Let me check.|" + kOne);
    std::string foreign = "Let me check.\n\n" + bare;
    foreign.replace(foreign.find("get_weather"), 11, "foo");
    EXPECT_EQ(line({foreign}), "|" + foreign + "|");
    const std::string prose = "The tag <function=get_weather> opens a call.";
    EXPECT_EQ(line({prose}), "|" + prose + "|");
    EXPECT_EQ(line({"<function=ping>\n</function>"}), "||ping({})");
}

TEST(OutputParserTest, DropsRepeatedCloseTags) {
    EXPECT_EQ(line({call_with("</function>", "</function>\n</function>")}), "||" + kOne);
    EXPECT_EQ(line({call_with("</function>", "</function_invocation>\n</function>")}), "||" + kOne);
    EXPECT_EQ(line({std::string(kCall) + "\n</tool_call>"}), "||" + kOne);
    EXPECT_EQ(line({std::string(kCall) + "\n</tool_call>\n</tool_call>"}), "|</tool_call>|" + kOne);
}

TEST(OutputParserTest, ClosesTheReasoningByACallOfADeclaredName) {
    EXPECT_EQ(line({"I need it.\n" + std::string(kCall) + "\n</think>\n\nDone.", kReasoning}),
              "I need it.|Done.|" + kOne);
    EXPECT_EQ(line({"I could write <tool_call> here.\n</think>\nok", kReasoning}),
              "I could write <tool_call> here.|ok|");
    EXPECT_EQ(line({"<tool_call>\n<function=foo>\n</function>\n</think>ok", kReasoning}),
              "<tool_call>\n<function=foo>\n</function>|ok|");
    EXPECT_EQ(line({.text = "a\n" + std::string(kCall) + "</think>b",
                    .initial = kReasoning,
                    .calls_in_reasoning = false}),
              "a\n" + std::string(kCall) + "|b|");
}

TEST(OutputParserTest, ReleasesFragmentsAtTheEnd) {
    for (const FinishKind finish : {FinishKind::kEnd, FinishKind::kLength}) {
        EXPECT_EQ(line({"abc </thi", kReasoning}, finish), "abc </thi||");
        EXPECT_EQ(line({"abc <tool_ca"}, finish), "|abc <tool_ca|");
        EXPECT_EQ(line({" \n<thi", kStart}, finish), "| \n<thi|");
    }
}

TEST(OutputParserTest, KeepsTagsWithinAValue) {
    const std::string text = "use </tool_call> and </function>\nand </parameter> here";
    EXPECT_EQ(line({"<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n"
                    "<parameter=text>\n" +
                    text + "\n</parameter>\n</function>\n</tool_call>"}),
              "||write_file({\"path\":\"a\",\"text\":\"use </tool_call> and </function>\\nand "
              "</parameter> here\"})");
    const std::string arguments =
        R"({"path": "a", "text": "use </tool_call> and </function>\nand </parameter> here"})";
    EXPECT_EQ(line({.text = "<tool_call>\n{\"name\": \"write_file\", \"arguments\": " + arguments +
                            "}\n</tool_call>",
                    .format = kHermes}),
              "||write_file(" + arguments + ")");
}

TEST(OutputParserTest, WritesEmptyArguments) {
    EXPECT_EQ(line({"<tool_call>\n<function=ping>\n</function>\n</tool_call>"}), "||ping({})");
    for (const char* const object :
         {R"({"name": "ping"})", R"({"name": "ping", "arguments": null})",
          R"({"name": "ping", "arguments": {}})", R"({"name": "ping", "arguments": ""})"}) {
        EXPECT_EQ(
            line({.text = std::string("<tool_call>") + object + "</tool_call>", .format = kHermes}),
            "||ping({})");
    }
}

TEST(OutputParserTest, CutsACallAtTheTokenLimit) {
    const std::string_view full = kCallArguments;
    for (std::size_t size = kCall.find('>', 20) + 1; size <= kCall.size(); ++size) {
        const ParsedMessage message =
            parse({std::string(kCall.substr(0, size))}, FinishKind::kLength);
        ASSERT_EQ(message.tool_calls.size(), 1U) << size;
        EXPECT_EQ(message.tool_calls[0].name, "get_weather");
        // A piece of a tag is no text: what was sent is a prefix of the whole call's arguments.
        EXPECT_TRUE(full.starts_with(message.tool_calls[0].arguments))
            << size << ": " << message.tool_calls[0].arguments;
        EXPECT_EQ(message.content, "") << size;
    }
    EXPECT_EQ(line({"<tool_call><function=get_weather><parameter=city>\nKö"}, FinishKind::kLength),
              "||get_weather({\"city\":\"Kö)");
    EXPECT_EQ(line({"<tool_call><function=get_weather><parameter=days>\n12"}, FinishKind::kLength),
              "||get_weather({\"days\":12)");
    EXPECT_EQ(line({"<tool_call><function=get_weather>"}, FinishKind::kLength), "||get_weather()");
}

TEST(OutputParserTest, ClosesWhatAnEndTokenLeavesOpen) {
    const std::string open = "<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln";
    for (const char* const rest :
         {"", "\n", "\n</function>", "\n</function>\n</tool_call>", "\n</tool_call>\n",
          "\n</parameter>", "\n</parameter>\n", "\n</parameter>\n</function>"}) {
        EXPECT_EQ(line({open + rest}), "||get_weather({\"city\":\"Köln\"})") << rest;
    }
    EXPECT_EQ(line({open + "\n</func"}), "||get_weather({\"city\":\"Köln\\n</func\"})");
}

TEST(OutputParserTest, ReadsSeveralCalls) {
    const std::string two = std::string(kCall) + "\n" + std::string(kCall);
    EXPECT_EQ(line({"Both.\n" + two}), "|Both.|" + kOne + kOne);
    // The first is not closed.
    EXPECT_EQ(line({call_with("\n</tool_call>", "\n") + std::string(kCall)}), "||" + kOne + kOne);
    EXPECT_EQ(line({std::string(kCall) + "\nand\n" + std::string(kCall)}), "|and|" + kOne + kOne);
}

TEST(OutputParserTest, LeavesProseThatNamesTagsAlone) {
    for (const char* const text :
         {"The <tool_calls> list", "a `<tool_call>` tag",
          "<tool_call>{\"name\": \"ping\"}</tool_call>", "1 < 2 > 0 <",
          "</think> </tool_call> </function>", "<function=ping> and more"}) {
        EXPECT_EQ(line({text}), "|" + std::string(text) + "|");
    }
}

TEST(OutputParserTest, LooksForNoCallsWhenNoneMayCome) {
    ParseCase no_tools{std::string(kCall)};
    no_tools.tools = Json::array();
    EXPECT_EQ(line(no_tools), "|" + std::string(kCall) + "|");
    ParserOptions options;
    options.format = OutputFormat::kQwenXml;
    options.tools = case_tools();
    options.calls_enabled = false;
    OutputParser parser(options);
    ParsedMessage message;
    accumulate(message, parser.feed(kCall));
    EXPECT_EQ(message.content, kCall) << "nothing to look for: nothing is held back";
}

TEST(OutputParserTest, StartsWhereThePromptEnds) {
    EXPECT_EQ(line({"\n<think>\nhm\n</think>\n\nyes", kStart}), "hm|yes|");
    EXPECT_EQ(line({"  yes <think>", kStart}), "|  yes <think>|");
    EXPECT_EQ(line({" <think>\nhm </think> yes", kReasoning}), "hm|yes|");
    EXPECT_EQ(line({"<think><think>hm", kReasoning}), "<think>hm||");
    EXPECT_EQ(line({"a <think> b", kReasoning}), "a <think> b||");
    EXPECT_EQ(line({"hm  \n", kReasoning}), "hm||");
    EXPECT_EQ(line({"</think>\n</think>x", kReasoning}), "|</think>x|");
    EXPECT_EQ(line({"a</think>b"}), "|a</think>b|");
    ParserOptions no_think;
    no_think.initial = kStart;
    no_think.think_tags = false;
    OutputParser parser(no_think);
    ParsedMessage message;
    accumulate(message, parser.feed("<think>"));
    EXPECT_EQ(message.content, "<think>");
}

TEST(OutputParserTest, KeepsContentVerbatim) {
    EXPECT_EQ(line({" \n a \n b \n "}), "| \n a \n b \n |");
    EXPECT_EQ(line({"a\n\n" + std::string(kCall) + "\n\nb "}), "|a\n\nb |" + kOne);
    EXPECT_EQ(line({std::string(kCall) + "\n\nb "}), "|b |" + kOne);
}

TEST(OutputParserTest, ReadsNamesAndKeysWithSpacesAndQuotes) {
    EXPECT_EQ(line({"<tool_call><function= \"get_weather\" ><parameter= \"city\" >x</parameter>"
                    "</function></tool_call>"}),
              "||get_weather({\"city\":\"x\"})");
    const std::string long_name = "<tool_call><function=" + std::string(257, 'n') + "></function>";
    EXPECT_EQ(line({long_name}), "|" + long_name + "|");
    EXPECT_EQ(line({"<tool_call><function=a\nb>"}), "|<tool_call><function=a\nb>|");
    EXPECT_EQ(line({"<tool_call><function=>"}), "|<tool_call><function=>|");
}

TEST(OutputParserTest, RemovesOneLineBreakAtEachEndOfAValue) {
    const auto value = [](const std::string& text) {
        return line({"<tool_call><function=write_file><parameter=text>" + text +
                     "</parameter></function></tool_call>"});
    };
    EXPECT_EQ(value("\n\n a \n\n"), "||write_file({\"text\":\"\\n a \\n\"})");
    EXPECT_EQ(value("\r\na\r\n"), "||write_file({\"text\":\"a\"})");
    EXPECT_EQ(value("\ra\r"), "||write_file({\"text\":\"\\ra\\r\"})");
    EXPECT_EQ(value(""), "||write_file({\"text\":\"\"})");
    EXPECT_EQ(value("\n"), "||write_file({\"text\":\"\"})");
    EXPECT_EQ(value("\n\n"), "||write_file({\"text\":\"\"})");
}

TEST(OutputParserTest, DropsARepeatedKeyAndKeepsStrayTextAsContent) {
    EXPECT_EQ(line({"<tool_call><function=get_weather><parameter=city>a</parameter>"
                    "<parameter=city>b</parameter></function></tool_call>"}),
              "||get_weather({\"city\":\"a\"})");
    EXPECT_EQ(line({"<tool_call><function=ping>\n stray  text </b>\n</function></tool_call>"}),
              "|stray  text|ping({})");
}

TEST(OutputParserTest, ReadsHermesObjectsHoweverTheyAreWritten) {
    const auto call = [](const std::string& object) {
        return line({.text = "<tool_call>\n" + object + "\n</tool_call>", .format = kHermes});
    };
    EXPECT_EQ(call(R"({"name": "ping", "arguments": {"a": "} { \" {", "b": ["]"]}})"),
              R"(||ping({"a": "} { \" {", "b": ["]"]}))");
    EXPECT_EQ(call(R"({"arguments": {"a": 1}, "id": {"x": [1]}, "name": "ping"})"),
              R"(||ping({"a": 1}))");
    EXPECT_EQ(call(R"({"name": "ping", "parameters": {"a": 1}}}}})"), R"(||ping({"a": 1}))");
    EXPECT_EQ(call(R"({"name": "ping", "arguments": " {\"a\": \"\\n\ud83e\udd99\"}"})"),
              R"(||ping({"a": "\n🦙"}))");
    EXPECT_EQ(call(R"({"name": "unknown", "arguments": {}})"), "||unknown({})");
    EXPECT_EQ(
        line({.text = R"(<tool_call>{"name": "ping", "arguments": {"a": 1}})", .format = kHermes}),
        R"(||ping({"a": 1}))");
}

TEST(OutputParserTest, KeepsABrokenHermesObject) {
    const auto both = [](const std::string& text) {
        return line({.text = text, .format = kHermes});
    };
    for (const char* const text :
         {"<tool_call>{\"nam\": 1}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>",
          "<tool_call>{name: \"ping\"}</tool_call>", "<tool_call>[1]</tool_call>",
          "<tool_call>{\"name\": \"pi", "```{\"name\": \"ping\"}```"}) {
        EXPECT_EQ(both(text), "|" + std::string(text) + "|");
    }
    EXPECT_EQ(both("<tool_call>{\"name\": \"ping\", \"arguments\": {\"a\": 1</tool_call>ok"),
              "|ok|ping({\"a\": 1)");
    EXPECT_EQ(both("<tool_call>{\"name\": \"ping\", \"arguments\": {\"a\": \"x"),
              "||ping({\"a\": \"x)");
    EXPECT_EQ(line({.text = "a <tool_call>{\"id\": 1, \"name\": \"ping\"}</tool_call></think>b",
                    .initial = kReasoning,
                    .format = kHermes}),
              "a <tool_call>{\"id\": 1, \"name\": \"ping\"}</tool_call>|b|");
}

TEST(OutputParserTest, ReadsBareObjectsOfALlamaMessage) {
    const auto message = [](const std::string& text, ParserState initial = ParserState::kContent) {
        return line({.text = text, .initial = initial, .format = kLlama});
    };
    EXPECT_EQ(message(" <|python_tag|>{\"name\": \"ping\", \"parameters\": {\"a\": 1}}"),
              "||ping({\"a\": 1})");
    EXPECT_EQ(message("{\"name\": \"ping\", \"parameters\": {}}; {\"name\": \"ping\", "
                      "\"arguments\": {\"b\": 2}}\n{\"name\": \"ping\", \"parameters\": {}}"),
              "||ping({})ping({\"b\": 2})ping({})");
    EXPECT_EQ(message("<think>\nhm</think>{\"name\": \"ping\", \"parameters\": {}}", kStart),
              "hm||ping({})");
    for (const char* const text :
         {"{\"name\": \"pong\", \"parameters\": {}}", "{\"name\": \"ping\"}", "{\"a\": 1}",
          "x {\"name\": \"ping\", \"parameters\": {}}", "<|python_tag|>print(1)", "{\"name\": \"pi",
          "<|pyth"}) {
        EXPECT_EQ(message(text), "|" + std::string(text) + "|");
    }
}

TEST(OutputParserTest, HoldsNoMoreThanItsLimit) {
    ParserOptions options;
    options.format = OutputFormat::kHermes;
    options.tools = case_tools();
    OutputParser parser(options);
    std::size_t fed = 0;
    std::size_t given = 0;
    const auto feed = [&](const std::string& text) {
        fed += text.size();
        for (const OutputDelta& delta : parser.feed(text)) {
            given += std::get<ContentDelta>(delta).text.size();
        }
        EXPECT_LE(fed - given, kUndecidedMax);
    };
    feed(std::string(10'000, ' '));
    feed("<tool_call>");
    for (int i = 0; i < 10; ++i)
        feed(std::string(1000, ' '));
    feed("<tool_call>{\"x\": \"");
    for (int i = 0; i < 10; ++i)
        feed(std::string(1000, 'y'));
    parser.finish(FinishKind::kEnd);
    EXPECT_GE(parser.fallbacks().at("tag_as_text"), 2U);
}

TEST(OutputParserTest, StreamsStringsAsTheyComeAndOthersWhenComplete) {
    ParserOptions options;
    options.format = OutputFormat::kQwenXml;
    options.tools = case_tools();
    options.make_id = [] { return "id"; };
    OutputParser parser(options);
    ParsedMessage message;
    const auto feed = [&](std::string_view text) {
        accumulate(message, parser.feed(text));
        return message.tool_calls.empty() ? "-" : message.tool_calls[0].arguments;
    };
    EXPECT_EQ(feed("<tool_call>\n<function=get_weather"), "-");
    EXPECT_EQ(feed(">\n<parameter=city>"), "{\"city\":\"");
    EXPECT_EQ(feed("\nKö"), "{\"city\":\"Kö");
    EXPECT_EQ(feed("ln\n</para"), "{\"city\":\"Köln");
    EXPECT_EQ(feed("meter>\n<parameter=days>\n12"), "{\"city\":\"Köln\"");
    EXPECT_EQ(feed("3\n</parameter>\n</function>"), "{\"city\":\"Köln\",\"days\":123}");
}

}  // namespace
}  // namespace replica::chat

// The demo model's own transcripts: parsed, sent back as history and rendered again, each gives the
// prompt followed by the generated text, byte for byte; and so do calls with awkward arguments.
#include <gtest/gtest.h>

#include "replica/chat/messages.h"
#include "tests/unit/chat/chat_test_support.h"

namespace replica::chat {
namespace {

constexpr std::string_view kEnd = "<|im_end|>";

Template demo_template() {
    auto compiled = Template::compile(
        read_golden("foal-template.json")["template"].get_ref<const std::string&>());
    EXPECT_TRUE(compiled);
    return *compiled;
}

/// The message as a client sends it back.
Json as_history(const ParsedMessage& message) {
    Json history = {{"role", "assistant"},
                    {"content", message.content.empty() ? Json(nullptr) : Json(message.content)},
                    {"reasoning_content", message.reasoning}};
    for (const ParsedToolCall& call : message.tool_calls) {
        history["tool_calls"].push_back(
            {{"id", call.id},
             {"type", "function"},
             {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return history;
}

struct Turn {
    Json messages;
    std::optional<Json> tools;
    bool thinks = true;
};

RenderedPrompt render_turn(const Turn& turn, bool add_generation_prompt) {
    ChatInput input;
    input.messages = turn.messages;
    input.tools = turn.tools;
    input.variables = {{"enable_thinking", turn.thinks}};
    input.add_generation_prompt = add_generation_prompt;
    auto rendered = render_chat(demo_template(), input);
    EXPECT_TRUE(rendered) << rendered.error().message;
    return rendered.value_or(RenderedPrompt{});
}

void expect_round_trip(Turn turn, const std::string& generated) {
    const RenderedPrompt prompt = render_turn(turn, true);
    ParseCase one{.text = generated, .initial = prompt.initial_state};
    one.tools = turn.tools.value_or(Json::array());
    const ParsedMessage message = parse(one);
    ASSERT_EQ(to_line(parse_chunks(
                  one,
                  [&] {
                      std::vector<std::string_view> bytes;
                      for (std::size_t i = 0; i < one.text.size(); ++i) {
                          bytes.push_back(std::string_view(one.text).substr(i, 1));
                      }
                      return bytes;
                  }(),
                  FinishKind::kEnd)),
              to_line(message));
    turn.messages.push_back(as_history(message));
    EXPECT_EQ(render_turn(turn, false).text, prompt.text + generated + std::string(kEnd) + "\n");
}

TEST(RoundTripTest, RendersEveryGoldenTranscriptAsItWasGenerated) {
    const Json golden = read_golden("foal-greedy.json");
    int calls = 0;
    for (const Json& one : golden["cases"]) {
        Turn turn{
            .messages = one["messages"], .tools = std::nullopt, .thinks = one["enable_thinking"]};
        if (!one["tools"].is_null()) turn.tools = one["tools"];
        EXPECT_EQ(render_turn(turn, true).text, one["prompt"].get<std::string>());
        std::string text = one["greedy_text"];
        ASSERT_TRUE(text.ends_with(kEnd));
        text.resize(text.size() - kEnd.size());
        calls += text.find("<tool_call>") != std::string::npos ? 1 : 0;
        expect_round_trip(turn, text);
    }
    EXPECT_GT(calls, 0);
}

TEST(RoundTripTest, RendersAwkwardArgumentsAsTheyWereGenerated) {
    const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
        {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"},
         "b": {"type": "boolean"}, "o": {"type": "object"}, "a": {"type": ["array", "null"]}}}}}])");
    const Turn turn{.messages = Json::array({{{"role", "user"}, {"content", "q"}}}),
                    .tools = tools};
    const auto call = [](std::string_view key, std::string_view value) {
        return "<tool_call>\n<function=f>\n<parameter=" + std::string(key) + ">\n" +
               std::string(value) + "\n</parameter>\n</function>\n</tool_call>";
    };
    for (const auto& [key, value] : std::vector<std::pair<const char*, const char*>>{
             {"s", "</tool_call>, </parameter> and <think>"},
             {"s", "\n two \r\n lines \n"},
             {"s", "\"quoted\" \\ \t \u0001 é🦙"},
             {"s", ""},
             {"n", "12"},
             {"b", "true"},
             {"o", "{\"k\": [1, 1.5, {\"z\": null}], \"t\": \"True\"}"},
             {"a", "null"},
             {"a", "[\"a b\", false]"}}) {
        expect_round_trip(turn, "hm\n</think>\n\n" + call(key, value));
    }
    expect_round_trip(turn,
                      "hm\n</think>\n\nTwo calls.\n" + call("s", "x") + "\n" + call("n", "1"));
    expect_round_trip(turn, "\n</think>\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>");
}

}  // namespace
}  // namespace replica::chat

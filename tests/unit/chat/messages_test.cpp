// From OpenAI messages to the template's context: roles, contents, arguments, the order of tool
// results, folding of late system messages, and the error each bad message gets.
#include "replica/chat/messages.h"

#include <gtest/gtest.h>

#include "tests/unit/chat/chat_test_support.h"

namespace replica::chat {
namespace {

Template compiled(std::string_view text) {
    auto result = Template::compile(text);
    EXPECT_TRUE(result) << result.error().message;
    return *result;
}

Json seen(const Json& messages) {
    const auto result = template_messages(messages);
    EXPECT_TRUE(result) << result.error().message;
    return result.value_or(Json());
}

std::string error_of(const Json& messages) {
    const auto result = template_messages(messages);
    if (result) return "none";
    return std::string(name_of(result.error().code)) + " " + result.error().param;
}

TEST(MessagesTest, GivesTheTemplateWhatItExpects) {
    EXPECT_EQ(seen(Json::parse(R"([{"role": "developer", "content": "d"},
                                   {"role": "user", "content": null}, {"role": "user"},
                                   {"role": "assistant", "content": null, "refusal": "no"},
                                   {"role": "assistant", "content": "c", "reasoning": "r"},
                                   {"role": "assistant", "content": "c", "reasoning": "x",
                                    "reasoning_content": "first"}])")),
              Json::parse(R"([{"role": "system", "content": "d"}, {"role": "user", "content": ""},
                              {"role": "user", "content": ""}, {"role": "assistant", "content": "no"},
                              {"role": "assistant", "content": "c", "reasoning_content": "r"},
                              {"role": "assistant", "content": "c", "reasoning_content": "first"}])"));
}

TEST(MessagesTest, PassesTextPartsOnAsParts) {
    EXPECT_EQ(seen(Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                   {"type": "refusal", "refusal": "b"}]}])"))[0]["content"],
              Json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])"));
}

TEST(MessagesTest, ReadsArgumentsFromTextOrObject) {
    const Json messages = seen(Json::parse(R"([{"role": "assistant", "tool_calls": [
        {"id": "a", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2.0}"}},
        {"id": "b", "function": {"name": "g", "arguments": {"k": 1}}},
        {"id": "c", "function": {"name": "h"}}]}])"));
    const Json& calls = messages[0]["tool_calls"];
    EXPECT_EQ(calls[0]["function"]["arguments"].dump(), R"({"z":1,"a":2.0})");
    EXPECT_EQ(calls[1]["function"]["arguments"].dump(), R"({"k":1})");
    EXPECT_EQ(calls[2]["function"]["arguments"].dump(), "{}");
    EXPECT_FALSE(seen(Json::parse(R"([{"role": "assistant", "tool_calls": []}])"))[0].contains(
        "tool_calls"));
}

/// A call whose arguments are text with `depth` objects in each other.
Json message_with_deep_arguments(const std::string& role, std::size_t depth) {
    std::string arguments;
    for (std::size_t i = 0; i < depth; ++i)
        arguments += "{\"a\":";
    arguments += "1" + std::string(depth, '}');
    const Json call = {{"function", {{"name", "f"}, {"arguments", arguments}}}};
    return {{"role", role}, {"content", ""}, {"tool_calls", Json::array({call})}};
}

TEST(MessagesTest, RefusesArgumentsThatAreTooDeepToBeCopied) {
    for (const char* const role : {"assistant", "user", "tool", "system"}) {
        EXPECT_TRUE(template_messages(Json::array({message_with_deep_arguments(role, 128)})));
        for (const std::size_t depth : {129U, 500'000U}) {
            EXPECT_EQ(error_of(Json::array({message_with_deep_arguments(role, depth)})),
                      "invalid_value messages[0].tool_calls[0].function.arguments");
        }
    }
}

TEST(MessagesTest, ArgumentsEndWhereTheirTextEnds) {
    const Json call = {{"function", {{"name", "f"}, {"arguments", std::string("{}\0{", 4)}}}};
    EXPECT_EQ(error_of(Json::array({{{"role", "assistant"}, {"tool_calls", Json::array({call})}}})),
              "invalid_value messages[0].tool_calls[0].function.arguments");
}

TEST(MessagesTest, OrdersToolResultsByTheirCalls) {
    const auto order = [](const std::string& ids) {
        Json messages = Json::parse(R"([{"role": "assistant", "tool_calls": [
            {"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "f"}},
            {"id": "c", "function": {"name": "f"}}]}])");
        for (const char id : ids) {
            messages.push_back(
                {{"role", "tool"}, {"tool_call_id", std::string(1, id)}, {"content", "x"}});
        }
        const Json result = seen(messages);
        std::string out;
        for (std::size_t i = 1; i < result.size(); ++i) {
            out += result[i]["tool_call_id"].get<std::string>();
        }
        return out;
    };
    EXPECT_EQ(order("cab"), "abc");
    EXPECT_EQ(order("ca"), "ac");
    EXPECT_EQ(order("cxa"), "cxa") << "one matches no call: the client's order stays";
}

TEST(MessagesTest, NamesWhatIsWrong) {
    for (
        const auto& [text, expected] : std::vector<std::pair<const char*, const char*>>{
            {R"({})", "invalid_type messages"},
            {R"([5])", "invalid_type messages[0]"},
            {R"([{}])", "invalid_type messages[0].role"},
            {R"([{"role": "king"}])", "invalid_value messages[0].role"},
            {R"([{"role": "user"}, {"role": "user", "content": 5}])",
             "invalid_type messages[1].content"},
            {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}])",
             "unsupported_content messages[0].content[1]"},
            {R"([{"role": "user", "content": ["a"]}])",
             "unsupported_content messages[0].content[0]"},
            {R"([{"role": "user", "content": [{"type": "text"}]}])",
             "invalid_type messages[0].content[0].text"},
            {R"([{"role": "assistant", "reasoning": 5}])",
             "invalid_type messages[0].reasoning_content"},
            {R"([{"role": "assistant", "tool_calls": 5}])", "invalid_type messages[0].tool_calls"},
            {R"([{"role": "assistant", "tool_calls": [{}]}])",
             "invalid_type messages[0].tool_calls[0].function"},
            {R"([{"role": "assistant", "tool_calls": [{"function": {"name": 5}}]}])",
             "invalid_type messages[0].tool_calls[0].function.name"},
            {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "x"}}]}])",
             "invalid_value messages[0].tool_calls[0].function.arguments"},
            {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}])",
             "invalid_value messages[0].tool_calls[0].function.arguments"}}) {
        EXPECT_EQ(error_of(Json::parse(text)), expected) << text;
    }
}

TEST(RenderChatTest, FoldsLateSystemMessagesWhenTheTemplateRefusesThem) {
    const Template strict = compiled(
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('system first') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor "
        "%}");
    ChatInput input;
    input.messages = Json::parse(R"([{"role": "user", "content": "u"},
        {"role": "system", "content": "one"}, {"role": "assistant", "content": "a"},
        {"role": "developer", "content": [{"type": "text", "text": "two"}]}])");
    const auto rendered = render_chat(strict, input);
    ASSERT_TRUE(rendered) << rendered.error().message;
    EXPECT_EQ(rendered->text, "[system:one\n\ntwo][user:u][assistant:a]");
    EXPECT_EQ(rendered->warnings, std::vector<std::string>{"system_messages_folded"});

    const Template lenient = compiled("{% for m in messages %}[{{ m.role }}]{% endfor %}");
    const auto as_is = render_chat(lenient, input);
    ASSERT_TRUE(as_is);
    EXPECT_EQ(as_is->text, "[user][system][assistant][system]");
    EXPECT_TRUE(as_is->warnings.empty());
}

TEST(RenderChatTest, AnswersWithTheTemplatesWords) {
    ChatInput input;
    input.messages = Json::parse(R"([{"role": "user", "content": "u"}, {"role": "system"}])");
    const auto error = [&](std::string_view text) {
        const auto rendered = render_chat(compiled(text), input);
        if (rendered) return std::string("none");
        return std::string(name_of(rendered.error().code)) + ": " + rendered.error().message;
    };
    EXPECT_EQ(error("{{ raise_exception('No, never.') }}"), "template_error: No, never.");
    EXPECT_EQ(error("\n{{ messages.x.y }}"),
              "template_error: chat template, line 2: 'list object' has no attribute 'x'");
    EXPECT_EQ(error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              "template_limit: chat template, line 1: macros call each other more than 64 deep");
}

TEST(RenderChatTest, LeavesToolsUndefinedWhenThereAreNone) {
    const Template text = compiled("{{ tools is defined }}{{ flag }}{{ bos_token }}");
    ChatInput input;
    input.variables = {{"flag", 1}, {"tools", "not from here"}};
    input.bos_token = "<s>";
    EXPECT_EQ(render_chat(text, input)->text, "False1<s>");
    input.tools = Json::array();
    EXPECT_EQ(render_chat(text, input)->text, "False1<s>");
    input.tools = case_tools();
    const auto rendered = render_chat(text, input);
    EXPECT_EQ(rendered->text, "True1<s>");
    EXPECT_TRUE(rendered->data_spans.empty());
}

}  // namespace
}  // namespace replica::chat

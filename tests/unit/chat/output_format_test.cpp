// What a template says about the output: call format by a probe, think tags, the initial state.
#include <gtest/gtest.h>

#include "tests/unit/chat/chat_test_support.h"

namespace replica::chat {
namespace {

Template compiled(std::string_view text) {
    auto result = Template::compile(text);
    EXPECT_TRUE(result) << result.error().message;
    return *result;
}

OutputFormat detect(std::string_view text) {
    return detect_output_format(compiled(text));
}

TEST(OutputFormatTest, RecognisesTheDemoModelsTemplate) {
    const Template foal =
        compiled(read_golden("foal-template.json")["template"].get<std::string>());
    EXPECT_EQ(detect_output_format(foal), OutputFormat::kQwenXml);
    EXPECT_TRUE(has_think_tags(foal));
}

TEST(OutputFormatTest, RecognisesTheFormatByTheRenderedCall) {
    const std::string each_call = "{% for m in messages %}{% for c in m.tool_calls %}";
    const std::string end = "{% endfor %}{% endfor %}";
    EXPECT_EQ(detect("Answer with {\"name\": …} within <tool_call></tool_call>." + each_call +
                     "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
                     "{{ c.function.arguments | tojson }}}\n</tool_call>" +
                     end),
              OutputFormat::kHermes);
    EXPECT_EQ(detect(each_call +
                     "{{ {'name': c.function.name, 'parameters': "
                     "c.function.arguments} | tojson }}" +
                     end),
              OutputFormat::kLlama3Json);
    EXPECT_EQ(detect(each_call + "CALL {{ c.function.name }}()" + end), OutputFormat::kNone);
    EXPECT_EQ(detect("{% for m in messages %}{{ m.content }}{% endfor %}"), OutputFormat::kNone);
    EXPECT_EQ(detect("{{ tools | tojson }}"), OutputFormat::kNone);
    EXPECT_EQ(detect("{{ raise_exception('never') }}"), OutputFormat::kNone);
    EXPECT_FALSE(has_think_tags(compiled("<think>")));
}

TEST(OutputFormatTest, KnowsItsNames) {
    OutputFormat format = OutputFormat::kNone;
    EXPECT_TRUE(parse_output_format("llama3_json", format));
    EXPECT_EQ(format, OutputFormat::kLlama3Json);
    EXPECT_FALSE(parse_output_format("qwen", format));
    EXPECT_EQ(name_of(OutputFormat::kQwenXml), "qwen_xml");
}

TEST(OutputFormatTest, TakesTheInitialStateFromTheTemplatesOwnBytes) {
    EXPECT_EQ(initial_state({"<|im_start|>assistant\n<think>\n", {}}), ParserState::kReasoning);
    EXPECT_EQ(initial_state({"assistant\n<think>\n\n</think>\n\n", {}}), ParserState::kContent);
    EXPECT_EQ(initial_state({"assistant\n", {}}), ParserState::kStart);
    EXPECT_EQ(initial_state({"", {}}), ParserState::kStart);
    // A user who writes the tag last does not open the reasoning.
    EXPECT_EQ(initial_state({"user: <think>", {{6, 13}}}), ParserState::kStart);
    EXPECT_EQ(initial_state({"user: x <think>", {{6, 8}}}), ParserState::kReasoning);
}

}  // namespace
}  // namespace replica::chat

// The golden renderings of a Qwen3.5 chat (three of them, known byte for byte), with a template of
// our own that does what the official one is described to do. Of the tool heading only what follows
// the instructions is known, so only that is compared.
#include <gtest/gtest.h>

#include "replica/chat/messages.h"
#include "tests/unit/chat/chat_test_support.h"

namespace replica::chat {
namespace {

constexpr std::string_view kTemplate = R"({%- macro text(content) -%}
    {%- if content is string -%}{{- content | trim -}}
    {%- elif content is iterable and content is not mapping -%}
        {%- set ns = namespace(all='') -%}
        {%- for part in content -%}
            {%- if 'text' in part -%}{%- set ns.all = ns.all ~ part.text -%}{%- endif -%}
        {%- endfor -%}
        {{- ns.all | trim -}}
    {%- endif -%}
{%- endmacro -%}
{%- if not messages -%}{{- raise_exception('No messages.') -}}{%- endif -%}
{%- if tools and tools is iterable and tools is not mapping -%}
    {{- '<|im_start|>system\n# Tools\n\n<tools>' -}}
    {%- for tool in tools -%}{{- '\n' ~ (tool | tojson) -}}{%- endfor -%}
    {{- '\n</tools>\n\n</IMPORTANT>' -}}
    {%- if messages[0].role == 'system' and text(messages[0].content) -%}
        {{- '\n\n' + text(messages[0].content) -}}
    {%- endif -%}
    {{- '<|im_end|>\n' -}}
{%- elif messages[0].role == 'system' -%}
    {{- '<|im_start|>system\n' + text(messages[0].content) + '<|im_end|>\n' -}}
{%- endif -%}
{%- set ns = namespace(searching=true, last_query=messages | length - 1) -%}
{%- for m in messages[::-1] -%}
    {%- set index = (messages | length - 1) - loop.index0 -%}
    {%- set content = text(m.content) -%}
    {%- if ns.searching and m.role == 'user' and not (content.startswith('<tool_response>') and content.endswith('</tool_response>')) -%}
        {%- set ns.searching = false -%}
        {%- set ns.last_query = index -%}
    {%- endif -%}
{%- endfor -%}
{%- if ns.searching -%}{{- raise_exception('No user query found in messages.') -}}{%- endif -%}
{%- for m in messages -%}
    {%- set content = text(m.content) -%}
    {%- if m.role == 'system' -%}
        {%- if not loop.first -%}{{- raise_exception('System message must be at the beginning.') -}}{%- endif -%}
    {%- elif m.role == 'user' -%}
        {{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>' + '\n' -}}
    {%- elif m.role == 'assistant' -%}
        {%- set reasoning = '' -%}
        {%- if m.reasoning_content is string -%}{%- set reasoning = m.reasoning_content -%}
        {%- elif '</think>' in content -%}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
            {%- set content = content.split('</think>')[-1].lstrip('\n') -%}
        {%- endif -%}
        {%- set reasoning = reasoning | trim -%}
        {{- '<|im_start|>assistant\n' -}}
        {%- if loop.index0 > ns.last_query -%}{{- '<think>\n' + reasoning + '\n</think>\n\n' -}}{%- endif -%}
        {{- content -}}
        {%- for call in m.tool_calls or [] -%}
            {%- if call.function is defined -%}{%- set call = call.function -%}{%- endif -%}
            {{- ('\n\n' if content | trim else '') if loop.first else '\n' -}}
            {{- '<tool_call>\n<function=' + call.name + '>\n' -}}
            {%- for name, value in call.arguments | items -%}
                {{- '<parameter=' + name + '>\n' -}}
                {{- (value | tojson if value is mapping or (value is sequence and value is not string) else value | string) -}}
                {{- '\n</parameter>\n' -}}
            {%- endfor -%}
            {{- '</function>\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\n' -}}
    {%- elif m.role == 'tool' -%}
        {%- if loop.previtem and loop.previtem.role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' -}}
        {%- if loop.last or loop.nextitem.role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
    {%- else -%}{{- raise_exception('Unexpected message role.') -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\n\n</think>\n\n' -}}
    {%- else -%}{{- '<think>\n' -}}{%- endif -%}
{%- endif -%}
)";

RenderedPrompt render_messages(const char* messages, ChatInput input = {}) {
    const auto compiled = Template::compile(kTemplate);
    EXPECT_TRUE(compiled) << compiled.error().message;
    input.messages = Json::parse(messages);
    const auto rendered = render_chat(*compiled, input);
    EXPECT_TRUE(rendered) << rendered.error().message;
    return rendered.value_or(RenderedPrompt{});
}

TEST(Qwen35TemplateTest, RendersOneUserTurn) {
    const RenderedPrompt prompt = render_messages(R"([{"role": "user", "content": "Hi"}])");
    EXPECT_EQ(prompt.text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
    EXPECT_EQ(prompt.initial_state, ParserState::kReasoning);
}

TEST(Qwen35TemplateTest, DropsEarlierReasoningAndClosesTheBlockWithoutThinking) {
    ChatInput input;
    input.variables = {{"enable_thinking", false}};
    const RenderedPrompt prompt = render_messages(
        R"([{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!"},
            {"role": "user", "content": " Bye\n"}])",
        input);
    EXPECT_EQ(prompt.text,
              "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
              "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
              "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    EXPECT_EQ(prompt.initial_state, ParserState::kContent);
}

TEST(Qwen35TemplateTest, RendersToolsCallsAndResults) {
    const std::string tool =
        R"({"type": "function", "function": {"name": "get_weather", "description": "Wetter für Ort <x> & \"y\"", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}})";
    ChatInput input;
    input.tools = Json::array({Json::parse(tool)});
    const std::string text =
        render_messages(
            R"([{"role": "system", "content": "Sys"}, {"role": "user", "content": "Weather in Köln?"},
                {"role": "assistant", "content": "Let me see.", "reasoning_content": "use tool",
                 "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Köln",
                    "days": 2, "opts": {"a": [1, true, null]}, "flag": true}}},
                    {"function": {"name": "get_weather", "arguments": "{}"}}]},
                {"role": "tool", "content": "{\"t\": 20}"}, {"role": "tool", "content": "x"}])",
            input)
            .text;
    EXPECT_NE(text.find("<tools>\n" + tool + "\n</tools>"), std::string::npos);
    EXPECT_EQ(text.substr(text.find("</IMPORTANT>")),
              "</IMPORTANT>\n\nSys<|im_end|>\n<|im_start|>user\nWeather in Köln?<|im_end|>\n"
              "<|im_start|>assistant\n<think>\nuse tool\n</think>\n\nLet me see.\n\n"
              "<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln\n</parameter>\n"
              "<parameter=days>\n2\n</parameter>\n<parameter=opts>\n{\"a\": [1, true, null]}\n"
              "</parameter>\n<parameter=flag>\nTrue\n</parameter>\n</function>\n</tool_call>\n"
              "<tool_call>\n<function=get_weather>\n</function>\n</tool_call><|im_end|>\n"
              "<|im_start|>user\n<tool_response>\n{\"t\": 20}\n</tool_response>\n"
              "<tool_response>\nx\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n");
}

}  // namespace
}  // namespace replica::chat

// Validation of /v1/chat/completions: messages, tools, constraints, reasoning and template fields.
// The plain rows of the field table are in fields_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/limits.h"
#include "proto/openai.h"

namespace proto_test {
namespace {

using namespace proto;  // NOLINT: every name below is of proto
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kUser = R"("messages":[{"role":"user","content":"hi"}])";

/// A request with these members beside one user message.
Result<ChatRequest> with(const std::string& members, const RequestLimits& limits = {}) {
    return parse_chat_request("{" + kUser + (members.empty() ? "" : "," + members) + "}", limits);
}
ChatRequest good(const std::string& members) {
    Result<ChatRequest> request = with(members);
    EXPECT_TRUE(request) << members << ": " << request.error().message;
    return request ? std::move(*request) : ChatRequest{};
}
std::string refusal(const Result<ChatRequest>& request) {
    if (request) return "accepted";
    return std::string(error_info(request.error().code).name) + " " + request.error().param;
}
std::string refusal_of(const std::string& members) {
    return refusal(with(members));
}

ChatRequest messages(const std::string& list) {
    Result<ChatRequest> request = parse_chat_request("{\"messages\":[" + list + "]}");
    EXPECT_TRUE(request) << request.error().message;
    return request ? std::move(*request) : ChatRequest{};
}
std::string messages_refusal(const std::string& list) {
    return refusal(parse_chat_request("{\"messages\":[" + list + "]}"));
}

TEST(ChatRequestTest, DefaultsAreThoseOfTheTable) {
    const ChatRequest request = good("");
    EXPECT_EQ(request.n, 1);
    EXPECT_EQ(request.max_tokens, std::nullopt);
    EXPECT_EQ(request.temperature, std::nullopt);
    EXPECT_EQ(request.tool_choice.mode, ToolChoiceMode::kNone);
    EXPECT_TRUE(request.parallel_tool_calls);
    EXPECT_TRUE(request.skip_special_tokens);
    EXPECT_TRUE(request.add_generation_prompt);
    EXPECT_TRUE(request.include_reasoning);
    EXPECT_FALSE(request.stream);
    EXPECT_THAT(request.warnings, IsEmpty());
}

TEST(ChatRequestTest, NullMeansAbsent) {
    const ChatRequest request = good(
        R"("max_tokens":null,"stop":null,"tools":null,"tool_choice":null,"seed":null,"logprobs":null,)"
        R"("stream_options":null,"response_format":null,"functions":null,"audio":null)");
    EXPECT_EQ(request.max_tokens, std::nullopt);
    EXPECT_FALSE(request.constraint);
}

TEST(ChatRequestTest, UnknownFieldsAreAcceptedAndNamed) {
    const ChatRequest request = good(R"("shiny":1,"new\nfield":{"a":[]},"store":true)");
    EXPECT_THAT(request.unknown_fields, ElementsAre("shiny", "new\nfield"));
    EXPECT_THAT(request.warnings, Contains(HasSubstr("unknown_fields shiny, new\\x0afield")));
    EXPECT_THAT(request.warnings, Contains(HasSubstr("ignored_field store")));
}

TEST(ChatRequestTest, WarningsAreBounded) {
    std::string members = R"("x":0)";
    for (int i = 0; i < 100; ++i)
        members += ",\"unknown" + std::to_string(i) + "\":0";
    for (const char* name : {"metadata", "store", "safety_identifier", "service_tier", "moderation",
                             "verbosity", "prediction", "prompt_cache_retention"}) {
        members += std::string(",\"") + name + "\":0";
    }
    const ChatRequest request = good(members);
    EXPECT_LE(request.warnings.size(), kWarningsMax);
    for (const std::string& warning : request.warnings)
        EXPECT_LE(warning.size(), kWarningBytesMax);
}

TEST(ChatRequestTest, NamesOfTheClientAreMadePrintableInErrors) {
    for (const char* const members :
         {R"("dry_\u001b[31m":1)", R"("structured_outputs":{"\u001b[31m":1})",
          R"("logit_bias":{"\u001b[31m":1})"}) {
        const Result<ChatRequest> request = with(members);
        ASSERT_FALSE(request) << members;
        EXPECT_THAT(request.error().param, HasSubstr("\\x1b[31m"));
        EXPECT_THAT(request.error().message, HasSubstr("\\x1b[31m"));
    }
}

TEST(ChatRequestTest, TheBodyMustBeAnObjectWithMessages) {
    EXPECT_EQ(refusal(parse_chat_request("")), "invalid_json ");
    EXPECT_EQ(refusal(parse_chat_request("[]")), "invalid_type ");
    EXPECT_EQ(refusal(parse_chat_request("{}")), "missing_required_parameter messages");
    EXPECT_EQ(refusal(parse_chat_request(R"({"messages":"x"})")), "invalid_type messages");
    EXPECT_EQ(messages_refusal(""), "invalid_value messages");
}

// --- messages

TEST(ChatMessagesTest, AMessageWithoutContentIsNamedInAWarning) {
    const ChatRequest request =
        messages(R"({"role":"system"},{"role":"user","content":""},{"role":"user","content":null},)"
                 R"({"role":"assistant"},{"role":"tool","content":[]})");
    EXPECT_THAT(request.warnings,
                testing::ElementsAre("empty_content messages[0].content is missing",
                                     "empty_content messages[2].content is missing"));
}

TEST(ChatMessagesTest, DeveloperIsSystemAndMissingContentIsEmpty) {
    const ChatRequest request = messages(
        R"({"role":"developer","content":"rules"},{"role":"assistant","content":null},{"role":"user"})");
    EXPECT_EQ(request.messages[0]["role"], "system");
    EXPECT_EQ(request.messages[1]["content"], "");
    EXPECT_EQ(request.messages[2]["content"], "");
}

TEST(ChatMessagesTest, PartsAreTextAndRefusalsBecomeText) {
    const ChatRequest request = messages(
        R"({"role":"user","content":[{"type":"text","text":"a","cache_control":1},{"type":"refusal","refusal":"b"}]})");
    EXPECT_EQ(request.messages[0]["content"].dump(),
              R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])");
}

TEST(ChatMessagesTest, OtherPartsAreNamedByTheirPath) {
    const std::string ok = R"({"role":"user","content":"x"},)";
    EXPECT_EQ(messages_refusal(ok + ok + ok +
                               R"({"role":"user","content":[{"type":"text","text":"a"},)"
                               R"({"type":"image_url","image_url":{"url":"http://x"}}]})"),
              "unsupported_content messages[3].content[1]");
    EXPECT_EQ(messages_refusal(R"({"role":"user","content":[{"type":"text"}]})"),
              "missing_required_parameter messages[0].content[0].text");
    EXPECT_EQ(messages_refusal(R"({"role":"user","content":["text"]})"),
              "invalid_type messages[0].content[0]");
    EXPECT_EQ(messages_refusal(R"({"role":"user","content":5})"),
              "invalid_type messages[0].content");
    EXPECT_EQ(messages_refusal(R"({"role":"robot","content":""})"),
              "invalid_value messages[0].role");
    EXPECT_EQ(messages_refusal(R"({"content":""})"), "missing_required_parameter messages[0].role");
    EXPECT_EQ(messages_refusal(R"("hi")"), "invalid_type messages[0]");
}

TEST(ChatMessagesTest, ReasoningIsReadUnderBothNamesAndTheFirstWins) {
    const ChatRequest request =
        messages(R"({"role":"assistant","content":"a","reasoning":"r1"},)"
                 R"({"role":"assistant","content":"b","reasoning":"r2","reasoning_content":"c2"})");
    EXPECT_EQ(request.messages[0]["reasoning_content"], "r1");
    EXPECT_EQ(request.messages[1]["reasoning_content"], "c2");
    EXPECT_FALSE(request.messages[0].contains("reasoning"));
    EXPECT_EQ(messages_refusal(R"({"role":"assistant","content":"","reasoning":[]})"),
              "invalid_type messages[0].reasoning");
}

std::string call(const std::string& id, const std::string& arguments) {
    return R"({"id":")" + id + R"(","type":"function","function":{"name":"f","arguments":)" +
           arguments + "}}";
}

TEST(ChatMessagesTest, ArgumentsBecomeAnObjectWithOrderAndNumbersKept) {
    const ChatRequest request = messages(R"({"role":"assistant","content":null,"tool_calls":[)" +
                                         call("1", R"("{\"z\":1,\"a\":1.0,\"m\":[]}")") + "," +
                                         call("2", R"({"b":2})") + "]}");
    const Json& calls = request.messages[0]["tool_calls"];
    EXPECT_EQ(calls[0]["function"]["arguments"].dump(), R"({"z":1,"a":1.0,"m":[]})");
    EXPECT_EQ(calls[1]["function"]["arguments"].dump(), R"({"b":2})");
}

TEST(ChatMessagesTest, ArgumentsThatAreNoObjectAreRefused) {
    for (const char* arguments : {R"("[1]")", R"("nope")", R"("")", R"("{\"a\":1,\"a\":2}")"}) {
        EXPECT_EQ(
            messages_refusal(R"({"role":"assistant","tool_calls":[)" + call("1", arguments) + "]}"),
            "invalid_value messages[0].tool_calls[0].function.arguments")
            << arguments;
    }
    EXPECT_EQ(messages_refusal(R"({"role":"assistant","tool_calls":[)" + call("1", "5") + "]}"),
              "invalid_type messages[0].tool_calls[0].function.arguments");
    EXPECT_EQ(messages_refusal(R"({"role":"assistant","tool_calls":[{"function":{}}]})"),
              "missing_required_parameter messages[0].tool_calls[0].function.name");
}

std::string tool_message(const std::string& id) {
    return R"(,{"role":"tool","tool_call_id":")" + id + R"(","content":")" + id + R"("})";
}

TEST(ChatMessagesTest, ToolMessagesTakeTheOrderOfTheirCalls) {
    const std::string calls = R"({"role":"assistant","tool_calls":[)" + call("a", "{}") + "," +
                              call("b", "{}") + "," + call("c", "{}") + "]}";
    const auto order = [](const ChatRequest& request) {
        std::string text;
        for (const Json& message : request.messages) {
            if (message["role"] == "tool") text += message["content"].get<std::string>();
        }
        return text;
    };
    EXPECT_EQ(order(messages(calls + tool_message("c") + tool_message("a") + tool_message("b"))),
              "abc");
    EXPECT_EQ(order(messages(calls + tool_message("c") + tool_message("x") + tool_message("a"))),
              "cxa");
}

// --- tools

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},)"
    R"({"type":"function","function":{"name":"ns.g:1/x-y_z"}}])";

TEST(ChatToolsTest, ReadsFunctionsAndChoosesAutoByDefault) {
    const ChatRequest request = good(kTools);
    ASSERT_EQ(request.functions.size(), 2U);
    EXPECT_TRUE(request.functions[0].strict);
    EXPECT_TRUE(request.functions[1].parameters.is_null());
    EXPECT_EQ(request.tool_choice.mode, ToolChoiceMode::kAuto);
    EXPECT_EQ(request.tools.size(), 2U);
    EXPECT_EQ(good(R"("tools":[])").tool_choice.mode, ToolChoiceMode::kNone);
}

TEST(ChatToolsTest, ReadsEveryToolChoice) {
    EXPECT_EQ(good(kTools + R"(,"tool_choice":"none")").tool_choice.mode, ToolChoiceMode::kNone);
    EXPECT_EQ(good(kTools + R"(,"tool_choice":"required")").tool_choice.mode,
              ToolChoiceMode::kRequired);
    const ToolChoice named =
        good(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})").tool_choice;
    EXPECT_EQ(named.mode, ToolChoiceMode::kNamed);
    EXPECT_EQ(named.name, "f");
    const ToolChoice allowed =
        good(kTools +
             R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required",)"
             R"("tools":[{"type":"function","function":{"name":"f"}}]}})")
            .tool_choice;
    EXPECT_EQ(allowed.mode, ToolChoiceMode::kRequired);
    EXPECT_THAT(allowed.allowed, ElementsAre("f"));
    EXPECT_EQ(good(R"("tool_choice":"auto")").tool_choice.mode, ToolChoiceMode::kNone);
}

TEST(ChatToolsTest, RefusesBadToolsAndChoices) {
    const auto tool = [](const std::string& function) {
        return R"("tools":[{"type":"function","function":)" + function + "}]";
    };
    EXPECT_EQ(refusal_of(R"("tools":[{"type":"web_search"}])"),
              "unsupported_tool_type tools[0].type");
    EXPECT_EQ(refusal_of(R"("tools":[{"function":{"name":"f"}}])"),
              "missing_required_parameter tools[0].type");
    EXPECT_EQ(refusal_of(R"("tools":[5])"), "invalid_type tools[0]");
    EXPECT_EQ(refusal_of(tool("{}")), "missing_required_parameter tools[0].function.name");
    EXPECT_EQ(refusal_of(tool(R"({"name":"a b"})")), "invalid_value tools[0].function.name");
    EXPECT_EQ(refusal_of(tool(R"({"name":""})")), "invalid_value tools[0].function.name");
    EXPECT_EQ(refusal_of(tool(R"({"name":")" + std::string(65, 'a') + R"("})")),
              "invalid_value tools[0].function.name");
    EXPECT_EQ(refusal_of(tool(R"({"name":"f","parameters":[]})")),
              "invalid_type tools[0].function.parameters");
    EXPECT_EQ(refusal_of(tool(R"({"name":"f","strict":1})")),
              "invalid_type tools[0].function.strict");
    EXPECT_EQ(refusal_of(R"("tools":[{"type":"function","function":{"name":"f"}},)"
                         R"({"type":"function","function":{"name":"f"}}])"),
              "invalid_value tools[1].function.name");
    EXPECT_EQ(refusal_of(R"("tool_choice":"required")"), "invalid_value tool_choice");
    EXPECT_EQ(refusal_of(R"("tool_choice":{"type":"function","function":{"name":"f"}})"),
              "invalid_value tool_choice");
    EXPECT_EQ(refusal_of(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"h"}})"),
              "invalid_value tool_choice.function.name");
    EXPECT_EQ(refusal_of(kTools + R"(,"tool_choice":"f")"), "invalid_value tool_choice");
    EXPECT_EQ(refusal_of(kTools + R"(,"tool_choice":5)"), "invalid_type tool_choice");
    EXPECT_EQ(refusal_of(R"("functions":[{"name":"f"}])"), "unsupported_parameter functions");
    EXPECT_EQ(refusal_of(R"("function_call":"auto")"), "unsupported_parameter function_call");
}

TEST(ChatToolsTest, BoundsNumberAndBytesOfTools) {
    const auto list = [](int count, const std::string& description) {
        std::string text = "\"tools\":[";
        for (int i = 0; i < count; ++i) {
            text += (i > 0 ? "," : "") +
                    std::string(R"({"type":"function","function":{"name":"f)") + std::to_string(i) +
                    R"(","description":")" + description + R"("}})";
        }
        return text + "]";
    };
    EXPECT_EQ(refusal_of(list(128, "")), "accepted");
    EXPECT_EQ(refusal_of(list(129, "")), "invalid_value tools");
    EXPECT_EQ(refusal_of(list(2, std::string(600 * 1024, 'd'))), "invalid_value tools");
}

// --- constraints

TEST(ChatConstraintTest, ReadsEverySpelling) {
    const auto kind = [](const std::string& members) { return good(members).constraint->kind; };
    EXPECT_FALSE(good(R"("response_format":{"type":"text"})").constraint);
    EXPECT_EQ(kind(R"("response_format":{"type":"json_object"})"), ConstraintKind::kJsonObject);
    EXPECT_EQ(kind(R"("response_format":{"type":"regex","pattern":"a+"})"), ConstraintKind::kRegex);
    EXPECT_EQ(kind(R"("response_format":{"type":"grammar","definition":"root ::= \"a\""})"),
              ConstraintKind::kGrammar);
    EXPECT_EQ(kind(R"("response_format":{"type":"choice","choices":["a","b"]})"),
              ConstraintKind::kChoice);
    EXPECT_EQ(kind(R"("structured_outputs":{"json":{"type":"object"}})"),
              ConstraintKind::kJsonSchema);
    EXPECT_EQ(kind(R"("structured_outputs":{"choice":["a"]})"), ConstraintKind::kChoice);
    EXPECT_EQ(kind(R"("structured_outputs":{"json_object":true})"), ConstraintKind::kJsonObject);
    EXPECT_EQ(kind(R"("json_schema":{"type":"object"})"), ConstraintKind::kJsonSchema);
    EXPECT_EQ(kind(R"("regex":"a")"), ConstraintKind::kRegex);
    EXPECT_EQ(kind(R"("grammar":"root ::= \"a\"")"), ConstraintKind::kGrammar);
    const ChatRequest request = good(
        R"("response_format":{"type":"json_schema","json_schema":{"name":"sum","strict":true,"schema":{"type":"object"}}})");
    EXPECT_EQ(request.constraint->schema_name, "sum");
    EXPECT_TRUE(request.constraint->strict);
    EXPECT_EQ(request.constraint->param, "response_format");
}

TEST(ChatConstraintTest, RefusesBadAndConflictingOnes) {
    const std::string format = R"("response_format":)";
    EXPECT_EQ(refusal_of(format + R"({"type":"xml"})"), "unsupported_value response_format.type");
    EXPECT_EQ(refusal_of(format + "{}"), "missing_required_parameter response_format.type");
    EXPECT_EQ(refusal_of(format + R"({"type":"json_schema"})"),
              "missing_required_parameter response_format.json_schema");
    EXPECT_EQ(refusal_of(format + R"({"type":"json_schema","json_schema":{"name":"x"}})"),
              "missing_required_parameter response_format.json_schema.schema");
    EXPECT_EQ(refusal_of(format + R"({"type":"regex"})"),
              "missing_required_parameter response_format.pattern");
    EXPECT_EQ(refusal_of(format + R"({"type":"choice","choices":[]})"),
              "invalid_value response_format.choices");
    EXPECT_EQ(refusal_of(R"("regex":")" + std::string(4097, 'a') + "\""),
              "constraint_too_large regex");
    EXPECT_EQ(refusal_of(R"("json_schema":)" + std::string(65, '[') + std::string(65, ']')),
              "invalid_type json_schema");
    std::string deep = "1";
    for (int i = 0; i < 65; ++i)
        deep = R"({"a":)" + deep + "}";
    EXPECT_EQ(refusal_of(R"("json_schema":)" + deep), "constraint_too_large json_schema");
    EXPECT_EQ(refusal_of(R"("regex":"a","grammar":"b")"), "conflicting_constraints grammar");
    EXPECT_EQ(refusal_of(R"("structured_outputs":{"regex":"a","choice":["b"]})"),
              "conflicting_constraints structured_outputs");
    EXPECT_EQ(refusal_of(R"("structured_outputs":{"structural_tag":"x"})"),
              "unsupported_parameter structured_outputs.structural_tag");
    EXPECT_EQ(refusal_of(R"("regex":"a","ignore_eos":true)"), "conflicting_constraints ignore_eos");
    EXPECT_EQ(refusal_of(R"("regex":"a","min_tokens":1)"), "conflicting_constraints min_tokens");
}

TEST(ChatConstraintTest, ToolsThatMayBeCalledExcludeSomeConstraints) {
    const std::string object = R"(,"response_format":{"type":"json_object"})";
    EXPECT_EQ(refusal_of(kTools + object), "accepted");
    EXPECT_EQ(refusal_of(kTools + R"(,"tool_choice":"required")" + object),
              "conflicting_constraints response_format");
    EXPECT_EQ(refusal_of(kTools + R"(,"regex":"a")"), "conflicting_constraints regex");
    EXPECT_EQ(refusal_of(kTools + R"(,"tool_choice":"none","regex":"a")"), "accepted");
}

// --- the rest

TEST(ChatRequestTest, Case9StreamOptionsWantStream) {
    EXPECT_EQ(refusal_of(R"("stream_options":{"include_usage":true})"),
              "unsupported_parameter stream_options");
    EXPECT_TRUE(
        good(R"("stream":true,"stream_options":{"include_usage":true,"include_obfuscation":true})")
            .include_usage);
    EXPECT_EQ(refusal_of(R"("stream":true,"stream_options":{"include_usage":1})"),
              "invalid_type stream_options.include_usage");
}

TEST(ChatRequestTest, MaxCompletionTokensWinsOverMaxTokens) {
    const ChatRequest request = good(R"("max_tokens":7,"max_completion_tokens":5)");
    EXPECT_EQ(request.max_tokens, 5);
    EXPECT_EQ(request.max_tokens_param, "max_completion_tokens");
    EXPECT_EQ(good(R"("max_tokens":7)").max_tokens, 7);
}

TEST(ChatRequestTest, ReadsReasoningFields) {
    const ChatRequest request = good(
        R"("reasoning_effort":"xhigh","thinking_budget":100,"reasoning_field":"inline","include_reasoning":false)");
    EXPECT_EQ(request.reasoning_effort, ReasoningEffort::kXhigh);
    EXPECT_EQ(request.thinking_token_budget, 100);
    EXPECT_EQ(request.reasoning_field, ReasoningField::kInline);
    EXPECT_FALSE(request.include_reasoning);
    EXPECT_EQ(reasoning_effort_name(ReasoningEffort::kMax), "max");
}

TEST(ChatRequestTest, TemplateArgumentsAreChecked) {
    EXPECT_EQ(good(R"("chat_template_kwargs":{"enable_thinking":false,"x":1})").enable_thinking,
              false);
    EXPECT_EQ(good(R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})")
                  .enable_thinking,
              true);
    EXPECT_EQ(refusal_of(R"("chat_template_kwargs":{"enable_thinking":"no"})"),
              "invalid_type chat_template_kwargs.enable_thinking");
    for (const char* name :
         {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
        EXPECT_EQ(refusal_of(std::string(R"("chat_template_kwargs":{")") + name + R"(":1})"),
                  std::string("unsupported_parameter chat_template_kwargs.") + name);
    }
    EXPECT_EQ(refusal_of(R"("chat_template":"{{ x }}")"), "unsupported_parameter chat_template");
    RequestLimits limits;
    limits.allow_chat_template = true;
    EXPECT_EQ(with(R"("chat_template":"{{ x }}")", limits)->chat_template, "{{ x }}");
}

TEST(ChatRequestTest, ContinuingTheFinalMessage) {
    const std::string body =
        R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true)";
    const Result<ChatRequest> request = parse_chat_request(body + "}");
    ASSERT_TRUE(request);
    EXPECT_FALSE(request->add_generation_prompt);
    EXPECT_EQ(refusal(parse_chat_request(body + R"(,"add_generation_prompt":true})")),
              "unsupported_value continue_final_message");
    EXPECT_EQ(refusal_of(R"("continue_final_message":true)"),
              "invalid_value continue_final_message");
}

}  // namespace
}  // namespace proto_test

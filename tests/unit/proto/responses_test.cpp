// The answers' JSON, byte for byte as in the worked examples of the API document.
#include "proto/responses.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/json_reader.h"

namespace proto_test {
namespace {

using namespace proto;  // NOLINT: every name below is of proto
using testing::HasSubstr;
using testing::Not;

const ResponseHead kHead{"chatcmpl-7", 1900000000, "foal", "q-5f0c11aa"};
const std::string kHeadText =
    R"({"id":"chatcmpl-7","object":"chat.completion.chunk","created":1900000000,"model":"foal",)"
    R"("system_fingerprint":"q-5f0c11aa",)";

TEST(ChatResponseTest, Example1Plain) {
    ChatChoice choice;
    choice.content = "A horse neighs.";
    choice.finish_reason = "stop";
    const Usage usage{17, 6, 0, 0};
    ResponseHead head = kHead;
    head.id = "chatcmpl-6";
    EXPECT_EQ(
        chat_completion_json(head, {choice}, usage, ReasoningField::kReasoningContent),
        R"({"id":"chatcmpl-6","object":"chat.completion","created":1900000000,"model":"foal","system_fingerprint":"q-5f0c11aa","service_tier":"default",)"
        R"("choices":[{"index":0,"message":{"role":"assistant","content":"A horse neighs.","refusal":null},"finish_reason":"stop","stop_reason":null,"logprobs":null}],)"
        R"("usage":{"prompt_tokens":17,"completion_tokens":6,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":0},)"
        R"("completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}})");
}

TEST(ChatResponseTest, Example2Streamed) {
    const ChatChunkWriter writer(kHead, {.include_usage = true});
    EXPECT_EQ(
        writer.role(0),
        kHeadText +
            R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null,"logprobs":null}],"usage":null})");
    EXPECT_EQ(
        writer.content(0, "A horse"),
        kHeadText +
            R"("choices":[{"index":0,"delta":{"content":"A horse"},"finish_reason":null,"logprobs":null}],"usage":null})");
    EXPECT_EQ(
        writer.finish(0, "stop", {}),
        kHeadText +
            R"("choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":null,"logprobs":null}],"usage":null})");
    EXPECT_EQ(
        writer.usage({17, 6, 16, 0}),
        kHeadText +
            R"("choices":[],"usage":{"prompt_tokens":17,"completion_tokens":6,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":16},)"
            R"("completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}})");
}

TEST(ChatResponseTest, Example3ReasoningAndToolCall) {
    const ChatChunkWriter writer(kHead, {});
    EXPECT_EQ(
        writer.reasoning(0, "The tool fits."),
        kHeadText +
            R"("choices":[{"index":0,"delta":{"reasoning_content":"The tool fits."},"finish_reason":null,"logprobs":null}]})");
    EXPECT_EQ(
        writer.tool_open(0, 0, "call_k3", "get_weather"),
        kHeadText +
            R"("choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_k3","type":"function","function":{"name":"get_weather","arguments":""}}]},"finish_reason":null,"logprobs":null}]})");
    EXPECT_EQ(writer.tool_arguments(0, 0, "{\"city\":\"K\xC3\xB6"),
              kHeadText +
                  "\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{"
                  "\"arguments\":\"{\\\"city\\\":\\\"K\xC3\xB6\"}}]},\"finish_reason\":null,"
                  "\"logprobs\":null}]}");
    EXPECT_THAT(writer.finish(0, "tool_calls", {}),
                HasSubstr(R"("delta":{},"finish_reason":"tool_calls","stop_reason":null)"));
}

TEST(ChatResponseTest, Example4ParallelCalls) {
    ChatChoice choice;
    choice.content = "Let me see.";
    choice.reasoning = "Two cities, two calls.";
    choice.tool_calls = {{"call_a1", "get_weather", R"({"city":"Oslo"})"},
                         {"call_b2", "get_weather", R"({"city":"Rome","days":3})"}};
    choice.finish_reason = "tool_calls";
    EXPECT_THAT(
        chat_completion_json(kHead, {choice}, {}, ReasoningField::kReasoningContent),
        HasSubstr(
            R"("message":{"role":"assistant","content":"Let me see.","refusal":null,"reasoning_content":"Two cities, two calls.","tool_calls":[)"
            R"({"id":"call_a1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Oslo\"}"}},)"
            R"({"id":"call_b2","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Rome\",\"days\":3}"}}]})"));
}

TEST(ChatResponseTest, ReasoningGoesWhereTheFieldSays) {
    ChatChoice choice;
    choice.reasoning = "r";
    choice.finish_reason = "stop";
    const auto body = [&](ReasoningField field) {
        return chat_completion_json(kHead, {choice}, {}, field);
    };
    EXPECT_THAT(
        body(ReasoningField::kBoth),
        HasSubstr(R"("content":null,"refusal":null,"reasoning_content":"r","reasoning":"r")"));
    EXPECT_THAT(body(ReasoningField::kReasoning), Not(HasSubstr("reasoning_content")));
    const ChatChunkWriter both(kHead, {.field = ReasoningField::kBoth});
    EXPECT_THAT(both.reasoning(0, "r"),
                HasSubstr(R"("delta":{"reasoning_content":"r","reasoning":"r"})"));
}

TEST(ChatResponseTest, CarriesLogprobsTokenIdsStopReasonAndTimings) {
    ChoiceLogprobs logprobs;
    logprobs.content.push_back({"\xC3", -0.5, {{"a", -1.0}}});
    const std::vector<std::int32_t> ids = {1, 2};
    const ChatChunkWriter writer(kHead, {});
    EXPECT_THAT(
        writer.content(1, "x", {&logprobs, &ids}),
        HasSubstr("{\"index\":1,\"delta\":{\"content\":\"x\"},\"finish_reason\":null,\"logprobs\":{"
                  "\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195],"
                  "\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-1,\"bytes\":[97]}]}]},"
                  "\"token_ids\":[1,2]}"));
    EXPECT_THAT(writer.finish(0, "stop", std::string("\n\n")),
                HasSubstr(R"("stop_reason":"\n\n")"));
    EXPECT_THAT(writer.finish(0, "stop", std::int64_t{42}), HasSubstr(R"("stop_reason":42)"));
    EXPECT_THAT(
        writer.usage({}, Timings{1.5, 2, 3, 4, 5}),
        HasSubstr(
            R"("timings":{"queue_ms":1.5,"prefill_ms":2,"decode_ms":3,"drafted":4,"accepted":5}})"));
}

TEST(ChatResponseTest, EveryTextIsStrictJsonWhateverTheBytes) {
    std::string hostile;
    for (int byte = 0; byte < 256; ++byte)
        hostile += static_cast<char>(byte);
    const ChatChunkWriter writer(kHead, {.include_usage = true});
    TokenLogprob token{hostile, -std::numeric_limits<double>::infinity(), {}};
    ChoiceLogprobs logprobs{{token}, {token}};
    EXPECT_TRUE(read_json(writer.content(0, hostile, {&logprobs, nullptr})));
    EXPECT_TRUE(read_json(writer.tool_open(0, 1, hostile, hostile)));
    ChatChoice choice;
    choice.content = hostile;
    choice.logprobs = logprobs;
    choice.finish_reason = "length";
    EXPECT_TRUE(read_json(
        chat_completion_json(kHead, {choice, choice}, {}, ReasoningField::kBoth, Timings{})));
}

TEST(CompletionResponseTest, HasOneObjectInBothForms) {
    CompletionChoice choice;
    choice.text = "abc";
    choice.finish_reason = "length";
    choice.logprobs = CompletionChoice::Logprobs{{{"abc", -0.25, {{"x", -2.0}}}}, {0}};
    const ResponseHead head{"cmpl-1", 5, "foal", "q-1"};
    const std::string start =
        R"({"id":"cmpl-1","object":"text_completion","created":5,"model":"foal","system_fingerprint":"q-1","choices":[)";
    const std::string text = text_completion_json(head, {choice}, {1, 2, 0, 0});
    EXPECT_THAT(
        text,
        HasSubstr(
            start +
            R"({"text":"abc","index":0,"finish_reason":"length","stop_reason":null,"logprobs":{"tokens":["abc"],"token_logprobs":[-0.25],"top_logprobs":[{"x":-2,"abc":-0.25}],"text_offset":[0]}}],"usage":{"prompt_tokens":1,)"));
    EXPECT_TRUE(read_json(text));
    CompletionChoice part;
    part.text = "a";
    EXPECT_EQ(
        text_completion_chunk(head, 3, part, true),
        start +
            R"({"text":"a","index":3,"finish_reason":null,"stop_reason":null,"logprobs":null}],"usage":null})");
    EXPECT_THAT(text_completion_usage_chunk(head, {1, 2, 0, 0}),
                HasSubstr(start + R"(],"usage":{)"));
}

TEST(CompletionResponseTest, AlternativesThatReadAlikeAreOneKeyTheBestOfThem) {
    CompletionChoice choice;
    choice.logprobs = CompletionChoice::Logprobs{
        {{"\xF0", -0.5, {{"\xF0", -0.5}, {"a", -1.0}, {"\x9F", -1.5}}}, {"b", -2.0, {}}}, {0, 1}};
    const std::string text = text_completion_chunk({}, 0, choice, false);
    EXPECT_THAT(text, HasSubstr("\"top_logprobs\":[{\"\uFFFD\":-0.5,\"a\":-1},{\"b\":-2}]"));
    EXPECT_TRUE(read_json(text));
}

TEST(ModelsTest, ListsModels) {
    ModelInfo model{"foal", 1900000000, 8192, 4096, 19'000'000, 11'000'000, "qwen35"};
    EXPECT_EQ(
        models_json({model}),
        R"({"object":"list","data":[{"id":"foal","object":"model","created":1900000000,"owned_by":"quadriga","max_model_len":8192,)"
        R"("meta":{"n_ctx_train":4096,"n_params":19000000,"size_bytes":11000000,"arch":"qwen35"}}]})");
    EXPECT_EQ(models_json({}), R"({"object":"list","data":[]})");
    EXPECT_EQ(make_id("call_").size(), 29U);
    EXPECT_NE(make_id("call_"), make_id("call_"));
}

}  // namespace
}  // namespace proto_test

// Proves the way from tokens to deltas: characters over several tokens, stop strings in content
// only, reasoning modes, the one call that was wanted, and what a choice reports at its end.
#include "replica/server/choice_text.h"

#include <gmock/gmock.h>

#include "replica/server/mailbox.h"
#include "tests/unit/server/support.h"

namespace replica::server {
namespace {

using testing::script_of;

void accumulate(chat::ParsedMessage& message, const std::vector<ChoiceDelta>& deltas) {
    for (const ChoiceDelta& delta : deltas)
        chat::accumulate(message, {delta.what});
}

struct Told {
    chat::ParsedMessage message;
    ChoiceEnd end;
    std::size_t tokens_taken = 0;
};

/// Feeds tokens as the engine would: until the text says stop, or all are spent.
Told told(ChoiceTextOptions options, const std::vector<TokenId>& tokens,
          FinishReason reason = FinishReason::kStop, std::optional<TokenId> stop_token = {}) {
    static const Tokenizer tokenizer = testing::byte_tokenizer();
    static const std::vector<TokenId> tags = {testing::kThink, testing::kThinkEnd,
                                              testing::kToolCall, testing::kToolCallEnd};
    ChoiceText text(tokenizer, tags, std::move(options));
    Told result;
    for (const TokenId token : tokens) {
        const ChoiceText::Step step = text.feed(token);
        ++result.tokens_taken;
        accumulate(result.message, step.deltas);
        if (!step.must_stop) continue;
        reason = FinishReason::kStop;
        break;
    }
    FinishInfo info;
    info.reason = reason;
    info.stop_token = stop_token;
    info.generated_tokens = static_cast<std::int32_t>(result.tokens_taken);
    accumulate(result.message, text.finish(info, result.end));
    return result;
}

ChoiceTextOptions plain(std::vector<std::string> stop = {}) {
    ChoiceTextOptions options;
    options.stop = std::move(stop);
    return options;
}

ChoiceTextOptions chat_options(chat::ParserState initial, std::vector<std::string> stop = {}) {
    ChoiceTextOptions options = plain(std::move(stop));
    options.parser.emplace();
    options.parser->format = chat::OutputFormat::kQwenXml;
    options.parser->initial = initial;
    options.parser->tools = {
        {{"type", "function"},
         {"function",
          {{"name", "feed"},
           {"parameters",
            {{"type", "object"}, {"properties", {{"what", {{"type", "string"}}}}}}}}}}};
    return options;
}

constexpr std::string_view kCall =
    "<tool_call>\n<function=feed>\n<parameter=what>\nhay\n</parameter>\n</function>\n</tool_call>";

TEST(ChoiceTextTest, ACharacterCutByTheTokenLimitIsOneReplacementCharacter) {
    for (const std::string_view cut : {"a\xF0", "a\xF0\x9F", "a\xF0\x9F\xA6"}) {
        std::vector<TokenId> tokens;
        for (const char c : cut)
            tokens.push_back(static_cast<unsigned char>(c));
        const Told result = told(plain(), tokens, FinishReason::kLength);
        EXPECT_EQ(result.message.content, "a\uFFFD");
        EXPECT_EQ(result.end.finish_reason, "length");
        EXPECT_EQ(result.end.completion_tokens, static_cast<std::int64_t>(cut.size()));
    }
}

TEST(ChoiceTextTest, AStopStringOverSeveralTokensIsCutExactly) {
    const Told result = told(plain({"lop"}), script_of("gallop on"));
    EXPECT_EQ(result.message.content, "gal");
    EXPECT_EQ(result.tokens_taken, 6U) << "the engine is told at once";
    EXPECT_EQ(result.end.finish_reason, "stop");
    EXPECT_EQ(result.end.stop_reason, proto::StopReason("lop"));
}

TEST(ChoiceTextTest, AStopStringAtTheVeryBeginningLeavesNothing) {
    EXPECT_EQ(told(plain({"ga"}), script_of("gallop")).message.content, "");
}

TEST(ChoiceTextTest, ABeginningOfAStopStringIsReleasedAtTheEnd) {
    const Told result = told(plain({"lopsided"}), script_of("gallop"));
    EXPECT_EQ(result.message.content, "gallop");
    EXPECT_EQ(result.end.stop_reason, proto::StopReason());
}

TEST(ChoiceTextTest, TheStopStringStaysWhenItIsWanted) {
    ChoiceTextOptions options = plain({"lop"});
    options.include_stop_string = true;
    EXPECT_EQ(told(std::move(options), script_of("gallop on")).message.content, "gallop");
}

TEST(ChoiceTextTest, StopStringsAreNotMatchedInReasoning) {
    const Told result = told(chat_options(chat::ParserState::kReasoning, {"hay"}),
                             script_of("hay is food</think>\n\nEat hay now"));
    EXPECT_EQ(result.message.reasoning, "hay is food");
    EXPECT_EQ(result.message.content, "Eat ");
    EXPECT_EQ(result.end.stop_reason, proto::StopReason("hay"));
}

TEST(ChoiceTextTest, ReasoningTokensAreCountedWithTheClosingTag) {
    const Told result =
        told(chat_options(chat::ParserState::kReasoning), script_of("abc</think>\n\nhi"));
    EXPECT_EQ(result.end.reasoning_tokens, 4);
    EXPECT_EQ(told(chat_options(chat::ParserState::kStart), script_of("abc")).end.reasoning_tokens,
              0);
}

TEST(ChoiceTextTest, HiddenReasoningIsCountedAndNotShown) {
    ChoiceTextOptions options = chat_options(chat::ParserState::kReasoning);
    options.reasoning = ReasoningMode::kHidden;
    const Told result = told(std::move(options), script_of("abc</think>\n\nhi"));
    EXPECT_EQ(result.message.reasoning, "");
    EXPECT_EQ(result.message.content, "hi");
    EXPECT_EQ(result.end.reasoning_tokens, 4);
}

TEST(ChoiceTextTest, InlineReasoningStandsInTheContentBetweenItsTags) {
    ChoiceTextOptions options = chat_options(chat::ParserState::kReasoning);
    options.reasoning = ReasoningMode::kInline;
    const Told result = told(std::move(options), script_of("abc</think>\n\nhi"));
    EXPECT_EQ(result.message.content, "<think>\nabc\n</think>\n\nhi");
    EXPECT_EQ(result.message.reasoning, "");
}

TEST(ChoiceTextTest, ACallFinishesWithToolCalls) {
    const Told result = told(chat_options(chat::ParserState::kContent), script_of(kCall));
    ASSERT_EQ(result.message.tool_calls.size(), 1U);
    EXPECT_EQ(result.message.tool_calls[0].name, "feed");
    EXPECT_EQ(result.message.tool_calls[0].arguments, R"({"what":"hay"})");
    EXPECT_EQ(result.end.finish_reason, "tool_calls");
}

TEST(ChoiceTextTest, ACallCutByTheTokenLimitFinishesWithLength) {
    const auto tokens = script_of(kCall.substr(0, kCall.size() - 40));
    EXPECT_EQ(told(chat_options(chat::ParserState::kContent), tokens, FinishReason::kLength)
                  .end.finish_reason,
              "length");
}

TEST(ChoiceTextTest, WithoutParallelCallsTheFirstOneEndsTheGeneration) {
    ChoiceTextOptions options = chat_options(chat::ParserState::kContent);
    options.ends_after_first_call = true;
    const auto tokens = script_of(std::string(kCall) + "\n" + std::string(kCall));
    const Told result = told(std::move(options), tokens);
    EXPECT_EQ(result.message.tool_calls.size(), 1U);
    EXPECT_EQ(result.message.tool_calls[0].arguments, R"({"what":"hay"})");
    EXPECT_LT(result.tokens_taken, tokens.size() / 2 + 2);
    EXPECT_EQ(result.end.finish_reason, "tool_calls");
}

TEST(ChoiceTextTest, TheRequestsOwnStopIdIsNamedAndTheEndTokenIsNot) {
    ChoiceTextOptions options = plain();
    options.stop_token_ids = {'x'};
    const Told by_id = told(options, script_of("ab"), FinishReason::kStop, 'x');
    EXPECT_EQ(by_id.end.stop_reason, proto::StopReason(std::int64_t{'x'}));
    const Told by_end = told(options, script_of("ab"), FinishReason::kStop, testing::kImEnd);
    EXPECT_EQ(by_end.end.stop_reason, proto::StopReason());
}

TEST(ChoiceTextTest, ControlTokensAreHiddenUnlessAskedFor) {
    ChoiceTextOptions shown = plain();
    shown.skip_special_tokens = false;
    const std::vector<TokenId> tokens = {'a', testing::kImStart, 'b'};
    EXPECT_EQ(told(plain(), tokens).message.content, "ab");
    EXPECT_EQ(told(std::move(shown), tokens).message.content, "a<|im_start|>b");
}

TEST(JsonObjectEndTest, BracesInStringsEndNothing) {
    JsonObjectEnd end;
    EXPECT_FALSE(end.feed(R"({"a":"}\"}",)"));
    EXPECT_FALSE(end.feed(R"("b":{"c":1})"));
    EXPECT_TRUE(end.feed("}"));
    EXPECT_TRUE(end.feed(" more"));
}

}  // namespace
}  // namespace replica::server

// Proves which tokens get an entry of log-probabilities, and on which delta: those with a byte in
// the returned text, once, whatever stop strings, characters over several tokens, reasoning and
// calls do to it.
#include <gmock/gmock.h>

#include "replica/server/choice_text.h"
#include "replica/server/mailbox.h"
#include "tests/unit/server/support.h"

namespace replica::server {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using testing::script_of;

struct Told {
    std::string content, reasoning;
    std::vector<TokenId> content_tokens, reasoning_tokens;
    std::vector<std::int64_t> offsets;  // of content tokens
    std::vector<ChoiceDelta> deltas;    // as they came
};

void add(Told& told, std::vector<ChoiceDelta> deltas) {
    for (ChoiceDelta& delta : deltas) {
        const auto* reasoning = std::get_if<chat::ReasoningDelta>(&delta.what);
        const auto* content = std::get_if<chat::ContentDelta>(&delta.what);
        if (reasoning != nullptr) told.reasoning += reasoning->text;
        if (content != nullptr) told.content += content->text;
        if (reasoning == nullptr && content == nullptr) {
            EXPECT_THAT(delta.tokens, IsEmpty());
        }
        for (const TokenEntry& entry : delta.tokens) {
            (reasoning != nullptr ? told.reasoning_tokens : told.content_tokens)
                .push_back(entry.token);
            if (reasoning == nullptr) told.offsets.push_back(entry.text_offset);
            EXPECT_FLOAT_EQ(entry.logprobs.drawn, -static_cast<float>(entry.token));
        }
        told.deltas.push_back(std::move(delta));
    }
}

Told told(ChoiceTextOptions options, const Tokenizer& tokenizer, const std::vector<TokenId>& tokens,
          FinishReason reason = FinishReason::kStop) {
    static const std::vector<TokenId> tags = {testing::kThink, testing::kThinkEnd,
                                              testing::kToolCall, testing::kToolCallEnd};
    options.wants_logprobs = true;
    ChoiceText text(tokenizer, tags, std::move(options));
    Told result;
    for (const TokenId token : tokens) {
        kernels::RowLogprobs logprobs;
        logprobs.drawn = -static_cast<float>(token);
        ChoiceText::Step step = text.feed(token, &logprobs);
        add(result, std::move(step.deltas));
        if (!step.must_stop) continue;
        reason = FinishReason::kStop;
        break;
    }
    FinishInfo info;
    info.reason = reason;
    ChoiceEnd end;
    add(result, text.finish(info, end));
    return result;
}

Told told(ChoiceTextOptions options, const std::vector<TokenId>& tokens,
          FinishReason reason = FinishReason::kStop) {
    static const Tokenizer tokenizer = testing::byte_tokenizer();
    return told(std::move(options), tokenizer, tokens, reason);
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
    options.parser->tools = chat::Json::array(
        {{{"type", "function"},
          {"function",
           {{"name", "feed"},
            {"parameters",
             {{"type", "object"}, {"properties", {{"what", {{"type", "string"}}}}}}}}}}});
    return options;
}

std::vector<TokenId> bytes_of(std::string_view text) {
    std::vector<TokenId> ids;
    for (const char c : text)
        ids.push_back(static_cast<unsigned char>(c));
    return ids;
}

TEST(LogprobsTest, EveryTokenOfPlainTextHasOneEntryWithItsOffset) {
    const Told result = told(plain(), script_of("mare"));
    EXPECT_THAT(result.content_tokens, ElementsAre('m', 'a', 'r', 'e'));
    EXPECT_THAT(result.offsets, ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(result.deltas.size(), 4U) << "each on the delta that shows it";
}

TEST(LogprobsTest, EntriesEndWhereTheStopStringCut) {
    const Told result = told(plain({"lop"}), script_of("gallop on"));
    EXPECT_EQ(result.content, "gal");
    EXPECT_THAT(result.content_tokens, ElementsAre('g', 'a', 'l'));
    ChoiceTextOptions with_stop = plain({"lop"});
    with_stop.include_stop_string = true;
    EXPECT_THAT(told(std::move(with_stop), script_of("gallop on")).content_tokens,
                ElementsAre('g', 'a', 'l', 'l', 'o', 'p'));
}

TEST(LogprobsTest, ATokenThatTheStopStringCutsThroughStillHasAByteInTheText) {
    const Tokenizer tokenizer =
        replica::testing::tokenizer_of(replica::testing::bpe_data({{"l", "l"}, {"ll", "o"}}, {}));
    const TokenId llo = *tokenizer.find("llo");
    const Told result = told(plain({"lop"}), tokenizer, {'g', 'a', llo, 'p', 's'});
    EXPECT_EQ(result.content, "gal");
    EXPECT_THAT(result.content_tokens, ElementsAre('g', 'a', llo));
}

TEST(LogprobsTest, ABeginningOfAStopStringKeepsItsEntriesUntilItIsReleased) {
    const Told result = told(plain({"lopsided"}), script_of("gallop"));
    EXPECT_THAT(result.content_tokens, ElementsAre('g', 'a', 'l', 'l', 'o', 'p'));
    ASSERT_FALSE(result.deltas.empty());
    EXPECT_EQ(result.deltas.back().tokens.size(), 3U) << "lop comes at the end";
}

TEST(LogprobsTest, ACharacterOfSeveralTokensBringsAllOfThemAtOnce) {
    const std::string horse = "\xF0\x9F\x90\xB4";
    const Told result = told(plain(), bytes_of("a" + horse + "b"));
    EXPECT_THAT(result.content_tokens, ElementsAreArray(bytes_of("a" + horse + "b")));
    EXPECT_THAT(result.offsets, ElementsAre(0, 1, 1, 1, 1, 2)) << "in characters";
    EXPECT_EQ(result.deltas.size(), 3U);
    EXPECT_EQ(result.deltas.at(1).tokens.size(), 4U);
}

TEST(LogprobsTest, ACharacterCutByTheTokenLimitHasItsTokensBehindTheReplacement) {
    const Told result = told(plain(), bytes_of("a\xF0\x9F"), FinishReason::kLength);
    EXPECT_EQ(result.content, "a\uFFFD");
    EXPECT_THAT(result.content_tokens, ElementsAre('a', 0xF0, 0x9F));
}

TEST(LogprobsTest, BrokenBytesBelongToTheReplacementTheyBecame) {
    // E2 82 is broken off by 'x'; FF is nothing; C3 begins anew after F0.
    const Told result = told(plain({"x"}), bytes_of("\xE2\x82x"));
    EXPECT_EQ(result.content, "\uFFFD");
    EXPECT_THAT(result.content_tokens, ElementsAre(0xE2, 0x82)) << "x was cut";
    const Told more = told(plain(), bytes_of("\xFF\xF0\xC3\xA4z"));
    EXPECT_EQ(more.content, "\uFFFD\uFFFD\xC3\xA4z");
    EXPECT_THAT(more.content_tokens, ElementsAre(0xFF, 0xF0, 0xC3, 0xA4, 'z'));
    EXPECT_THAT(more.offsets, ElementsAre(0, 1, 2, 2, 3));
}

TEST(LogprobsTest, ReasoningHasItsOwnListAndTagsHaveNone) {
    const Told result =
        told(chat_options(chat::ParserState::kReasoning), script_of("\nab\n</think>\n\nhi"));
    EXPECT_EQ(result.reasoning, "ab");
    EXPECT_THAT(result.reasoning_tokens, ElementsAre('a', 'b'));
    EXPECT_THAT(result.content_tokens, ElementsAre('h', 'i'));
}

TEST(LogprobsTest, RepeatedTextIsToldApartByWhereItCameFrom) {
    // The same letters are reasoning, dropped white space and content: only positions tell.
    const Told result =
        told(chat_options(chat::ParserState::kReasoning), script_of("\n\na\n\n</think>\n\n\na\n"));
    EXPECT_THAT(result.reasoning_tokens, ElementsAre('a'));
    EXPECT_EQ(result.content, "a\n");
    EXPECT_THAT(result.content_tokens, ElementsAre('a', '\n'));
}

TEST(LogprobsTest, HiddenReasoningHasNoEntriesAndInlineReasoningIsContent) {
    ChoiceTextOptions hidden = chat_options(chat::ParserState::kReasoning);
    hidden.reasoning = ReasoningMode::kHidden;
    const Told without = told(std::move(hidden), script_of("ab</think>\n\nhi"));
    EXPECT_THAT(without.reasoning_tokens, IsEmpty());
    EXPECT_THAT(without.content_tokens, ElementsAre('h', 'i'));
    ChoiceTextOptions inlined = chat_options(chat::ParserState::kReasoning);
    inlined.reasoning = ReasoningMode::kInline;
    const Told result = told(std::move(inlined), script_of("ab</think>\n\nhi"));
    EXPECT_EQ(result.content, "<think>\nab\n</think>\n\nhi");
    EXPECT_THAT(result.content_tokens, ElementsAre('a', 'b', 'h', 'i'));
}

TEST(LogprobsTest, CallsHaveNoEntriesAndTheTextAroundThemHas) {
    const Told result =
        told(chat_options(chat::ParserState::kContent),
             script_of("Now.\n<tool_call>\n<function=feed>\n<parameter=what>\nhay\n</parameter>\n"
                       "</function>\n</tool_call>"));
    EXPECT_EQ(result.content, "Now.");
    EXPECT_THAT(result.content_tokens, ElementsAre('N', 'o', 'w', '.'));
}

TEST(LogprobsTest, TextThatOnlyLooksLikeACallKeepsItsTokens) {
    const std::string text = "a <tool_caller> b";
    const Told result = told(chat_options(chat::ParserState::kContent), bytes_of(text));
    EXPECT_EQ(result.content, text);
    EXPECT_THAT(result.content_tokens, ElementsAreArray(bytes_of(text)));
}

TEST(LogprobsTest, StrayTextInsideACallIsContentWithItsTokens) {
    const Told result =
        told(chat_options(chat::ParserState::kContent),
             script_of("<tool_call>\n<function=feed>\nso so\n<parameter=what>\nhay\n</parameter>\n"
                       "</function>\n</tool_call>"));
    EXPECT_EQ(result.content, "so so");
    EXPECT_THAT(result.content_tokens, ElementsAre('s', 'o', ' ', 's', 'o'));
}

TEST(LogprobsTest, MergedDeltasKeepTheOrderOfTheirEntriesAndCountAgainstTheBound) {
    Mailbox mailbox([] {});
    const auto push = [&](char c) {
        ChoiceUpdate update{.choice = 0};
        TokenEntry entry;
        entry.token = c;
        update.deltas.push_back({chat::ContentDelta{std::string(1, c)}, {entry}});
        return mailbox.push(std::move(update));
    };
    EXPECT_TRUE(push('a'));
    EXPECT_TRUE(push('b'));
    const auto updates = mailbox.take();
    ASSERT_EQ(updates.at(0).deltas.size(), 1U);
    EXPECT_EQ(updates[0].deltas[0].tokens.at(1).token, 'b');
    std::size_t pushed = 0;
    while (push('x'))
        ++pushed;
    EXPECT_LT(pushed, kOutputBytesMax / sizeof(TokenEntry) + 1);
}

}  // namespace
}  // namespace replica::server

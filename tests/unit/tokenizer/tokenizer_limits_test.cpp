// Proves that a hostile tokenizer section is refused with the key it is about, never crashes, and
// that the cost of encoding stays near-linear for texts made to be slow.
#include <chrono>
#include <stdexcept>

#include <gmock/gmock.h>

#include "tests/unit/tokenizer/support.h"

namespace replica {
namespace {

using testing::bpe_data;
using testing::tokenizer_of;

std::string refused_key(TokenizerData data) {
    const auto made = Tokenizer::from_data(std::move(data));
    return made ? "accepted" : made.error().key;
}

TEST(TokenizerLimitsTest, ArraysOfDifferentLengthAreRefused) {
    TokenizerData types = bpe_data({});
    types.types.pop_back();
    EXPECT_EQ(refused_key(types), "tokenizer.ggml.token_type");
    TokenizerData scores = bpe_data({});
    scores.scores = {1.0F};
    EXPECT_EQ(refused_key(scores), "tokenizer.ggml.scores");
}

TEST(TokenizerLimitsTest, AnEmptyVocabularyIsRefused) {
    TokenizerData data;
    data.model = "gpt2";
    EXPECT_EQ(refused_key(data), "tokenizer.ggml.tokens");
}

TEST(TokenizerLimitsTest, MergesThatAreNotTwoPartsAreRefused) {
    for (const char* merge : {"", " ", "ab", "a ", " a", "abc "}) {
        TokenizerData data = bpe_data({});
        data.merges = {merge};
        EXPECT_EQ(refused_key(data), "tokenizer.ggml.merges") << '"' << merge << '"';
    }
}

TEST(TokenizerLimitsTest, AMergeIsSplitAtTheFirstSpaceFromByteOneOn) {
    TokenizerData data = bpe_data({});
    data.merges = {"  a"};  // a space, and "a"
    EXPECT_EQ(refused_key(data), "accepted");
}

TEST(TokenizerLimitsTest, TokenTypesOutsideTheFormatAreRefused) {
    for (const std::int32_t type : {-1, 7, INT32_MAX, INT32_MIN}) {
        TokenizerData data = bpe_data({});
        data.types[5] = type;
        EXPECT_EQ(refused_key(data), "tokenizer.ggml.token_type") << type;
    }
}

TEST(TokenizerLimitsTest, ByteTokensAreSpelledExactly) {
    for (const char* text : {"<0x-1>", "<0x1>", "<0x001>", "<0xG0>", "0x00", ""}) {
        TokenizerData data = bpe_data({}, {{text, TokenType::kByte}});
        EXPECT_EQ(refused_key(data), "tokenizer.ggml.tokens") << text;
    }
}

TEST(TokenizerLimitsTest, IdsOutsideTheVocabularyAreIgnoredWithAWarning) {
    TokenizerData data = bpe_data({});
    data.bos_id = 256;
    data.eos_id = UINT64_MAX;
    const Tokenizer tokenizer = tokenizer_of(std::move(data));
    EXPECT_EQ(tokenizer.bos(), std::nullopt);
    EXPECT_EQ(tokenizer.eos(), std::nullopt);
    EXPECT_TRUE(tokenizer.end_tokens().empty());
    EXPECT_EQ(tokenizer.warnings().size(), 2U);
}

TEST(TokenizerLimitsTest, PlainTextNeverBecomesAControlTokenWhateverTheMergesSay) {
    TokenizerData data = bpe_data({{"a", "b"}, {"ab", "c"}});
    data.types['x'] = static_cast<std::int32_t>(TokenType::kControl);  // a letter, too
    data.types[257] = static_cast<std::int32_t>(TokenType::kControl);  // "abc"
    data.unknown_id = 257;
    ASSERT_EQ(data.tokens[257], "abc");
    const Tokenizer tokenizer = tokenizer_of(std::move(data));
    const std::string text = "abcx";
    const std::vector<ByteSpan> all = {{0, text.size()}};
    for (const auto& ids :
         {tokenizer.encode(text, all, {}), tokenizer.encode(text, {.parse_special = false})}) {
        for (const TokenId id : ids)
            EXPECT_NE(tokenizer.type(id), TokenType::kControl) << id;
    }
    EXPECT_EQ(tokenizer.encode("abc", {}), std::vector<TokenId>{257}) << "spelled by the template";
}

TEST(TokenizerLimitsTest, AMessageQuotesTheFileWithoutItsControlCharacters) {
    TokenizerData data = bpe_data({});
    data.pre = std::string("\x1b[31m") + std::string(1000, 'x');
    const auto made = Tokenizer::from_data(data);
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, ::testing::HasSubstr("'?[31m"));
    EXPECT_LT(made.error().message.size(), 256U);
}

TEST(TokenizerLimitsTest, DuplicateTextsKeepTheFirstIdAndWarn) {
    TokenizerData data = bpe_data({}, {{"ab", TokenType::kNormal}, {"ab", TokenType::kNormal}});
    const Tokenizer tokenizer = tokenizer_of(std::move(data));
    EXPECT_EQ(tokenizer.find("ab"), 256);
    EXPECT_EQ(tokenizer.warnings().size(), 1U);
}

TEST(TokenizerLimitsTest, UnknownModelsAndPreTokenisersAreRefusedByName) {
    TokenizerData model = bpe_data({});
    model.model = "bert";
    const auto refused = Tokenizer::from_data(model);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("'bert'"));
    TokenizerData pre = bpe_data({});
    pre.pre = "tomorrow";
    EXPECT_EQ(refused_key(pre), "tokenizer.ggml.pre");
    EXPECT_TRUE(Tokenizer::from_data(pre, {.pre_override = "gpt-2"}));
}

TEST(TokenizerLimitsTest, SpmScoresMustBeNumbers) {
    TokenizerData data = bpe_data({});
    data.model = "llama";
    EXPECT_EQ(refused_key(data), "tokenizer.ggml.scores");
    data.scores.assign(data.tokens.size(), 0.0F);
    data.scores[7] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(refused_key(data), "tokenizer.ggml.scores");
}

/// A quadratic encoder needs minutes for these; the bound leaves room for sanitizers and one core.
constexpr std::chrono::seconds kOneMebibyteMax{30};

std::chrono::duration<double> time_to_encode(const Tokenizer& tokenizer, const std::string& text) {
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = true});
    const auto end = std::chrono::steady_clock::now();
    EXPECT_EQ(tokenizer.decode(ids, {.render_special = true}), text);
    return end - begin;
}

TEST(TokenizerLimitsTest, AMebibyteOfOneLetterSpacesBlankLinesOrTagsIsFast) {
    constexpr std::size_t kBytes = 1U << 20U;
    const std::string space = testing::alphabet_character(' ');
    const std::string line = testing::alphabet_character('\n');
    std::vector<std::pair<std::string, std::string>> merges;
    for (const std::string& unit : {std::string("a"), space, line}) {
        std::string run = unit;
        for (int doubling = 0; doubling < 6; ++doubling) {
            merges.emplace_back(run, run);
            run += run;
        }
    }
    const Tokenizer tokenizer =
        tokenizer_of(bpe_data(merges, {{"<think>", TokenType::kUserDefined},
                                       {"<|end|>", TokenType::kControl},
                                       {"<<<<<<<<<<<<<<<<<<<<<<<<", TokenType::kControl}}));
    std::string tags;
    while (tags.size() < kBytes)
        tags += "<think>";
    for (const std::string& text :
         {std::string(kBytes, 'a'), std::string(kBytes, ' '), std::string(kBytes, '\n'),
          std::string(kBytes, '<'), std::string(kBytes, '\''), tags}) {
        EXPECT_LT(time_to_encode(tokenizer, text), kOneMebibyteMax) << text.substr(0, 8);
    }
}

}  // namespace
}  // namespace replica

// Proves byte-level BPE, SPM and special tokens on small vocabularies one can check by hand: order
// of merges, what happens to broken UTF-8, and that text of a request never becomes a control
// token.
#include "replica/tokenizer/tokenizer.h"

#include <stdexcept>

#include <gmock/gmock.h>

#include "tests/unit/tokenizer/support.h"

namespace replica {
namespace {

using testing::bpe_data;
using ::testing::ElementsAre;
using testing::tokenizer_of;

constexpr EncodeOptions kParse{.add_special = false, .parse_special = true};
constexpr EncodeOptions kText{.add_special = false, .parse_special = false};
constexpr Tokenizer::DecodeOptions kHidden{.render_special = false};
constexpr Tokenizer::DecodeOptions kShown{.render_special = true};

/// 256 "ab", 257 "bc", 258 "<|end|>", 259 "<think>", 260 "<|end|>x" (longer), 261 a hole.
Tokenizer small_bpe() {
    return tokenizer_of(bpe_data({{"a", "b"}, {"b", "c"}}, {{"<|end|>", TokenType::kControl},
                                                            {"<think>", TokenType::kUserDefined},
                                                            {"<|end|>x", TokenType::kControl},
                                                            {"[PAD261]", TokenType::kUnused}}));
}

TEST(TokenizerTest, MergesTheLowestRankFirstAndTheLeftmostOnTies) {
    EXPECT_THAT(small_bpe().encode("abc", kText), ElementsAre(256, 'c'));
    EXPECT_THAT(small_bpe().encode("bcab", kText), ElementsAre(257, 256));
    const Tokenizer doubles = tokenizer_of(bpe_data({{"a", "a"}}));
    EXPECT_THAT(doubles.encode("aaa", kText), ElementsAre(256, 'a'));
}

TEST(TokenizerTest, APairListedTwiceKeepsItsFirstRank) {
    TokenizerData data = bpe_data({{"a", "b"}, {"b", "c"}});
    data.merges.push_back("a b");
    EXPECT_THAT(tokenizer_of(std::move(data)).encode("abc", kText), ElementsAre(256, 'c'));
}

TEST(TokenizerTest, AMergeResultThatIsNoTokenFallsBackToItsCharacters) {
    TokenizerData data = bpe_data({});
    data.merges = {"a b", "ab c"};  // neither "ab" nor "abc" is a token
    EXPECT_THAT(tokenizer_of(std::move(data)).encode("abc", kText), ElementsAre('a', 'b', 'c'));
}

TEST(TokenizerTest, EveryByteRoundTripsThroughTheByteAlphabet) {
    const Tokenizer tokenizer = small_bpe();
    for (TokenId byte = 0; byte < 256; ++byte) {
        EXPECT_EQ(tokenizer.piece(byte, kHidden), std::string(1, static_cast<char>(byte)));
    }
}

TEST(TokenizerTest, SpecialTokensAreCutOutLongestFirst) {
    const Tokenizer tokenizer = small_bpe();
    EXPECT_THAT(tokenizer.encode("ab<|end|>x<|end|>ab", kParse), ElementsAre(256, 260, 258, 256));
    EXPECT_THAT(tokenizer.encode("a<|end|>b", kParse), ElementsAre('a', 258, 'b'))
        << "no merge crosses a special token";
}

TEST(TokenizerTest, WithoutParseSpecialOnlyUserDefinedTagsAreTokens) {
    const std::vector<TokenId> ids = small_bpe().encode("<|end|><think>", kText);
    EXPECT_THAT(ids, ElementsAre('<', '|', 'e', 'n', 'd', '|', '>', 259));
}

TEST(TokenizerTest, RequestTextNeverBecomesAControlToken) {
    const Tokenizer tokenizer = small_bpe();
    const std::string text = "<|end|>ab<|end|><think><|end|>";  // 7 + 2 + 7 + 7 + 7 bytes
    const ByteSpan middle[] = {{7, 23}};
    EXPECT_THAT(tokenizer.encode(text, middle, kParse),
                ElementsAre(258, 256, '<', '|', 'e', 'n', 'd', '|', '>', 259, 258));
}

TEST(TokenizerTest, AControlTokenThatStraddlesTheEdgeOfRequestTextIsText) {
    const Tokenizer tokenizer = small_bpe();
    const ByteSpan last_byte[] = {{6, 7}};
    EXPECT_THAT(tokenizer.encode("<|end|>", last_byte, kParse),
                ElementsAre('<', '|', 'e', 'n', 'd', '|', '>'));
    const ByteSpan before_and_behind[] = {{0, 1}, {8, 9}};
    EXPECT_THAT(tokenizer.encode("a<|end|>b", before_and_behind, kParse),
                ElementsAre('a', 258, 'b'));
    const ByteSpan shorter_still_fits[] = {{7, 8}};
    EXPECT_THAT(tokenizer.encode("<|end|>x", shorter_still_fits, kParse), ElementsAre(258, 'x'));
}

TEST(TokenizerTest, EmptySpansForbidNothing) {
    const ByteSpan empty[] = {{3, 3}};
    EXPECT_THAT(small_bpe().encode("<|end|>", empty, kParse), ElementsAre(258));
}

TEST(TokenizerTest, EveryBadByteBecomesOneReplacementCharacter) {
    const Tokenizer tokenizer = small_bpe();
    const auto replaced = [&](std::size_t count, std::string_view tail) {
        std::string text;
        for (std::size_t i = 0; i < count; ++i)
            text += "\uFFFD";
        return tokenizer.encode(text.append(tail), kParse);
    };
    EXPECT_EQ(tokenizer.encode("\xFF"
                               "ab",
                               kParse),
              replaced(1, "ab"));
    EXPECT_EQ(tokenizer.encode("\xE2\x82", kParse), replaced(2, ""));          // cut short
    EXPECT_EQ(tokenizer.encode("\xC0\x80", kParse), replaced(2, ""));          // overlong
    EXPECT_EQ(tokenizer.encode("\xED\xA0\x80z", kParse), replaced(3, "z"));    // surrogate
    EXPECT_EQ(tokenizer.encode("\xF4\x90\x80\x80", kParse), replaced(4, ""));  // above U+10FFFF
    EXPECT_THAT(tokenizer.encode("\xFF<|end|>\xFF", kParse), ::testing::Contains(258));
}

TEST(TokenizerTest, DecodeHidesControlTokensUnlessAsked) {
    const Tokenizer tokenizer = small_bpe();
    const std::vector<TokenId> ids = {256, 258, 259, 261};
    EXPECT_EQ(tokenizer.decode(ids, kHidden), "ab<think>");
    EXPECT_EQ(tokenizer.decode(ids, kShown), "ab<|end|><think>");
}

TEST(TokenizerTest, DecodeRepairsBytesThatAreNoCharacters) {
    const std::vector<TokenId> ids = {'a', 0xE2, 0x82, 'b', 0xFF, 0xF0, 0x9F};
    EXPECT_EQ(small_bpe().decode(ids, kHidden), "a\uFFFDb\uFFFD\uFFFD");
}

TEST(TokenizerTest, LooksIdsUpByTextAndKnowsTheUnusedTail) {
    const Tokenizer tokenizer = small_bpe();
    EXPECT_EQ(tokenizer.find("<|end|>"), 258);
    EXPECT_EQ(tokenizer.find("<|nothing|>"), std::nullopt);
    EXPECT_EQ(tokenizer.vocabulary_size(), 262);
    EXPECT_EQ(tokenizer.vocabulary_used(), 261);
    EXPECT_EQ(tokenizer.type(259), TokenType::kUserDefined);
}

TEST(TokenizerTest, EndTokensAreTheFilesAndTheChatTurnEnds) {
    TokenizerData data = bpe_data({}, {{"<|im_end|>", TokenType::kControl},
                                       {"<|endoftext|>", TokenType::kControl},
                                       {"<eot>", TokenType::kControl}});
    data.eos_id = 256;
    data.eot_id = 258;
    EXPECT_THAT(tokenizer_of(std::move(data)).end_tokens(), ElementsAre(256, 257, 258));
}

TEST(TokenizerTest, AddsBosOnlyWhereTheModelWantsIt) {
    TokenizerData plain = bpe_data({}, {{"<s>", TokenType::kControl}});
    plain.bos_id = 256;
    TokenizerData llama = plain;
    llama.pre = "llama-bpe";
    constexpr EncodeOptions kAdd{.add_special = true, .parse_special = true};
    EXPECT_THAT(tokenizer_of(std::move(plain)).encode("a", kAdd), ElementsAre('a'));
    EXPECT_THAT(tokenizer_of(llama).encode("a", kAdd), ElementsAre(256, 'a'));
    llama.add_bos = false;
    EXPECT_THAT(tokenizer_of(std::move(llama)).encode("a", kAdd), ElementsAre('a'));
}

TEST(TokenizerTest, LlamaBpeTakesAPieceThatIsATokenWithoutMerging) {
    TokenizerData data = bpe_data({{"a", "b"}}, {{"abc", TokenType::kNormal}});
    data.pre = "llama-bpe";
    EXPECT_THAT(tokenizer_of(std::move(data)).encode("abc", kText), ElementsAre(257));
}

/// 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, then the tokens below with rising or given scores.
Tokenizer small_spm() {
    TokenizerData data;
    data.model = "llama";
    const auto add = [&](std::string text, TokenType type, float score) {
        data.tokens.push_back(std::move(text));
        data.types.push_back(static_cast<std::int32_t>(type));
        data.scores.push_back(score);
    };
    add("<unk>", TokenType::kUnknown, 0);
    add("<s>", TokenType::kControl, 0);
    add("</s>", TokenType::kControl, 0);
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (std::size_t byte = 0; byte < 256; ++byte) {
        add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenType::kByte, 0);
    }
    add("\u2581", TokenType::kNormal, -10);  // 259
    add("a", TokenType::kNormal, -11);       // 260
    add("b", TokenType::kNormal, -12);       // 261
    add("ab", TokenType::kNormal, -2);       // 262
    add("\u2581a", TokenType::kNormal, -1);  // 263
    return tokenizer_of(std::move(data));
}

TEST(TokenizerTest, SpmJoinsTheHighestScoreFirst) {
    EXPECT_THAT(small_spm().encode("ab", kText), ElementsAre(263, 261));
    EXPECT_THAT(small_spm().encode("bab", kText), ElementsAre(259, 261, 262));
}

TEST(TokenizerTest, SpmSpellsUnknownCharactersInBytesAndRoundTrips) {
    const Tokenizer tokenizer = small_spm();
    const std::vector<TokenId> ids = tokenizer.encode("a\u00e9", kText);
    EXPECT_THAT(ids, ElementsAre(263, 3 + 0xC3, 3 + 0xA9));
    EXPECT_EQ(tokenizer.decode(ids, kHidden), "a\u00e9");
}

TEST(TokenizerTest, SpmAddsBosByDefault) {
    EXPECT_THAT(small_spm().encode("a", {.add_special = true, .parse_special = true}),
                ElementsAre(1, 263));
}

}  // namespace
}  // namespace replica

// Proves the hand-written scanners against pieces that an independent implementation cut with the
// published regular expressions (tests/golden/pretokenizer-splits.json), against worked examples,
// and that their cost is linear.
#include "replica/tokenizer/pretokenizer.h"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace replica {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces(PreTokenizer kind, std::string_view text) {
    std::vector<std::string> result;
    std::size_t begin = 0;
    for (const std::size_t end : split_pieces(kind, text)) {
        result.emplace_back(text.substr(begin, end - begin));
        begin = end;
    }
    EXPECT_EQ(begin, text.size()) << "pieces leave a gap at the end";
    return result;
}

TEST(PreTokenizerTest, EveryKindCutsTheGoldenTextsAsThePublishedExpressionDoes) {
    std::ifstream file(QUADRIGA_SOURCE_DIR "/tests/golden/pretokenizer-splits.json");
    const auto golden = nlohmann::json::parse(file);
    const auto& texts = golden.at("texts");
    ASSERT_EQ(texts.size(), 400U);
    for (const auto& [name, splits] : golden.at("splits").items()) {
        const auto kind = pre_tokenizer_by_name(name);
        ASSERT_TRUE(kind.has_value()) << name;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            EXPECT_EQ(pieces(*kind, texts[i].get<std::string>()),
                      splits.at(i).get<std::vector<std::string>>())
                << name << " case " << i;
        }
    }
}

TEST(PreTokenizerTest, Qwen35CutsTheWorkedExamples) {
    const auto cut = [](std::string_view text) { return pieces(PreTokenizer::kQwen35, text); };
    EXPECT_THAT(cut("I'm 23  years\n\n old!!\nok"),
                ElementsAre("I", "'m", " ", "2", "3", " ", " years", "\n\n", " old", "!!\n", "ok"));
    EXPECT_THAT(cut("x = foo(bar)  # c\n"),
                ElementsAre("x", " =", " foo", "(bar", ")", " ", " #", " c", "\n"));
    EXPECT_THAT(cut("don'T 3.14,ab"), ElementsAre("don", "'T", " ", "3", ".", "1", "4", ",ab"));
    EXPECT_THAT(cut("a\u00A0b \t\n  c"), ElementsAre("a", "\u00A0b", " \t\n", " ", " c"));
    EXPECT_THAT(cut("\r\n \r\nx  "), ElementsAre("\r\n \r\n", "x", "  "));
    EXPECT_THAT(cut("  \n  \n  x"), ElementsAre("  \n  \n", " ", " x"));
    EXPECT_THAT(cut("\u2026\n\nb"), ElementsAre("\u2026\n\n", "b"));
    EXPECT_THAT(cut("e\u0301a"), ElementsAre("e\u0301a"));
    EXPECT_THAT(cut("\u2019s IT'S"), ElementsAre("\u2019s", " IT", "'S"));
}

TEST(PreTokenizerTest, Qwen2CutsBeforeACombiningMarkAndQwen35DoesNot) {
    EXPECT_THAT(pieces(PreTokenizer::kQwen2, "e\u0301a"), ElementsAre("e", "\u0301a"));
    EXPECT_THAT(pieces(PreTokenizer::kQwen35, "e\u0301"), ElementsAre("e\u0301"));
}

TEST(PreTokenizerTest, LlamaBpeTakesNumbersInThrees) {
    EXPECT_THAT(pieces(PreTokenizer::kLlamaBpe, "x 1234567"),
                ElementsAre("x", " ", "123", "456", "7"));
}

TEST(PreTokenizerTest, SmollmTakesEveryDigitAloneBeforeTheWordRules) {
    EXPECT_THAT(pieces(PreTokenizer::kSmollm, "at 42 %"), ElementsAre("at", " ", "4", "2", " %"));
}

TEST(PreTokenizerTest, DefaultCutsPunctuationNumbersAndTripletsInTurn) {
    EXPECT_THAT(pieces(PreTokenizer::kDefault, "a,b 12345 $x"),
                ElementsAre("a", ",", "b", " ", "123", "45", " ", "$", "x"));
}

TEST(PreTokenizerTest, AnEmptyTextHasNoPieces) {
    EXPECT_TRUE(pieces(PreTokenizer::kQwen35, "").empty());
}

TEST(PreTokenizerTest, AliasesNameTheSameKindAndUnknownNamesAreRefused) {
    EXPECT_EQ(pre_tokenizer_by_name("deepseek-r1-qwen"), PreTokenizer::kQwen2);
    EXPECT_EQ(pre_tokenizer_by_name("llama3"), PreTokenizer::kLlamaBpe);
    EXPECT_EQ(pre_tokenizer_by_name("starcoder"), PreTokenizer::kSmollm);
    EXPECT_EQ(pre_tokenizer_by_name("no-such-kind"), std::nullopt);
    EXPECT_EQ(pre_tokenizer_by_name(""), std::nullopt);
}

}  // namespace
}  // namespace replica

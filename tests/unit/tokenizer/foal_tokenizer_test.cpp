// Proves the whole way from a model file to ids: 400 texts, special tokens parsed, against ids made
// by an independent implementation (tests/golden/foal-tokenizer.json).
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "replica/gguf/reader.h"
#include "replica/tokenizer/gguf_tokenizer.h"
#include "replica/tokenizer/tokenizer.h"

namespace replica {
namespace {

/// The repository's demo model, else the shared one with the same vocabulary.
std::filesystem::path foal_path() {
    const std::filesystem::path ours = QUADRIGA_SOURCE_DIR "/models/foal-iq4_xs.gguf";
    if (std::filesystem::exists(ours)) return ours;
    const char* shared = std::getenv("QUADRIGA_SHARED");
    if (shared == nullptr) return {};
    const auto theirs = std::filesystem::path(shared) / "models" / "foal-bf16.gguf";
    return std::filesystem::exists(theirs) ? theirs : std::filesystem::path();
}

Tokenizer foal_tokenizer(const std::filesystem::path& path) {
    const auto file = GgufFile::open(path);
    if (!file) throw std::runtime_error(file.error().text());
    auto data = load_tokenizer_data(file->metadata());
    if (!data) throw std::runtime_error(data.error().message);
    auto made = Tokenizer::from_data(std::move(*data));
    if (!made) throw std::runtime_error(made.error().message);
    return std::move(*made);
}

TEST(FoalTokenizerTest, GivesTheGoldenIdsAndDecodesThemBack) {
    const auto path = foal_path();
    if (path.empty()) GTEST_SKIP() << "no foal model: models/ is empty and QUADRIGA_SHARED unset";
    const Tokenizer tokenizer = foal_tokenizer(path);
    std::ifstream file(QUADRIGA_SOURCE_DIR "/tests/golden/foal-tokenizer.json");
    const auto golden = nlohmann::json::parse(file);
    ASSERT_EQ(golden.at("cases").size(), 400U);
    for (const auto& golden_case : golden.at("cases")) {
        const auto text = golden_case.at("text").get<std::string>();
        const auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = true});
        EXPECT_EQ(ids, golden_case.at("tokens").get<std::vector<TokenId>>()) << text;
        EXPECT_EQ(tokenizer.decode(ids, {.render_special = true}), text);
    }
}

TEST(FoalTokenizerTest, KnowsTheChatTokensByText) {
    const auto path = foal_path();
    if (path.empty()) GTEST_SKIP() << "no foal model: models/ is empty and QUADRIGA_SHARED unset";
    const Tokenizer tokenizer = foal_tokenizer(path);
    const auto im_end = tokenizer.find("<|im_end|>");
    ASSERT_TRUE(im_end.has_value());
    EXPECT_EQ(tokenizer.type(*im_end), TokenType::kControl);
    EXPECT_NE(std::find(tokenizer.end_tokens().begin(), tokenizer.end_tokens().end(), *im_end),
              tokenizer.end_tokens().end());
    const auto think = tokenizer.find("<think>");
    ASSERT_TRUE(think.has_value());
    EXPECT_EQ(tokenizer.type(*think), TokenType::kUserDefined);
}

}  // namespace
}  // namespace replica

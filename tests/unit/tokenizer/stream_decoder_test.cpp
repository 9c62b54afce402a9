// Proves that text does not depend on how bytes were cut into tokens, and what broken bytes become.
#include "replica/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

namespace replica {
namespace {

std::string decoded(std::initializer_list<std::string_view> pieces) {
    StreamDecoder decoder;
    std::string text;
    for (const std::string_view piece : pieces)
        decoder.feed(piece, text);
    decoder.finish(text);
    return text;
}

TEST(StreamDecoderTest, HoldsAnIncompleteCharacterUntilItIsWhole) {
    StreamDecoder decoder;
    std::string text;
    decoder.feed("a\xF0\x9F", text);
    EXPECT_EQ(text, "a");
    decoder.feed("\xA6", text);
    EXPECT_EQ(text, "a");
    EXPECT_EQ(decoder.pending().size(), 3U);
    decoder.feed("\x99!", text);
    EXPECT_EQ(text, "a\U0001F999!");
    EXPECT_TRUE(decoder.pending().empty());
}

TEST(StreamDecoderTest, ACharacterCutByTheEndIsOneReplacementCharacter) {
    EXPECT_EQ(decoded({"x\xF0"}), "x\uFFFD");
    EXPECT_EQ(decoded({"x\xF0\x9F"}), "x\uFFFD");
    EXPECT_EQ(decoded({"x\xF0\x9F\xA6"}), "x\uFFFD");
}

TEST(StreamDecoderTest, BrokenBytesAreReplacedAsSoonAsTheyAreKnownToBeBroken) {
    EXPECT_EQ(decoded({"\xE2\x82", "z"}), "\uFFFDz");
    EXPECT_EQ(decoded({"\x80"}), "\uFFFD");
    EXPECT_EQ(decoded({"\xED\xA0\x80"}), "\uFFFD\uFFFD\uFFFD");
    EXPECT_EQ(decoded({"\xC3", "\xC3\xA9"}), "\uFFFD\u00E9");
}

TEST(StreamDecoderTest, TheTextDoesNotDependOnTheCuts) {
    const std::string bytes = "h\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99\xFF\xE2\x82\xF4\x90\x80";
    const std::string whole = decoded({bytes});
    for (std::size_t first = 0; first <= bytes.size(); ++first) {
        for (std::size_t second = first; second <= bytes.size(); ++second) {
            const std::string_view view = bytes;
            EXPECT_EQ(decoded({view.substr(0, first), view.substr(first, second - first),
                               view.substr(second)}),
                      whole)
                << first << ' ' << second;
        }
    }
}

}  // namespace
}  // namespace replica

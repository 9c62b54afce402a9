// Stop strings across chunk borders: cut exactly, never shown in part, first end wins, then
// longest.
#include "replica/chat/stop_strings.h"

#include <random>

#include <gtest/gtest.h>

namespace replica::chat {
namespace {

struct Result {
    std::string text;
    std::string match;
};

Result run(const StopMatcher::Options& options, const std::vector<std::string_view>& chunks) {
    StopMatcher matcher(options);
    Result result;
    for (const std::string_view chunk : chunks)
        result.text += matcher.feed(chunk);
    result.text += matcher.finish();
    result.match = matcher.match().value_or("");
    return result;
}

/// The same by looking at the whole text: the earliest end, then the longest.
Result expected(const std::vector<std::string>& strings, const std::string& text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        const std::string* best = nullptr;
        for (const std::string& stop : strings) {
            const bool ends_here = stop.size() <= end && !stop.empty() &&
                                   text.compare(end - stop.size(), stop.size(), stop) == 0;
            if (ends_here && (best == nullptr || stop.size() > best->size())) best = &stop;
        }
        if (best != nullptr) return {text.substr(0, end - best->size()), *best};
    }
    return {text, ""};
}

TEST(StopStringsTest, CutsAMatchThatSpansChunks) {
    const Result result = run({{"STOP"}, false}, {"abc S", "TO", "P def"});
    EXPECT_EQ(result.text, "abc ");
    EXPECT_EQ(result.match, "STOP");
}

TEST(StopStringsTest, KeepsTheMatchWhenAsked) {
    EXPECT_EQ(run({{"STOP"}, true}, {"abc S", "TOP def"}).text, "abc STOP");
}

TEST(StopStringsTest, HoldsBackOnlyWhatMayBeginAMatch) {
    StopMatcher matcher({{"\n\nUser:", "###"}, false});
    EXPECT_EQ(matcher.feed("one\n"), "one");
    EXPECT_EQ(matcher.feed("two\n\nUs"), "\ntwo");
    EXPECT_EQ(matcher.feed("ual #"), "\n\nUsual ");
    EXPECT_FALSE(matcher.matched());
    EXPECT_EQ(matcher.finish(), "#");
}

TEST(StopStringsTest, GivesTheMatchThatEndsFirstThenTheLongest) {
    EXPECT_EQ(run({{"abcde", "cd"}, false}, {"xabcdef"}).text, "xab");
    EXPECT_EQ(run({{"cd", "abcd", "bcd"}, false}, {"xabcdef"}).match, "abcd");
}

TEST(StopStringsTest, GivesNothingAfterAMatch) {
    StopMatcher matcher({{"x"}, false});
    EXPECT_EQ(matcher.feed("axb"), "a");
    EXPECT_EQ(matcher.feed("more"), "");
    EXPECT_EQ(matcher.finish(), "");
}

TEST(StopStringsTest, IgnoresEmptyStringsAndWorksWithoutAny) {
    EXPECT_EQ(run({{""}, false}, {"abc"}).text, "abc");
    EXPECT_EQ(run({}, {"a", "b"}).text, "ab");
}

TEST(StopStringsTest, CutsBetweenCharactersOnly) {
    StopMatcher matcher({{"é!"}, false});
    EXPECT_EQ(matcher.feed("aè"), "aè");  // shares its first byte with é
    EXPECT_EQ(matcher.feed("é"), "");
    EXPECT_EQ(matcher.feed("🦙"), "é🦙");
}

TEST(StopStringsTest, AgreesWithAPlainSearchHoweverTheTextIsCut) {
    constexpr std::uint32_t kSeed = 7;
    std::mt19937 random(kSeed);
    const auto word = [&](std::size_t size_max) {
        std::string text;
        for (std::size_t size = 1 + random() % size_max; size > 0; --size) {
            text += static_cast<char>('a' + random() % 2);
        }
        return text;
    };
    for (int i = 0; i < 3000; ++i) {
        std::vector<std::string> strings;
        for (std::size_t count = 1 + random() % 4; count > 0; --count)
            strings.push_back(word(5));
        const std::string text = word(16);
        std::vector<std::string_view> chunks;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t size = std::min(1 + random() % 4, text.size() - at);
            chunks.push_back(std::string_view(text).substr(at, size));
            at += size;
        }
        const Result got = run({strings, false}, chunks);
        const Result want = expected(strings, text);
        ASSERT_EQ(got.text, want.text) << "seed " << kSeed << " case " << i << " " << text;
        ASSERT_EQ(got.match, want.match) << text;
    }
}

}  // namespace
}  // namespace replica::chat

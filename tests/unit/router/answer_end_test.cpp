// The end of an answer as the source of accounts: usage and finish reason, and all that is none.
#include "router/answer_end.h"

#include <gtest/gtest.h>

#include "router/stream_relay.h"

namespace router {
namespace {

const std::string kFinish =
    R"({"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null})";
const std::string kUsageChunk =
    R"({"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":7,)"
    R"("prompt_tokens_details":{"cached_tokens":5}}})";

TEST(AnswerEndTest, AStreamEndsWithItsFinishReasonAndItsUsage) {
    const auto end = end_of_stream({kFinish, kUsageChunk});
    ASSERT_TRUE(end);
    EXPECT_EQ(end->prompt_tokens, 12);
    EXPECT_EQ(end->cached_tokens, 5);
    EXPECT_EQ(end->generated_tokens, 7);
    EXPECT_EQ(end->finish_reason, "length");
    const auto plain = end_of_stream({R"({"choices":[{"delta":{"content":"x"}}]})", kFinish});
    ASSERT_TRUE(plain) << "the client did not ask for the usage";
    EXPECT_FALSE(plain->generated_tokens);
    EXPECT_TRUE(end_of_stream({"", kFinish})) << "a stream of one event";
}

TEST(AnswerEndTest, WhatCannotBeReadIsNothing) {
    for (const std::string bad :
         {"", "[]", "{", R"({"usage":7})", R"({"usage":{"prompt_tokens":-1}})",
          R"({"usage":{"completion_tokens":1e99}})", R"({"usage":{"completion_tokens":"7"}})",
          R"({"usage":{"completion_tokens":18446744073709551615}})",
          R"({"usage":{"prompt_tokens_details":{"cached_tokens":1.5}}})"}) {
        EXPECT_FALSE(end_of_stream({kFinish, bad})) << bad;
        EXPECT_FALSE(end_of_whole(bad)) << bad;
    }
    EXPECT_TRUE(end_of_stream({R"({"choices":[7]})", R"({"choices":{}})"})) << "no reason is fine";
    EXPECT_FALSE(end_of_whole(R"({"usage":)"));
    EXPECT_FALSE(end_of_whole(R"({"usage":{"completion_tokens":7)")) << "cut";
    EXPECT_FALSE(end_of_whole(R"({"usage":{}})")) << "it says nothing";
}

TEST(AnswerEndTest, TheUsageOfAWholeAnswerIsTheMemberAndNotWhatTheTextSays) {
    const auto end = end_of_whole(
        R"({"usage": {"completion_tokens":3,"prompt_tokens":2},"text":"\"usage\":{\"completion_tokens\":9}"})");
    ASSERT_TRUE(end);
    EXPECT_EQ(end->generated_tokens, 3);
    EXPECT_EQ(end->prompt_tokens, 2);
}

TEST(AnswerEndTest, TheRelayKeepsTheLastTwoEventsHoweverTheyAreCut) {
    const std::string stream = "data: {\"a\":1}\n\ndata: " + kFinish +
                               "\n\n: ping\n\ndata: " + kUsageChunk + "\n\ndata: [DONE]\n\n";
    for (const std::size_t step : {std::size_t{1}, std::size_t{7}, stream.size()}) {
        StreamRelay relay(1 << 20);
        for (std::size_t at = 0; at < stream.size(); at += step)
            (void)relay.feed(std::string_view(stream).substr(at, step));
        EXPECT_TRUE(relay.has_ended());
        EXPECT_EQ(relay.last_events(), (LastEvents{kFinish, kUsageChunk})) << step;
    }
    StreamRelay relay(1 << 20);
    (void)relay.feed("data: {}\n\ndata: \"" + std::string(kLastEventBytesMax, 'x') + "\"\n\n");
    EXPECT_EQ(relay.last_events(), (LastEvents{"{}", ""})) << "too long to be kept";
}

}  // namespace
}  // namespace router

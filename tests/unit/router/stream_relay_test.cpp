// The relay of event streams: bytes pass unchanged and in whole events, however they are cut.
#include "router/stream_relay.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace router {
namespace {

constexpr std::size_t kHold = 1024;

const std::string kStream =
    "data: {\"text\":\"四頭の馬 🐎\"}\n\n"
    ": ping\n\n"
    "event: x\r\ndata: naïve\r\n\r\n"
    "data: a\rdata: b\r\r"
    "data: [DONE]\n\n";

TEST(StreamRelayTest, BytesPassUnchangedHoweverTheyAreCut) {
    for (unsigned seed = 0; seed < 2000; ++seed) {
        std::mt19937 random(seed);
        StreamRelay relay(kHold);
        std::string out;
        for (std::size_t at = 0; at < kStream.size();) {
            const std::size_t count = 1 + random() % 9;
            out += relay.feed(std::string_view(kStream).substr(at, count));
            at += count;
        }
        ASSERT_EQ(out, kStream) << "seed " << seed;
        ASSERT_TRUE(relay.has_ended()) << "seed " << seed;
    }
}

TEST(StreamRelayTest, OneByteAtATimeGivesWholeEventsOnly) {
    StreamRelay relay(kHold);
    std::vector<std::string> pieces;
    for (const char byte : std::string("data: 馬\n\ndata: 2\n\n")) {
        const std::string_view out = relay.feed({&byte, 1});
        if (!out.empty()) pieces.emplace_back(out);
    }
    EXPECT_EQ(pieces, (std::vector<std::string>{"data: 馬\n\n", "data: 2\n\n"}));
    EXPECT_FALSE(relay.has_ended());
}

TEST(StreamRelayTest, HoldsBackAnUnfinishedEvent) {
    StreamRelay relay(kHold);
    EXPECT_EQ(relay.feed("data: 1\n\ndata: 2"), "data: 1\n\n");
    EXPECT_EQ(relay.held_bytes(), 7U);
    EXPECT_EQ(relay.feed("\n\n"), "data: 2\n\n");
    EXPECT_EQ(relay.held_bytes(), 0U);
}

TEST(StreamRelayTest, AnEventTooLongToHoldPassesRawAndTheNextIsWholeAgain) {
    StreamRelay relay(16);
    EXPECT_EQ(relay.feed("data: 0123456"), "");
    EXPECT_EQ(relay.feed("7890"), "data: 01234567890");
    EXPECT_FALSE(relay.is_at_boundary());
    EXPECT_EQ(relay.feed("abc"), "abc");
    EXPECT_EQ(relay.feed("\n\ndata: n"), "\n\n");
    EXPECT_TRUE(relay.is_at_boundary());
    EXPECT_EQ(relay.feed("\n\n"), "data: n\n\n");
}

TEST(StreamRelayTest, OnlyATerminalEventEndsTheStreamNotTextThatLooksLikeOne) {
    const auto ended = [](std::string_view bytes) {
        StreamRelay relay(kHold);
        (void)relay.feed(bytes);
        return relay.has_ended();
    };
    EXPECT_TRUE(ended("data: [DONE]\n\n"));
    EXPECT_TRUE(ended("data:[DONE]\r\n\r\n"));
    EXPECT_TRUE(ended("data: x\n\ndata: [DONE]\r\r"));
    EXPECT_TRUE(ended("event: error\ndata: {}\n\n"));
    EXPECT_FALSE(ended("data: {\"c\":\"data: [DONE]\"}\n\n"));
    EXPECT_FALSE(ended("data: {\"c\":\"[DONE]\"}\n\n"));
    EXPECT_FALSE(ended("data: [DONE] not\n\n"));
    EXPECT_FALSE(ended(": data: [DONE]\n\n"));
    EXPECT_FALSE(ended("metadata: [DONE]\n\n"));
    EXPECT_FALSE(ended("data: [DONE]\n")) << "the event has not ended yet";
}

}  // namespace
}  // namespace router

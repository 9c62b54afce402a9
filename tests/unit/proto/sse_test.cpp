// Server-sent events: written, read and bounded, with every stream cut at every byte.
#include "proto/sse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace proto_test {
namespace {

using proto::SseEvent;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<SseEvent> decode(std::initializer_list<std::string_view> pieces) {
    proto::SseDecoder decoder;
    std::vector<SseEvent> events;
    for (const std::string_view piece : pieces) {
        decoder.feed(piece);
        while (auto event = decoder.next())
            events.push_back(std::move(*event));
    }
    EXPECT_FALSE(decoder.is_failed());
    return events;
}

TEST(SseTest, WritesEvents) {
    EXPECT_EQ(proto::sse_data("x"), "data: x\n\n");
    EXPECT_EQ(proto::sse_data("a\nb\r\nc"), "data: a\ndata: b\ndata: c\n\n");
    EXPECT_EQ(proto::sse_event("done", "{}"), "event: done\ndata: {}\n\n");
    EXPECT_THAT(proto::sse_error({proto::ErrorCode::kReplicaLost, "Gone."}),
                testing::StartsWith("event: error\ndata: {\"error\":{\"message\":\"Gone.\""));
}

TEST(SseTest, ReadsTheSameEventsWhereverTheStreamIsCut) {
    for (const std::string& end : {std::string("\n"), std::string("\r\n"), std::string("\r")}) {
        std::string text;
        for (const char* line :
             {": ping", "", "event: status", "data: {\"a\":1}", "", "data:one", "data: two",
              "id: 7", "", "data", "", "event: lost", "", "data: [DONE]", ""}) {
            text += line + end;
        }
        const std::vector<SseEvent> whole = decode({text});
        ASSERT_THAT(whole, ElementsAre(SseEvent{"status", "{\"a\":1}"}, SseEvent{"", "one\ntwo"},
                                       SseEvent{"", ""}, SseEvent{"", "[DONE]"}));
        const std::string_view view = text;
        for (std::size_t cut = 0; cut <= view.size(); ++cut) {
            EXPECT_EQ(decode({view.substr(0, cut), view.substr(cut)}), whole) << "cut at " << cut;
        }
        proto::SseDecoder bytewise;
        std::vector<SseEvent> events;
        for (const char c : text) {
            bytewise.feed({&c, 1});
            while (auto event = bytewise.next())
                events.push_back(std::move(*event));
        }
        EXPECT_EQ(events, whole);
    }
}

TEST(SseTest, SkipsAByteOrderMarkOnlyAtTheStart) {
    EXPECT_THAT(decode({"\xEF\xBB\xBF"
                        "data: a\n\ndata: \xEF\xBB\xBF\n\n"}),
                ElementsAre(SseEvent{"", "a"}, SseEvent{"", "\xEF\xBB\xBF"}));
}

TEST(SseTest, AnEventOverTheLimitFailsTheDecoder) {
    proto::SseDecoder decoder(100);
    decoder.feed("data: " + std::string(94, 'x') + "\n\n");
    EXPECT_TRUE(decoder.next());
    for (int i = 0; i < 4; ++i)
        decoder.feed("data: " + std::string(20, 'x') + "\n");
    EXPECT_FALSE(decoder.next());
    EXPECT_TRUE(decoder.is_failed());
    proto::SseDecoder endless(100);
    for (int i = 0; i < 200 && !endless.is_failed(); ++i) {
        endless.feed("xxxxxxxxxx");
        endless.next();
    }
    EXPECT_TRUE(endless.is_failed());
    endless.feed("data: late\n\n");
    EXPECT_FALSE(endless.next());
    EXPECT_EQ(endless.held_bytes(), 0U);
}

// --- boundaries

/// The bytes a relay has passed on after each piece.
std::vector<std::size_t> passed_after(std::initializer_list<std::string_view> pieces) {
    proto::SseBoundaryScanner scanner;
    std::vector<std::size_t> passed;
    std::size_t begin = 0;
    std::size_t complete = 0;
    for (const std::string_view piece : pieces) {
        const std::size_t end = scanner.feed(piece);
        if (end > 0) complete = begin + end;
        begin += piece.size();
        passed.push_back(complete);
    }
    return passed;
}

TEST(SseBoundaryTest, FindsTheEndOfTheLastWholeEvent) {
    EXPECT_THAT(passed_after({"data: a\n\ndata: b\n\nda"}), ElementsAre(18U));
    EXPECT_THAT(passed_after({"data: a\r\n\r\nda"}), ElementsAre(11U));
    EXPECT_THAT(passed_after({"data: a\r\rda"}), ElementsAre(9U));
    EXPECT_THAT(passed_after({"data: a\n", "\n", "x"}), ElementsAre(0U, 9U, 9U));
    EXPECT_THAT(passed_after({": ping\n\n"}), ElementsAre(8U));
    EXPECT_THAT(passed_after({"no end at all"}), ElementsAre(0U));
}

TEST(SseBoundaryTest, EveryCutLeadsToTheSamePlace) {
    for (const std::string& end : {std::string("\n"), std::string("\r\n"), std::string("\r")}) {
        std::string text;
        for (int i = 0; i < 3; ++i)
            text += "event: e" + end + "data: " + std::to_string(i) + end + end;
        const std::size_t whole = text.size();
        text += "data: partial";
        const std::string_view view = text;
        for (std::size_t cut = 0; cut <= view.size(); ++cut) {
            EXPECT_EQ(passed_after({view.substr(0, cut), view.substr(cut)}).back(), whole)
                << "cut at " << cut;
        }
        proto::SseBoundaryScanner bytewise;
        std::size_t last = 0;
        for (std::size_t i = 0; i < view.size(); ++i) {
            if (bytewise.feed(view.substr(i, 1)) > 0) last = i + 1;
        }
        EXPECT_EQ(last, whole);
        EXPECT_FALSE(bytewise.is_at_boundary());
    }
}

TEST(SseBoundaryTest, TheSecondHalfOfASplitCrLfBelongsToTheEvent) {
    proto::SseBoundaryScanner scanner;
    EXPECT_EQ(scanner.feed("data: a\r\n\r"), 10U);
    EXPECT_TRUE(scanner.is_at_boundary());
    EXPECT_EQ(scanner.feed("\nda"), 1U);
    EXPECT_FALSE(scanner.is_at_boundary());
}

}  // namespace
}  // namespace proto_test

// The W3C header: what is taken, what is replaced, what goes on to the replica.
#include "router/trace_context.h"

#include <gtest/gtest.h>

namespace router {
namespace {

const std::string kTrace = "0af7651916cd43dd8448eb211c80319c";
const std::string kSpan = "b7ad6b7169203331";

TEST(TraceContextTest, AValidHeaderKeepsItsTraceAndWhetherItIsSampled) {
    for (const auto& [flags, is_sampled] :
         {std::pair{"00", false}, {"01", true}, {"02", false}, {"03", true}, {"ff", true}}) {
        const auto trace = parse_traceparent("00-" + kTrace + "-" + kSpan + "-" + flags);
        ASSERT_TRUE(trace) << flags;
        EXPECT_EQ(trace->trace_id, kTrace);
        EXPECT_EQ(trace->is_sampled, is_sampled) << flags;
    }
    for (const std::string rest : {"", "-", "-more"})
        EXPECT_TRUE(parse_traceparent("cc-" + kTrace + "-" + kSpan + "-01" + rest)) << rest;
}

TEST(TraceContextTest, WhatIsNotExactlyTheFormIsRefused) {
    const std::string good = "00-" + kTrace + "-" + kSpan + "-01";
    for (std::size_t length = 0; length < good.size(); ++length)
        EXPECT_FALSE(parse_traceparent(good.substr(0, length))) << length;
    for (std::size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        for (const char c : {'G', 'A', '\0', ' ', '\xff'}) {
            bad[at] = c;
            EXPECT_FALSE(parse_traceparent(bad)) << bad;
        }
    }
    for (const std::string& bad :
         {good + "-", good + "0", "ff" + good.substr(2), "cc" + good.substr(2) + ".more",
          "00-" + std::string(32, '0') + "-" + kSpan + "-01",
          "00-" + kTrace + "-" + std::string(16, '0') + "-01"}) {
        EXPECT_FALSE(parse_traceparent(bad)) << bad;
    }
}

TEST(TraceContextTest, WithoutOneValidHeaderATraceBeginsHere) {
    const std::string good = "00-" + kTrace + "-" + kSpan + "-01";
    const TraceContext kept = trace_of({{"Traceparent", good}});
    EXPECT_EQ(kept.trace_id, kTrace);
    EXPECT_TRUE(kept.is_from_client);
    for (const proto::Headers& headers :
         {proto::Headers{}, proto::Headers{{"traceparent", "nonsense"}},
          proto::Headers{{"traceparent", good}, {"traceparent", good}}}) {
        const TraceContext made = trace_of(headers);
        EXPECT_FALSE(made.is_from_client);
        EXPECT_NE(made.trace_id, kTrace);
        EXPECT_TRUE(parse_traceparent(make_traceparent(made))) << made.trace_id;
        EXPECT_NE(made.trace_id, trace_of(headers).trace_id);
    }
}

TEST(TraceContextTest, EachUpstreamRequestIsASpanOfItsOwn) {
    const TraceContext trace{.trace_id = kTrace, .is_sampled = true, .is_from_client = true};
    const std::string first = make_traceparent(trace);
    const std::string second = make_traceparent(trace);
    EXPECT_EQ(first.substr(0, 36), "00-" + kTrace + "-");
    EXPECT_EQ(first.substr(52), "-01");
    EXPECT_NE(first, second);
}

TEST(TraceContextTest, ATracestateGoesOnWithTheTraceItBelongsTo) {
    TraceContext trace{.trace_id = kTrace};
    const auto passes = [&trace](std::size_t bytes) {
        proto::Headers upstream;
        add_trace(upstream, trace, {{"tracestate", std::string(bytes, 'x')}});
        EXPECT_EQ(upstream.get("traceparent").substr(0, 36), "00-" + kTrace + "-");
        return upstream.contains("tracestate");
    };
    EXPECT_FALSE(passes(5));
    trace.is_from_client = true;
    EXPECT_TRUE(passes(512));
    EXPECT_FALSE(passes(513));
    EXPECT_FALSE(passes(0));
}

TEST(TraceContextTest, SeveralTracestateFieldsAreOneListInTheirOrder) {
    const TraceContext trace{.trace_id = kTrace, .is_from_client = true};
    const auto passed = [&trace](const proto::Headers& client) {
        proto::Headers upstream;
        add_trace(upstream, trace, client);
        EXPECT_LE(upstream.count("tracestate"), 1U);
        return std::string(upstream.get("tracestate"));
    };
    EXPECT_EQ(passed({{"tracestate", "a=1"}, {"TraceState", ""}, {"tracestate", "b=2,c=3"}}),
              "a=1,b=2,c=3");
    const std::string half(256, 'x');
    EXPECT_EQ(passed({{"tracestate", half}, {"tracestate", half}}), "") << "513 with the comma";
    EXPECT_EQ(passed({{"tracestate", half}, {"tracestate", half.substr(1)}}).size(), 512U);
}

}  // namespace
}  // namespace router

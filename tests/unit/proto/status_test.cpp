// What processes tell each other: replica status, done events, ready-pipe lines, announcements, and
// the error table.
#include "proto/status.h"

#include <set>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/error.h"
#include "proto/http_client.h"
#include "proto/http_message.h"
#include "proto/ready_pipe.h"

namespace proto_test {
namespace {

using namespace proto;  // NOLINT: every name below is of proto
using testing::HasSubstr;
using testing::StartsWith;

const std::string kInstance = "9f2c41d07ab35e18";

TEST(ReplicaStateTest, NamesGoBothWays) {
    std::set<std::string_view> names;
    for (int i = 0; i < kReplicaStateCount; ++i) {
        const auto state = static_cast<ReplicaState>(i);
        names.insert(replica_state_name(state));
        EXPECT_EQ(replica_state_from_name(replica_state_name(state)), state);
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(kReplicaStateCount));
    EXPECT_EQ(replica_state_name(ReplicaState::kWaitVram), "WAIT_VRAM");
    EXPECT_EQ(replica_state_from_name("ready"), std::nullopt);
}

ReplicaStatus sample_status() {
    ReplicaStatus status;
    status.replica = 2;
    status.instance = kInstance;
    status.state = ReplicaState::kReady;
    status.seq = 8812;
    status.step = 456789;
    status.step_age_ms = 4;
    status.running = 5;
    status.waiting = 1;
    status.sequences_max = 8;
    status.queued_tokens = 18231;
    status.kv_blocks_free = 9120;
    status.kv_blocks_total = 16384;
    status.block_tokens = 64;
    status.prefill_tokens_per_s = 5230.0;
    status.decode_tokens_per_s = 311.5;
    status.longest_step_ms = 180;
    status.max_model_len = 131072;
    status.model = "qwen-27b";
    status.eta_s = 1.5;
    status.prompt_tokens_total = 90210;
    status.generated_tokens_total = 4711;
    return status;
}

TEST(ReplicaStatusTest, RoundTripsAndHasTheDocumentedShape) {
    const std::string text = to_json(sample_status());
    EXPECT_THAT(text,
                StartsWith(R"({"v":1,"replica":2,"instance":"9f2c41d07ab35e18","state":"READY",)"
                           R"("seq":8812,"step":456789,"step_age_ms":4,"running":5,)"));
    const Result<ReplicaStatus> read = parse_replica_status(text);
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, sample_status());
}

TEST(ReplicaStatusTest, IgnoresUnknownKeysAndRefusesWrongOnes) {
    const std::string least = R"({"instance":"i","state":"LOADING","seq":1)";
    const Result<ReplicaStatus> read = parse_replica_status(least + R"(,"new":[1],"model":null})");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->state, ReplicaState::kLoading);
    for (const std::string& bad :
         {std::string("{}"), std::string(R"({"instance":"i","state":"BUSY","seq":1})"),
          least + R"(,"running":"5"})", least + R"(,"running":1e3})", least + R"(,"running":-1)",
          least + R"(,"running":99999999999})", least + R"(,"step":-1})"}) {
        EXPECT_FALSE(parse_replica_status(bad)) << bad;
    }
}

TEST(ReplicaStatusTest, NumbersBeyondTheirLimitsAreRefused) {
    const std::string least = R"({"instance":"i","state":"READY","seq":1,)";
    const auto is_read = [&least](const std::string& member) {
        return parse_replica_status(least + member + "}").has_value();
    };
    for (const char* name :
         {"replica", "step_age_ms", "running", "waiting", "sequences_max", "queued_tokens",
          "kv_blocks_free", "kv_blocks_total", "block_tokens", "gpus", "prefill_tokens_per_s",
          "decode_tokens_per_s", "longest_step_ms", "max_model_len", "eta_s"}) {
        const std::string begin = "\"" + std::string(name) + "\":";
        EXPECT_TRUE(is_read(begin + "0")) << name;
        EXPECT_TRUE(is_read(begin + "16")) << name;
        for (const char* bad : {"-1", "2147483647", "9223372036854775807", "-9223372036854775808",
                                "1e308", "-1e-300"}) {
            const bool is_small = std::string(bad) == "2147483647";
            if (is_small &&
                (std::string(name).ends_with("_ms") || std::string(name).starts_with("kv_") ||
                 std::string(name) == "queued_tokens")) {
                continue;
            }
            EXPECT_FALSE(is_read(begin + bad)) << name << " " << bad;
        }
    }
    EXPECT_TRUE(is_read(R"("sequences_max":65536)")) << "limits are inclusive";
    EXPECT_FALSE(is_read(R"("sequences_max":65537)"));
}

TEST(ReplicaStatusTest, AnInstanceIsAWordThatMayStandInAHeaderField) {
    const auto is_read = [](const std::string& instance) {
        return parse_replica_status(R"({"state":"READY","seq":1,"instance":")" + instance + "\"}")
            .has_value();
    };
    for (const std::string& good :
         {std::string(kInstance), std::string("gpu-0.b_C"), std::string(64, 'a')}) {
        EXPECT_TRUE(is_read(good)) << good;
    }
    for (const std::string& bad :
         {std::string(), std::string(65, 'a'), std::string(R"(a\r\nX-Evil: 1)"), std::string("a b"),
          std::string(R"(a\u0000)"), std::string("\xC3\xA4")}) {
        EXPECT_FALSE(is_read(bad)) << bad;
    }
}

TEST(DoneEventTest, CountsBeyondTheirLimitsAreRefused) {
    for (const char* name : {"prompt", "cached", "generated"}) {
        for (const char* bad : {"-1", "9223372036854775807", "-9223372036854775808"}) {
            const std::string text =
                R"({"dispatch":"a-1",")" + std::string(name) + "\":" + bad + "}";
            EXPECT_FALSE(parse_done_event(text)) << text;
        }
    }
}

TEST(DoneEventTest, RoundTrips) {
    const DoneEvent event{"a91c-20417", 8120, 7936, 412, "stop"};
    EXPECT_EQ(
        to_json(event),
        R"({"dispatch":"a91c-20417","prompt":8120,"cached":7936,"generated":412,"reason":"stop"})");
    EXPECT_EQ(parse_done_event(to_json(event)).value(), event);
    EXPECT_FALSE(parse_done_event(R"({"prompt":1})"));
}

TEST(ReadyPipeTest, EveryEventRoundTripsAsOneLine) {
    const std::vector<PipeEvent> events = {
        {kInstance, HelloEvent{4711, "1.4.0-3c3a74e", "sha256:3f9a"}},
        {kInstance, PhaseEvent{ReplicaState::kWarming, 3, 64}},
        {kInstance, KernelsEvent{{{"attention_decode", "armed", ""},
                                  {"matmul_mma", "wrong_arch", "needs sm_90, card is sm_80"}}}},
        {kInstance, SelftestEvent{true, "ab", 5230.5, 41.25}},
        {kInstance, ReadyEvent{{"GPU-5a1c", "CPU-0"}}},
        {kInstance, FatalEvent{"Q0412", "model_file", "cannot load", "line\nbreak", "copy it"}},
    };
    for (const PipeEvent& event : events) {
        const std::string line = to_json_line(event);
        EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
        const Result<PipeEvent> read =
            parse_pipe_event(std::string_view(line).substr(0, line.size() - 1));
        ASSERT_TRUE(read) << line;
        EXPECT_EQ(*read, event) << line;
    }
    EXPECT_THAT(to_json_line(events[0]),
                StartsWith(R"({"event":"hello","instance":"9f2c41d07ab35e18","pid":4711,)"));
}

TEST(ReadyPipeTest, RefusesGarbledLines) {
    const std::string id = R"("instance":"9f2c41d07ab35e18")";
    for (const std::string& line :
         {std::string("not json"), std::string("[]"), R"({"event":"hello",)" + id + "}",
          std::string(R"({"event":"ready","gpu_uuids":[]})"), R"({"event":"nap",)" + id + "}",
          std::string(R"({"event":"hello","pid":1,"instance":"short"})"),
          R"({"event":"phase","phase":"READY",)" + id + "}",
          R"({"event":"kernels","kernels":[1],)" + id + "}",
          R"({"event":"ready","gpu_uuids":[1],)" + id + "}", std::string(70'000, ' ')}) {
        EXPECT_FALSE(parse_pipe_event(line)) << line.substr(0, 80);
    }
}

TEST(AnnouncementTest, RoundTrips) {
    const ReplicaAnnouncement announcement{1, "http://127.0.0.1:8102", kInstance,
                                           ReplicaState::kLoading, 42.5};
    const std::string line = to_json_line(announcement);
    EXPECT_EQ(parse_announcement(line.substr(0, line.size() - 1)).value(), announcement);
    EXPECT_FALSE(parse_announcement(R"({"index":1})"));
}

TEST(AnnouncementTest, ADrainIsSaidInBothDirections) {
    ReplicaAnnouncement announcement{1, "http://127.0.0.1:8102", "", ReplicaState::kAbsent};
    announcement.is_drained = true;
    const std::string line = to_json_line(announcement);
    EXPECT_EQ(parse_announcement(line.substr(0, line.size() - 1)).value(), announcement);
    for (const bool is_drained : {true, false}) {
        const std::string order = to_json_line(DrainOrder{7, is_drained});
        EXPECT_EQ(parse_drain_order(order.substr(0, order.size() - 1)).value(),
                  (DrainOrder{7, is_drained}));
    }
    for (const char* bad :
         {"", "{", "{}", R"({"index":1})", R"({"drained":true})", R"({"index":-1,"drained":true})",
          R"({"index":1,"drained":1})", R"({"index":"1","drained":true})"}) {
        EXPECT_FALSE(parse_drain_order(bad)) << bad;
    }
}

TEST(RouterNewsTest, RoundTripsAndRefusesOtherWords) {
    for (const RouterNews word : {RouterNews::kServing, RouterNews::kLetGo}) {
        std::string line = to_json_line(word);
        ASSERT_EQ(line.back(), '\n');
        line.pop_back();
        const auto read = parse_router_news(line);
        ASSERT_TRUE(read.has_value()) << line;
        EXPECT_EQ(*read, word);
        EXPECT_FALSE(parse_drain_order(line).has_value());
        EXPECT_FALSE(parse_reload_report(line).has_value());
    }
    for (const char* line : {R"({"router":"gone"})", R"({"router":1})", "{}", "let_go"})
        EXPECT_FALSE(parse_router_news(line).has_value()) << line;
}

TEST(ReloadReportTest, RoundTripsAndRefusesWhatIsNone) {
    const ReloadReport report{{"keys: 2"}, {"the certificate is none"}};
    const std::string line = to_json_line(report);
    EXPECT_EQ(parse_reload_report(line.substr(0, line.size() - 1)).value(), report);
    for (const char* bad : {"", "{}", R"({"reloaded":[]})", R"({"reloaded":[1],"errors":[]})",
                            R"({"reloaded":"x","errors":[]})"}) {
        EXPECT_FALSE(parse_reload_report(bad)) << bad;
    }
}

TEST(LineReaderTest, CutsLinesAndRefusesEndlessOnes) {
    LineReader reader;
    reader.feed("a\nb");
    EXPECT_EQ(reader.next(), "a");
    EXPECT_EQ(reader.next(), std::nullopt);
    reader.feed("c\n\n");
    EXPECT_EQ(reader.next(), "bc");
    EXPECT_EQ(reader.next(), "");
    reader.feed(std::string(kEventLineBytesMax, 'x'));
    EXPECT_EQ(reader.next(), std::nullopt);
    EXPECT_TRUE(reader.is_failed());
}

// --- errors

TEST(ErrorTest, TheTableIsWhole) {
    std::set<std::string_view> names;
    for (int i = 0; i < kErrorCodeCount; ++i) {
        const auto code = static_cast<ErrorCode>(i);
        names.insert(error_info(code).name);
        EXPECT_EQ(error_code_from_name(error_info(code).name), code);
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(kErrorCodeCount));
    EXPECT_EQ(error_info(ErrorCode::kQueueFull).status, 429);
    EXPECT_EQ(error_info(ErrorCode::kLoading).type, "overloaded_error");
    EXPECT_EQ(error_code_from_name("nope"), std::nullopt);
}

TEST(ErrorTest, TheBodyHasExactlyFourKeys) {
    EXPECT_EQ(error_body({ErrorCode::kContextLengthExceeded, "Too \"long\".", "messages"}),
              R"({"error":{"message":"Too \"long\".","type":"invalid_request_error",)"
              R"("param":"messages","code":"context_length_exceeded"}})");
    EXPECT_THAT(error_body({ErrorCode::kBadRequest, "x"}), HasSubstr(R"("param":null)"));
}

TEST(ErrorTest, TheResponseCarriesStatusAndRetryAfter) {
    const HttpResponse response = error_response({ErrorCode::kQueueFull, "Full.", {}, {}, 7});
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(response.headers.get("retry-after"), "7");
    EXPECT_EQ(error_response({ErrorCode::kBadRequest, "x", {}, 421}).status, 421);
}

TEST(ErrorTest, RetryAfterIsWholeSecondsFromOneToSixty) {
    EXPECT_EQ(retry_after_seconds(0), 1);
    EXPECT_EQ(retry_after_seconds(1.2), 2);
    EXPECT_EQ(retry_after_seconds(10, 0.99), 15);
    EXPECT_EQ(retry_after_seconds(1e9), 60);
    EXPECT_EQ(retry_after_seconds(std::numeric_limits<double>::quiet_NaN()), 1);
}

TEST(ErrorTest, PrintableEscapesAndCuts) {
    EXPECT_EQ(printable("a\n\xC3"), "a\\x0a\\xc3");
    EXPECT_EQ(printable(std::string(200, 'x'), 3), "xxx...");
}

// --- messages

TEST(HttpMessageTest, HeadersCompareNamesWithoutCase) {
    Headers headers{{"Content-Type", "a"}, {"X", "1"}};
    headers.add("x", "2");
    EXPECT_EQ(headers.get("content-TYPE"), "a");
    EXPECT_EQ(headers.count("X"), 2U);
    headers.set("X", "3");
    EXPECT_EQ(headers.count("x"), 1U);
    EXPECT_EQ(headers.find("none"), std::nullopt);
}

TEST(HttpMessageTest, FindsTheKeyUnderBothNames) {
    EXPECT_EQ(api_key({{"Authorization", "Bearer k1"}}), "k1");
    EXPECT_EQ(api_key({{"authorization", "bearer  k1"}, {"x-api-key", "k2"}}), "k1");
    EXPECT_EQ(api_key({{"x-api-key", "k2"}}), "k2");
    EXPECT_EQ(api_key({{"authorization", "Basic abc"}}), std::nullopt);
}

TEST(HttpMessageTest, ReadsQueryValues) {
    EXPECT_EQ(query_value("a=1&b=2&c", "b"), "2");
    EXPECT_EQ(query_value("a=1&b=2&c", "c"), "");
    EXPECT_EQ(query_value("a=1", "b"), std::nullopt);
}

// GCC 12 destroys an aggregate that is made inside a co_await expression twice; what callers hand
// to our coroutines must therefore be none.
static_assert(!std::is_aggregate_v<ApiError> && !std::is_aggregate_v<HttpResponse> &&
              !std::is_aggregate_v<Headers::Field> && !std::is_aggregate_v<Endpoint> &&
              !std::is_aggregate_v<HttpClientRequest>);

TEST(HttpMessageTest, MakesDistinctIds) {
    EXPECT_TRUE(is_valid_request_id(make_request_id()));
    EXPECT_NE(make_request_id(), make_request_id());
    EXPECT_EQ(make_instance_id().size(), 16U);
    EXPECT_FALSE(is_valid_request_id(""));
    EXPECT_FALSE(is_valid_request_id("a b"));
    EXPECT_FALSE(is_valid_request_id(std::string(129, 'a')));
}

}  // namespace
}  // namespace proto_test

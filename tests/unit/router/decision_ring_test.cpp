// The ring of decisions: bounded, newest first, found by request id, and its JSON says what was
// expected and what was.
#include "router/decision_ring.h"

#include <gmock/gmock.h>

#include "proto/json.h"

namespace router {
namespace {

using namespace std::chrono_literals;

DecisionRecord record_of(const std::string& request_id) {
    DecisionRecord record;
    record.request_id = request_id;
    record.status = 200;
    return record;
}

TEST(DecisionRingTest, TheOldestRecordsGoWhenItIsFull) {
    DecisionRing ring;
    for (std::size_t i = 0; i < DecisionRing::kRecordsMax + 10; ++i)
        ring.add(record_of("r" + std::to_string(i)));
    EXPECT_EQ(ring.size(), DecisionRing::kRecordsMax);
    EXPECT_EQ(ring.newest(0).request_id, "r" + std::to_string(DecisionRing::kRecordsMax + 9));
    EXPECT_EQ(ring.newest(0).number, DecisionRing::kRecordsMax + 10);
    EXPECT_EQ(ring.newest(DecisionRing::kRecordsMax - 1).request_id, "r10");
    EXPECT_TRUE(ring.find("r9", 10).empty());
}

TEST(DecisionRingTest, ItFindsTheNewestAndThoseOfOneRequest) {
    DecisionRing ring;
    EXPECT_TRUE(ring.find("", 5).empty());
    for (const char* id : {"a", "b", "a", "c"})
        ring.add(record_of(id));
    const auto latest = ring.find("", 2);
    ASSERT_EQ(latest.size(), 2U);
    EXPECT_EQ(latest[0]->request_id, "c");
    EXPECT_EQ(latest[1]->request_id, "a");
    const auto repeated = ring.find("a", 100);
    ASSERT_EQ(repeated.size(), 2U) << "clients may send an id twice";
    EXPECT_GT(repeated[0]->number, repeated[1]->number);
    EXPECT_TRUE(ring.find("d", 100).empty());
}

TEST(DecisionRingTest, AReportOfTheEndFindsItsRecord) {
    DecisionRing ring;
    for (const char* dispatch : {"x-1", "x-2"}) {
        DecisionRecord record = record_of("r");
        record.request.dispatch = dispatch;
        ring.add(std::move(record));
    }
    ring.note_generated("x-1", 412);
    ring.note_generated("gone-9", 1);
    EXPECT_EQ(ring.newest(1).request.generated_tokens, 412);
    EXPECT_EQ(ring.newest(0).request.generated_tokens, std::nullopt);
}

TEST(DecisionRingTest, AReportOfARecordThatHasGoneTouchesNobody) {
    DecisionRing ring;
    for (std::size_t i = 0; i <= DecisionRing::kRecordsMax; ++i) {
        DecisionRecord record = record_of("r");
        record.request.dispatch = "x-" + std::to_string(i);
        ring.add(std::move(record));
    }
    ring.note_generated("x-0", 1);  // its place is that of the newest now
    ring.note_generated("x-1", 7);
    EXPECT_EQ(ring.newest(0).request.generated_tokens, std::nullopt);
    EXPECT_EQ(ring.newest(DecisionRing::kRecordsMax - 1).request.generated_tokens, 7);
}

TEST(DecisionRingTest, ARecordAsJsonHasTheChoiceTheExpectationAndTheEnd) {
    DecisionRecord record = record_of("req-1");
    record.number = 7;
    record.ended_at = std::chrono::system_clock::time_point(1'900'000'000'123ms);
    record.total = 1500ms;
    record.request.outcome = Outcome::kUpstreamError;
    record.request.model = "m";
    record.request.attempts = 2;
    record.request.matched_tokens = 512;
    record.request.cached_tokens = 448;
    record.request.prompt_tokens = 600;
    record.request.queued = 12ms;
    record.request.ttft = 95ms;
    record.request.expected_ttft_s = 0.08;
    record.request.error = "replica_lost";
    Decision decision{.verdict = Verdict::kDispatch, .replica = InstanceRef{1, 1}};
    decision.candidates = {Candidate{.replica = {0, 1}, .obstacle = Obstacle::kNotReady},
                           Candidate{.replica = {1, 1}, .terms = {.prefill_s = 0.08}}};
    record.request.decision = std::make_shared<const Decision>(decision);
    const proto::Json json = proto::Json::parse(decision_record_json(record));
    EXPECT_EQ(json["number"], 7);
    EXPECT_EQ(json["ended"], "2030-03-17T17:46:40.123Z");
    EXPECT_EQ(json["outcome"], "upstream_error");
    EXPECT_EQ(json["predicted_cached"], 512);
    EXPECT_EQ(json["cached"], 448);
    EXPECT_EQ(json["expected_ttft_ms"], 80);
    EXPECT_EQ(json["ttft_ms"], 95);
    EXPECT_EQ(json["error"], "replica_lost");
    EXPECT_TRUE(json["generated"].is_null());
    ASSERT_EQ(json["decision"]["candidates"].size(), 2U);
    EXPECT_EQ(json["decision"]["candidates"][0]["obstacle"], "not_ready");
    EXPECT_EQ(json["decision"]["candidates"][1]["prefill_s"], 0.08);
}

TEST(DecisionRingTest, ARequestThatGotNoReplicaHasNoDecision) {
    const proto::Json json = proto::Json::parse(decision_record_json(record_of("r")));
    EXPECT_TRUE(json["decision"].is_null());
    EXPECT_TRUE(json["expected_ttft_ms"].is_null());
    EXPECT_TRUE(json["queue_ms"].is_null());
}

}  // namespace
}  // namespace router

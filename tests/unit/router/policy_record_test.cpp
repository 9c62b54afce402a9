// The record of a decision: every replica is in it, with its terms or with what excluded it.
#include "router/policy_record.h"

#include <gtest/gtest.h>

#include "proto/json.h"

namespace router {
namespace {

TEST(PolicyRecordTest, NamesEveryReplicaWithItsTermsOrItsObstacle) {
    Snapshot snapshot;
    for (int i = 0; i < 3; ++i) {
        snapshot.replicas.push_back(
            {.index = i, .life = 1, .state = ReplicaState::kReady, .slots = 8});
    }
    snapshot.replicas[1].state = ReplicaState::kDown;
    snapshot.replicas[2].is_saturated = true;
    Demand demand;
    demand.prompt_tokens = 1000;
    demand.matches = {{{0, 1}, 900}};
    const auto json = proto::Json::parse(decision_json(choose(snapshot, demand)));
    EXPECT_EQ(json["replica"], 0);
    EXPECT_EQ(json["reason"], "least_load");
    EXPECT_EQ(json["matched"], 900);
    EXPECT_EQ(json["uncached"], 100);
    EXPECT_EQ(json["expected_ttft_ms"], 50);
    ASSERT_EQ(json["candidates"].size(), 3U);
    EXPECT_EQ(json["candidates"][0]["saved_s"], 0.45);
    EXPECT_FALSE(json["candidates"][0].contains("obstacle"));
    EXPECT_EQ(json["candidates"][1].dump(), R"({"replica":1,"obstacle":"not_ready"})");
    EXPECT_EQ(json["candidates"][2]["obstacle"], "saturated");
    EXPECT_EQ(json["candidates"][2]["prefill_s"], 0.5);
}

TEST(PolicyRecordTest, ARequestThatNobodyCanTakeHasARecordToo) {
    EXPECT_EQ(decision_json(choose({}, {})), R"({"candidates":[]})");
}

}  // namespace
}  // namespace router

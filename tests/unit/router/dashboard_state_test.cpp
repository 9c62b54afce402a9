// What the dashboard's page is given: every replica with what is known and null for the rest,
// warnings in words, only what is new of the history, and no way for odd input to break it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/dashboard/dashboard.h"
#include "router/dashboard/page_files.h"
#include "router/dashboard/state_json.h"

namespace router {
namespace {

using proto::Json;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Clock::time_point kNow{std::chrono::hours(1)};

proto::ReplicaStatus ready_status(const std::string& instance) {
    proto::ReplicaStatus status;
    status.instance = instance;
    status.state = proto::ReplicaState::kReady;
    status.seq = 1;
    status.running = 2;
    status.sequences_max = 8;
    status.queued_tokens = 300;
    status.kv_blocks_total = 100;
    status.kv_blocks_free = 75;
    status.decode_tokens_per_s = 41.25;
    status.step_age_ms = 500;
    return status;
}

/// One fixed replica, READY since kNow.
ReplicaSet one_ready() {
    ReplicaSet set{{}};
    set.add_fixed("http://127.0.0.1:1", {"127.0.0.1", 1}, kNow);
    (void)set.on_report(0, ready_status("aaaa"), kNow);
    return set;
}

TEST(DashboardStateTest, AReplicaIsShownWithItsLoadAndTheAgeOfItsReport) {
    ReplicaSet set = one_ready();
    const ReplicaFacts facts{.instance = "aaaa",
                             .version = "1.2",
                             .kernels = {{.name = "matvec", .state = "armed"},
                                         {.name = "attention", .state = "failed", .reason = "no"}}};
    const Json json = replica_json(*set.find(0), &facts, kNow + seconds(2));
    EXPECT_EQ(json["state"], "READY");
    EXPECT_EQ(json["since_s"], 2.0);
    EXPECT_EQ(json["instance"], "aaaa");
    EXPECT_EQ(json["running"], 2);
    EXPECT_EQ(json["slots"], 8);
    EXPECT_EQ(json["kv_used_blocks"], 25);
    EXPECT_EQ(json["decode_tokens_per_s"], 41.25);
    EXPECT_EQ(json["step_age_s"], 2.5) << "as old as the report, and what it said";
    EXPECT_EQ(json["died_s"], nullptr);
    EXPECT_EQ(json["watts"], nullptr);
    EXPECT_EQ(json["kernels"]["armed"], 1);
    EXPECT_EQ(json["kernels"]["list"][1]["reason"], "no");
}

TEST(DashboardStateTest, WhatIsNotKnownIsNull) {
    ReplicaSet set{{}};
    set.add_fixed("http://127.0.0.1:1", {"127.0.0.1", 1}, kNow);
    const Json json = replica_json(*set.find(0), nullptr, kNow);
    EXPECT_EQ(json["state"], "STARTING");
    for (const char* name : {"instance", "running", "slots", "queued_tokens", "kv_used_blocks",
                             "step_age_s", "kernels", "version", "launcher_state", "died_s"}) {
        EXPECT_TRUE(json.at(name).is_null()) << name;
    }
}

TEST(DashboardStateTest, ADrainIsShownAlsoWhenTheProcessHasEnded) {
    ReplicaSet set = one_ready();
    EXPECT_EQ(replica_json(*set.find(0), nullptr, kNow)["is_drained"], false);
    (void)set.set_drain(0, true, kNow);
    EXPECT_EQ(replica_json(*set.find(0), nullptr, kNow)["state"], "DRAINING");
    set.on_gone(0, kNow + seconds(5));
    const Json json = replica_json(*set.find(0), nullptr, kNow + seconds(6));
    EXPECT_EQ(json["state"], "DOWN");
    EXPECT_EQ(json["is_drained"], true);
    EXPECT_EQ(json["decode_tokens_per_s"], nullptr) << "what it said last is no rate of now";
    EXPECT_THAT(warnings({}, set, {}), IsEmpty()) << "a drain on purpose is no alarm";
}

TEST(DashboardStateTest, ADeathIsRememberedOverTheRestart) {
    ReplicaSet set = one_ready();
    set.on_gone(0, kNow + seconds(5));
    (void)set.on_report(0, ready_status("bbbb"), kNow + seconds(8));
    const Json json = replica_json(*set.find(0), nullptr, kNow + seconds(15));
    EXPECT_EQ(json["state"], "READY");
    EXPECT_EQ(json["instance"], "bbbb");
    EXPECT_EQ(json["died_s"], 10.0);
}

TEST(DashboardStateTest, WhatTheLauncherMeasuresIsShownAndWhatNobodyKnowsIsNull) {
    ReplicaSet set{{}};
    ASSERT_TRUE(set.announce({.index = 0,
                              .url = "http://127.0.0.1:1",
                              .state = proto::ReplicaState::kLoading,
                              .watts = 212,
                              .celsius = 61},
                             kNow));
    const Json replica = replica_json(*set.find(0), nullptr, kNow);
    EXPECT_EQ(replica["watts"], 212);
    EXPECT_EQ(replica["celsius"], 61);
    const FleetView view{
        .commit = "abc", .layout = "4x1", .keys_digest = "0123abcd", .drifted = {"key file"}};
    const Json fleet = fleet_json(view, set, kNow);
    EXPECT_EQ(fleet["layout"], "4x1");
    EXPECT_EQ(fleet["commit"], "abc");
    EXPECT_EQ(fleet["keys_digest"], "0123abcd");
    EXPECT_EQ(fleet["drifted"], Json::array({"key file"}));
    EXPECT_THAT(warnings(view, set, {}), testing::Contains(HasSubstr("key file on disk")));
    EXPECT_EQ(fleet_json({}, set, kNow)["layout"], nullptr);
    EXPECT_EQ(fleet_json({}, set, kNow)["keys_digest"], nullptr);
}

TEST(DashboardStateTest, WarningsSayWhatIsWrongAndNothingWhenAllIsWell) {
    ReplicaSet set = one_ready();
    EXPECT_THAT(warnings({}, set, {}), IsEmpty());

    proto::ReplicaStatus degraded = ready_status("aaaa");
    degraded.degraded = true;
    degraded.seq = 2;
    (void)set.on_report(0, degraded, kNow);
    set.add_fixed("http://127.0.0.1:2", {"127.0.0.1", 2}, kNow);
    set.on_gone(1, kNow);
    const FactsByReplica facts = {
        {0,
         {.config_digest = "x",
          .kernels = {{.name = "matvec", .state = "wrong_arch", .reason = "sm_70"}}}},
        {1, {.config_digest = "y"}}};
    EXPECT_THAT(warnings({.is_draining = true}, set, facts),
                ElementsAre(HasSubstr("draining"), "Replica 1 is DOWN.",
                            HasSubstr("matvec (sm_70)"), HasSubstr("0 has x, 1 has y")));
    EXPECT_THAT(warnings({}, ReplicaSet{{}}, {}), ElementsAre("There is no replica."));
}

TEST(DashboardStateTest, ACertificateThatEndsSoonIsAWarning) {
    const ReplicaSet set = one_ready();
    const auto shown = [&set](int days) {
        return warnings({.certificate_days_left = days}, set, {});
    };
    EXPECT_THAT(shown(14), IsEmpty());
    EXPECT_THAT(shown(13), ElementsAre(HasSubstr("ends in 13 days")));
    EXPECT_THAT(shown(1), ElementsAre(HasSubstr("ends in 1 day:")));
    EXPECT_THAT(shown(-1), ElementsAre(HasSubstr("has ended")));
}

TEST(DashboardStateTest, FactsComeFromAnyTextWithoutHarm) {
    const ReplicaFacts facts = parse_facts(
        "i", R"({"version":"1","model":{"arch":"qwen35","quant":"IQ4_XS"},"config_digest":7,)"
             R"("kernels":[{"name":"a","state":"armed"},3,{"state":"failed","reason":"r"}]})");
    EXPECT_EQ(facts.version, "1");
    EXPECT_EQ(facts.quant, "IQ4_XS");
    EXPECT_EQ(facts.config_digest, "");
    ASSERT_EQ(facts.kernels.size(), 2U);
    EXPECT_EQ(facts.kernels[1].reason, "r");
    for (const char* odd : {"", "[]", "{", R"({"kernels":{},"model":[]})"})
        EXPECT_THAT(parse_facts("i", odd).kernels, IsEmpty()) << odd;
}

TEST(DashboardStateTest, LongTextsAndListsOfAReplicaAreCut) {
    std::string text = R"({"version":")";
    for (int i = 0; i < 500; ++i)
        text += "é";
    text += R"(","kernels":[{})";
    for (int i = 0; i < 500; ++i)
        text += ",{}";
    const ReplicaFacts facts = parse_facts("i", text + "]}");
    EXPECT_LE(facts.version.size(), kFactBytesMax + 3);
    EXPECT_EQ(facts.kernels.size(), kKernelsShown);
    EXPECT_NO_THROW((void)Json(facts.version).dump()) << "a character was cut";
}

TEST(DashboardStateTest, TheQueueIsShownByClassWithItsOldestWait) {
    QueueView queue{.count_max = 64, .retry_after_s_min = 2, .retry_after_s_max = 3};
    queue.classes[1] = {.count = 4, .oldest = kNow - seconds(9)};
    const Json json = queue_json(queue, kNow);
    EXPECT_EQ(json["count"], 4U);
    EXPECT_EQ(json["classes"][0]["name"], "interactive");
    EXPECT_EQ(json["classes"][0]["oldest_wait_s"], nullptr);
    EXPECT_EQ(json["classes"][1]["oldest_wait_s"], 9.0);
    EXPECT_EQ(json["retry_after_s_max"], 3);
}

TEST(DashboardStateTest, EachSampleHasAValueForEachColumn) {
    SampleRing ring;
    ring.push({.number = 1, .at = kNow - seconds(1)});
    ring.push({.number = 2, .at = kNow, .ttft_p50_s = 0.25});
    const Json json = samples_json(ring, 0, kNow);
    ASSERT_EQ(json["rows"].size(), 2U);
    for (const Json& row : json["rows"])
        EXPECT_EQ(row.size(), json["columns"].size());
    EXPECT_EQ(json["rows"][0][1], 1.0) << "its age in seconds";
    const auto column = std::find(json["columns"].begin(), json["columns"].end(), "ttft_p50_ms");
    ASSERT_NE(column, json["columns"].end());
    const auto at = static_cast<std::size_t>(column - json["columns"].begin());
    EXPECT_EQ(json["rows"][0][at], nullptr);
    EXPECT_EQ(json["rows"][1][at], 250.0);
    EXPECT_EQ(samples_json(ring, 1, kNow)["rows"].size(), 1U);
}

TEST(DashboardStateTest, DecisionsComeOnceAndAgainWhileTheyMayChange) {
    const auto now = std::chrono::system_clock::time_point(std::chrono::hours(500'000));
    DecisionRing ring;
    for (int i = 0; i < 60; ++i) {
        DecisionRecord record{.request_id = "r" + std::to_string(i), .ended_at = now - seconds(60)};
        record.request.replica = i % 4;
        record.request.reason = "prefix";
        (void)ring.add(std::move(record));
    }
    const Json all = decisions_json(ring, 0, now);
    ASSERT_EQ(all.size(), kDecisionsShown);
    EXPECT_EQ(all[0]["request_id"], "r59");
    EXPECT_EQ(all[0]["reason"], "prefix");
    EXPECT_EQ(all[0]["generated"], nullptr);
    EXPECT_EQ(decisions_json(ring, 60, now).size(), 0U);
    EXPECT_EQ(decisions_json(ring, 58, now).size(), 2U);
    EXPECT_EQ(decisions_json(ring, 60, now - seconds(59)).size(), kDecisionsShown);
}

TEST(DashboardStateTest, ACursorThatIsNoNumberIsZero) {
    EXPECT_EQ(parse_cursor("samples_after=7&decisions_after=9").samples_after, 7U);
    EXPECT_EQ(parse_cursor("samples_after=7&decisions_after=9").decisions_after, 9U);
    for (const char* odd : {"", "samples_after=", "samples_after=-1", "samples_after=7x",
                            "samples_after=99999999999999999999"}) {
        EXPECT_EQ(parse_cursor(odd).samples_after, 0U) << odd;
    }
}

TEST(DashboardPageTest, ThePageIsOpenAndItsDataIsNot) {
    for (const char* open : {"/dashboard", "/dashboard/style.css", "/dashboard/app.js", "/",
                             "/dashboard/", "/dashboard/index.html"})
        EXPECT_TRUE(is_page_path(open)) << open;
    for (const char* closed : {"/dashboard/state", "/dashboard//", "/dashboard/../info", "//", "",
                               "/dashboards", "/v1/models"}) {
        EXPECT_FALSE(is_page_path(closed)) << closed;
    }
}

TEST(DashboardPageTest, NamesNothingOutsideItself) {
    ASSERT_FALSE(page_files().empty());
    for (const PageFile& file : page_files()) {
        EXPECT_FALSE(file.text.empty()) << file.name;
        std::string text(file.text);
        // The name of the SVG language is no address.
        for (std::size_t at; (at = text.find("http://www.w3.org/2000/svg")) != std::string::npos;)
            text.erase(at, 26);
        for (const char* foreign : {"http://", "https://", "//cdn", "innerHTML", "eval("})
            EXPECT_EQ(text.find(foreign), std::string::npos) << file.name << ": " << foreign;
    }
}

}  // namespace
}  // namespace router

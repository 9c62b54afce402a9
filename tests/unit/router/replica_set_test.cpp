// States of replicas: announcements, reports, silence and stalls, with time as an argument.
#include "router/replica_set.h"

#include <gmock/gmock.h>

namespace router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

constexpr Clock::time_point kStart{seconds(1000)};
constexpr const char* kFirst = "0000000000000001";
constexpr const char* kSecond = "0000000000000002";

proto::ReplicaStatus report(const std::string& instance, std::uint64_t seq) {
    proto::ReplicaStatus status;
    status.instance = instance;
    status.state = proto::ReplicaState::kReady;
    status.seq = seq;
    status.sequences_max = 8;
    return status;
}

proto::ReplicaAnnouncement announcement(proto::ReplicaState state, const std::string& instance) {
    return {.index = 2, .url = "http://127.0.0.1:8103", .instance = instance, .state = state};
}

/// A fixed replica that has reported once.
ReplicaSet ready_set() {
    ReplicaSet set({});
    set.add_fixed("http://127.0.0.1:8101", {"127.0.0.1", 8101}, kStart);
    EXPECT_EQ(set.on_report(0, report(kFirst, 1), kStart), ReplicaSet::Report::kAccepted);
    return set;
}

ReplicaState state_of(ReplicaSet& set, int index = 0) {
    return set.find(index)->state;
}

TEST(ReplicaSetTest, OneThatFellSilentOrMadeNoStepHasHungAndOneThatIsGoneHasNot) {
    const auto hung = [](ReplicaSet& set) {
        return set.has_hung({.index = 0, .life = set.find(0)->life});
    };
    ReplicaSet silent = ready_set();
    silent.tick(kStart + seconds(9));
    EXPECT_FALSE(hung(silent)) << "SUSPECT only";
    silent.tick(kStart + seconds(10));
    EXPECT_EQ(state_of(silent), ReplicaState::kDown);
    EXPECT_TRUE(hung(silent));
    EXPECT_FALSE(silent.has_hung({.index = 0, .life = silent.find(0)->life + 1}));
    EXPECT_FALSE(silent.has_hung({.index = 7, .life = 1}));
    (void)silent.on_report(0, report(kFirst, 2), kStart + seconds(11));
    EXPECT_FALSE(hung(silent)) << "it is back";

    ReplicaSet still = ready_set();
    for (int i = 0; i <= 60; ++i) {
        proto::ReplicaStatus status = report(kFirst, static_cast<std::uint64_t>(i) + 2);
        status.running = 1;
        status.step = 5;
        (void)still.on_report(0, status, kStart + seconds(i));
    }
    EXPECT_EQ(state_of(still), ReplicaState::kDown);
    EXPECT_TRUE(hung(still));

    ReplicaSet gone = ready_set();
    gone.on_gone(0, kStart);
    EXPECT_EQ(state_of(gone), ReplicaState::kDown);
    EXPECT_FALSE(hung(gone));
}

TEST(ReplicaSetTest, AFixedReplicaIsTrustedOnItsFirstReport) {
    ReplicaSet set({});
    set.add_fixed("http://127.0.0.1:8101", {"127.0.0.1", 8101}, kStart);
    EXPECT_EQ(state_of(set), ReplicaState::kStarting);
    EXPECT_EQ(set.mode(kStart), FleetMode::kStarting);
    (void)set.on_report(0, report(kFirst, 1), kStart);
    EXPECT_EQ(state_of(set), ReplicaState::kReady);
    EXPECT_EQ(set.mode(kStart), FleetMode::kServing);
}

TEST(ReplicaSetTest, TheLaunchersWordAboutADrainCountsWhenItChanges) {
    ReplicaSet set({});
    const auto say = [&](bool is_drained) {
        proto::ReplicaAnnouncement news = announcement(proto::ReplicaState::kReady, kFirst);
        news.is_drained = is_drained;
        ASSERT_TRUE(set.announce(news, kStart));
    };
    say(false);
    (void)set.on_report(2, report(kFirst, 1), kStart);
    ASSERT_EQ(state_of(set, 2), ReplicaState::kReady);
    say(true);
    EXPECT_EQ(state_of(set, 2), ReplicaState::kDraining);
    EXPECT_TRUE(set.set_drain(2, false, kStart)) << "an operator wants it back here";
    EXPECT_EQ(state_of(set, 2), ReplicaState::kReady);
    say(true);  // sent before the launcher heard of that
    EXPECT_EQ(state_of(set, 2), ReplicaState::kReady);
    say(false);
    EXPECT_TRUE(set.set_drain(2, true, kStart));
    say(false);  // the same the other way round
    EXPECT_EQ(state_of(set, 2), ReplicaState::kDraining);
    say(true);
    say(false);
    EXPECT_EQ(state_of(set, 2), ReplicaState::kReady);
}

TEST(ReplicaSetTest, WhatAnOperatorUndrainsIsReadyBeforeTheLauncherHasHeardOfIt) {
    ReplicaSet set({});
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kReady, kFirst), kStart));
    (void)set.on_report(2, report(kFirst, 1), kStart);
    ASSERT_TRUE(set.set_drain(2, true, kStart));
    proto::ReplicaAnnouncement echo = announcement(proto::ReplicaState::kDraining, kFirst);
    echo.is_drained = true;
    ASSERT_TRUE(set.announce(echo, kStart));
    ASSERT_TRUE(set.set_drain(2, false, kStart));
    EXPECT_EQ(state_of(set, 2), ReplicaState::kReady);
    // One that the launcher itself is about to end stays what it says.
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kDraining, kFirst), kStart));
    EXPECT_EQ(state_of(set, 2), ReplicaState::kDraining);
}

TEST(ReplicaSetTest, AnAnnouncedReplicaIsReadyWhenLauncherAndReportAgree) {
    ReplicaSet set({});
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kLoading, kFirst), kStart));
    EXPECT_EQ(state_of(set, 2), ReplicaState::kStarting);
    (void)set.on_report(2, report(kFirst, 1), kStart);
    EXPECT_EQ(state_of(set, 2), ReplicaState::kStarting) << "the launcher has not said so yet";
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kReady, kFirst), kStart));
    EXPECT_EQ(state_of(set, 2), ReplicaState::kReady);
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kDraining, kFirst), kStart));
    EXPECT_EQ(state_of(set, 2), ReplicaState::kDraining);
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kQuarantined, ""), kStart));
    EXPECT_EQ(state_of(set, 2), ReplicaState::kDown);
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kBackoff, ""), kStart));
    EXPECT_EQ(state_of(set, 2), ReplicaState::kStarting) << "it will be tried again";
}

TEST(ReplicaSetTest, OneProcessByTwoAddressesIsOneReplicaUntilTheFirstIsGone) {
    ReplicaSet set({});
    set.add_fixed("http://127.0.0.1:8101", {"127.0.0.1", 8101}, kStart);
    set.add_fixed("http://localhost:8101", {"localhost", 8101}, kStart);
    EXPECT_EQ(set.on_report(0, report(kFirst, 1), kStart), ReplicaSet::Report::kAccepted);
    EXPECT_EQ(set.on_report(1, report(kFirst, 1), kStart), ReplicaSet::Report::kSameProcess);
    EXPECT_EQ(state_of(set, 1), ReplicaState::kDown);
    EXPECT_EQ(set.find(1)->same_as, 0);
    EXPECT_EQ(set.on_report(0, report(kFirst, 2), kStart), ReplicaSet::Report::kAccepted);
    set.on_gone(0, kStart);
    EXPECT_EQ(set.on_report(1, report(kFirst, 3), kStart), ReplicaSet::Report::kAccepted);
    EXPECT_EQ(state_of(set, 1), ReplicaState::kReady);
    EXPECT_EQ(set.find(1)->same_as, std::nullopt);
    EXPECT_EQ(set.on_report(0, report(kFirst, 4), kStart), ReplicaSet::Report::kSameProcess)
        << "it is the second now";
    EXPECT_EQ(set.on_report(0, report(kSecond, 1), kStart), ReplicaSet::Report::kAccepted);
    EXPECT_EQ(state_of(set), ReplicaState::kReady) << "another process is another replica";
}

TEST(ReplicaSetTest, AProcessThatTheLauncherAnnouncesIsItsOwnWhoeverNamedItBefore) {
    ReplicaSet set = ready_set();
    int lost = 0;
    set.on_lost = [&lost](const Replica&, const std::shared_ptr<Account>&) { ++lost; };
    {
        const Permit running(set.find(0)->account, 1);
        ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kReady, kFirst), kStart));
        EXPECT_EQ(set.on_report(0, report(kFirst, 2), kStart), ReplicaSet::Report::kAccepted)
            << "the launcher's has not reported yet";
        EXPECT_EQ(state_of(set), ReplicaState::kReady);
        EXPECT_EQ(set.on_report(2, report(kFirst, 2), kStart), ReplicaSet::Report::kAccepted);
        EXPECT_EQ(state_of(set, 2), ReplicaState::kReady);
        EXPECT_EQ(set.on_report(0, report(kFirst, 3), kStart), ReplicaSet::Report::kAccepted);
        EXPECT_EQ(state_of(set), ReplicaState::kDraining) << "what runs there goes on";
        EXPECT_EQ(set.find(0)->same_as, 2);
        EXPECT_EQ(lost, 0);
    }
    EXPECT_EQ(set.on_report(0, report(kFirst, 4), kStart), ReplicaSet::Report::kSameProcess);
    EXPECT_EQ(state_of(set), ReplicaState::kDown);
    EXPECT_EQ(set.on_report(2, report(kFirst, 4), kStart), ReplicaSet::Report::kAccepted);
    EXPECT_EQ(state_of(set, 2), ReplicaState::kReady);
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kQuarantined, ""), kStart));
    EXPECT_EQ(set.on_report(0, report(kFirst, 5), kStart), ReplicaSet::Report::kAccepted)
        << "it is there all the same, and somebody has named it";
    EXPECT_EQ(state_of(set), ReplicaState::kReady);
}

TEST(ReplicaSetTest, AProcessThatWasAnotherBeforeLosesItsWorkWhenItTurnsOutToBeKnown) {
    ReplicaSet set = ready_set();
    set.add_fixed("http://127.0.0.1:8102", {"127.0.0.1", 8102}, kStart);
    EXPECT_EQ(set.on_report(1, report(kSecond, 1), kStart), ReplicaSet::Report::kAccepted);
    std::vector<std::string> lost;
    set.on_lost = [&lost](const Replica&, const std::shared_ptr<Account>& account) {
        lost.push_back(account->instance());
    };
    const Permit running(set.find(1)->account, 1);
    EXPECT_EQ(set.on_report(1, report(kFirst, 1), kStart), ReplicaSet::Report::kSameProcess);
    EXPECT_EQ(state_of(set, 1), ReplicaState::kDown);
    EXPECT_THAT(lost, ElementsAre(kSecond));
}

TEST(ReplicaSetTest, OnlyTheAnnouncedInstanceIsUsed) {
    ReplicaSet set({});
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kReady, kFirst), kStart));
    EXPECT_EQ(set.on_report(2, report(kSecond, 1), kStart), ReplicaSet::Report::kWrongInstance);
    EXPECT_EQ(state_of(set, 2), ReplicaState::kStarting);
    EXPECT_FALSE(set.announce({.index = 3, .url = "ftp://x"}, kStart));
}

TEST(ReplicaSetTest, ANewInstanceStartsFromNothing) {
    ReplicaSet set = ready_set();
    int lost = 0;
    set.on_lost = [&lost](const Replica&, const std::shared_ptr<Account>& account) {
        EXPECT_EQ(account->instance(), kFirst);
        ++lost;
    };
    const Charge charge(set.find(0)->account, {.prefill_tokens = 500, .output_tokens = 10});
    const std::uint64_t life = set.find(0)->life;
    EXPECT_EQ(set.on_report(0, report(kSecond, 1), kStart), ReplicaSet::Report::kAccepted);
    EXPECT_EQ(lost, 1);
    EXPECT_EQ(set.find(0)->life, life + 1);
    EXPECT_TRUE(set.find(0)->account->is_idle());
    EXPECT_EQ(set.snapshot(1, kStart).replicas[0].expected_output_tokens, 0);
}

TEST(ReplicaSetTest, AnOlderReportChangesNothing) {
    ReplicaSet set = ready_set();
    (void)set.on_report(0, report(kFirst, 5), kStart);
    proto::ReplicaStatus old = report(kFirst, 4);
    old.queued_tokens = 999;
    EXPECT_EQ(set.on_report(0, old, kStart), ReplicaSet::Report::kStale);
    EXPECT_EQ(set.find(0)->status->queued_tokens, 0);
    EXPECT_EQ(set.on_report(0, report(kFirst, 5), kStart), ReplicaSet::Report::kAccepted)
        << "a poll repeats the number of the last event";
}

TEST(ReplicaSetTest, AWrongNumberDoesNotSilenceTheReportsAfterIt) {
    ReplicaSet set = ready_set();
    (void)set.on_report(0, report(kFirst, std::uint64_t{1} << 63), kStart);
    EXPECT_EQ(set.on_report(0, report(kFirst, 2), kStart), ReplicaSet::Report::kAccepted)
        << "far behind is no old report";
    EXPECT_EQ(set.on_report(0, report(kFirst, 1), kStart), ReplicaSet::Report::kStale);
    (void)set.on_report(0, report(kFirst, 2 + kSeqBehindMax), kStart);
    EXPECT_EQ(set.on_report(0, report(kFirst, 2), kStart), ReplicaSet::Report::kStale);
    EXPECT_EQ(set.on_report(0, report(kFirst, 1), kStart), ReplicaSet::Report::kAccepted);
}

TEST(ReplicaSetTest, ANewStreamOfTheSameInstanceCountsAnew) {
    ReplicaSet set = ready_set();
    (void)set.on_report(0, report(kFirst, 9), kStart);
    set.on_stream_opened(0);
    set.on_stream_opened(7);  // removed meanwhile
    EXPECT_EQ(set.on_report(0, report(kFirst, 1), kStart), ReplicaSet::Report::kAccepted);
}

TEST(ReplicaSetTest, SilenceMakesItSuspectThenDownAndAReportBringsItBack) {
    ReplicaSet set = ready_set();
    set.tick(kStart + milliseconds(4'900));
    EXPECT_EQ(state_of(set), ReplicaState::kReady);
    set.tick(kStart + seconds(5));
    EXPECT_EQ(state_of(set), ReplicaState::kSuspect);
    EXPECT_EQ(set.mode(kStart + seconds(5)), FleetMode::kUncertain);
    int lost = 0;
    set.on_lost = [&lost](const Replica&, const std::shared_ptr<Account>&) { ++lost; };
    set.tick(kStart + seconds(10));
    EXPECT_EQ(state_of(set), ReplicaState::kDown);
    EXPECT_EQ(lost, 1);
    (void)set.on_report(0, report(kFirst, 2), kStart + seconds(11));
    EXPECT_EQ(state_of(set), ReplicaState::kReady);
}

TEST(ReplicaSetTest, BusyIsNotDeadAndStandingStillIs) {
    ReplicaSet set = ready_set();
    std::uint64_t seq = 2;
    const auto report_at = [&](int second, std::uint64_t step) {
        proto::ReplicaStatus status = report(kFirst, seq++);
        status.running = 1;
        status.step = step;
        (void)set.on_report(0, status, kStart + seconds(second));
        return state_of(set);
    };
    for (int second = 0; second <= 100; ++second) {  // a long prefill: steps advance
        ASSERT_EQ(report_at(second, static_cast<std::uint64_t>(second)), ReplicaState::kReady);
    }
    for (int second = 101; second < 110; ++second) {
        ASSERT_EQ(report_at(second, 100), ReplicaState::kReady) << second;
    }
    EXPECT_EQ(report_at(110, 100), ReplicaState::kSuspect);
    EXPECT_EQ(report_at(159, 100), ReplicaState::kSuspect);
    EXPECT_EQ(report_at(160, 100), ReplicaState::kDown);
    EXPECT_EQ(report_at(161, 101), ReplicaState::kReady);
}

TEST(ReplicaSetTest, ARefusedConnectionMeansDownAtOnce) {
    ReplicaSet set = ready_set();
    set.on_gone(0, kStart);
    EXPECT_EQ(state_of(set), ReplicaState::kDown);
    EXPECT_EQ(set.mode(kStart), FleetMode::kNone) << "nobody restarts a fixed replica";
}

TEST(ReplicaSetTest, AnAnnouncedReplicaThatDiedIsWaitedForAMoment) {
    ReplicaSet set({});
    (void)set.announce(announcement(proto::ReplicaState::kReady, kFirst), kStart);
    (void)set.on_report(2, report(kFirst, 1), kStart);
    set.on_gone(2, kStart + seconds(1));
    EXPECT_EQ(set.mode(kStart + seconds(1)), FleetMode::kUncertain);
    EXPECT_EQ(set.mode(kStart + seconds(1) + kDeathGrace), FleetMode::kNone);
}

TEST(ReplicaSetTest, ABusyAnswerFillsItUntilItsTimeOrAReportWithRoom) {
    ReplicaSet set = ready_set();
    const auto is_saturated = [&set](Clock::time_point now) {
        return set.snapshot(1, now).replicas[0].is_saturated;
    };
    set.on_saturated(0, kStart + seconds(7), kStart);
    EXPECT_TRUE(is_saturated(kStart + seconds(6)));
    EXPECT_FALSE(is_saturated(kStart + seconds(7)));
    proto::ReplicaStatus full = report(kFirst, 2);
    full.running = 8;
    (void)set.on_report(0, full, kStart + seconds(1));
    EXPECT_TRUE(is_saturated(kStart + seconds(1)));
    (void)set.on_report(0, report(kFirst, 3), kStart + seconds(2));
    EXPECT_FALSE(is_saturated(kStart + seconds(2)));
}

TEST(ReplicaSetTest, WithoutAFreshReportOwnChargesAloneCount) {
    ReplicaSet set = ready_set();
    proto::ReplicaStatus status = report(kFirst, 2);
    status.queued_tokens = 1000;
    (void)set.on_report(0, status, kStart);
    Charge charge(set.find(0)->account, {.prefill_tokens = 70});
    charge.mark_sent(kStart);
    EXPECT_EQ(set.snapshot(1, kStart).replicas[0].ahead(), 1070);
    EXPECT_EQ(set.snapshot(1, kStart + seconds(6)).replicas[0].ahead(), 70);
}

TEST(ReplicaSetTest, ModelsAreMergedWithoutRepetition) {
    ReplicaSet set = ready_set();
    EXPECT_TRUE(set.is_model_known("anything")) << "nothing is known yet: the replica decides";
    set.on_info(0, {.instance = "someone else", .model_names = {"wrong"}});
    set.on_info(0, {.instance = kFirst,
                    .model_names = {"foal", "default"},
                    .model_entries = {{"foal", R"({"id":"foal"})"}}});
    set.add_fixed("http://127.0.0.1:8102", {"127.0.0.1", 8102}, kStart);
    (void)set.on_report(1, report(kSecond, 1), kStart);
    set.on_info(1, {.instance = kSecond,
                    .model_names = {"foal"},
                    .model_entries = {{"foal", R"({"id":"foal"})"}}});
    EXPECT_THAT(set.model_names(), ElementsAre("foal", "default"));
    EXPECT_THAT(set.model_entries(), ElementsAre(R"({"id":"foal"})"));
    EXPECT_FALSE(set.is_model_known("wrong"));
    EXPECT_TRUE(set.model_entry("foal"));
    EXPECT_FALSE(set.model_entry("default"));
}

TEST(ReplicaSetTest, WhoServesAModelIsKnownFromInfoAndBeforeThatFromReports) {
    ReplicaSet set = ready_set();
    const auto serves = [&set](const std::string& name) { return set.serving(*set.find(0), name); };
    EXPECT_EQ(serves(""), Serving::kYes) << "whatever it is";
    EXPECT_EQ(serves("foal"), Serving::kUnknown) << "its report named no model";
    EXPECT_TRUE(set.not_serving("").empty());
    EXPECT_EQ(set.not_serving("foal").size(), 1U) << "nobody is sent on a guess";
    set.on_info(0, {.instance = kFirst, .model_names = {"foal", "default"}});
    EXPECT_EQ(serves("default"), Serving::kYes);
    EXPECT_EQ(serves("mare"), Serving::kNo);

    // Its next life: the same model has the same names, another one has yet to say its own.
    proto::ReplicaStatus same = report(kSecond, 1);
    same.model = "foal";
    (void)set.on_report(0, same, kStart);
    EXPECT_EQ(serves("foal"), Serving::kYes);
    EXPECT_EQ(serves("default"), Serving::kYes);
    EXPECT_EQ(serves("mare"), Serving::kUnknown);
    proto::ReplicaStatus other = report("0000000000000003", 1);
    other.model = "mare";
    (void)set.on_report(0, other, kStart);
    EXPECT_EQ(serves("mare"), Serving::kYes);
    EXPECT_EQ(serves("foal"), Serving::kUnknown);
    EXPECT_TRUE(set.is_model_known("foal")) << "it may be another name of it";
    set.on_info(0, {.instance = "0000000000000003", .model_names = {"mare"}});
    EXPECT_EQ(serves("foal"), Serving::kNo);
    EXPECT_FALSE(set.is_model_known("foal"));
}

TEST(ReplicaSetTest, AReplicaThatCannotSayItsModelsDecidesItself) {
    ReplicaSet set = ready_set();
    const std::uint64_t before = set.models_version();
    set.on_info_missing(0, "someone else");
    EXPECT_EQ(set.serving(*set.find(0), "foal"), Serving::kUnknown);
    set.on_info_missing(0, kFirst);
    EXPECT_EQ(set.serving(*set.find(0), "foal"), Serving::kYes);
    EXPECT_NE(set.models_version(), before);
    (void)set.on_report(0, report(kSecond, 1), kStart);
    EXPECT_EQ(set.serving(*set.find(0), "foal"), Serving::kUnknown) << "another process";
    set.on_info(0, {.instance = kSecond});
    EXPECT_EQ(set.serving(*set.find(0), "foal"), Serving::kYes) << "it named none";
}

TEST(ReplicaSetTest, TheModeForAModelIsThatOfItsReplicas) {
    ReplicaSet set = ready_set();
    set.add_fixed("http://127.0.0.1:8102", {"127.0.0.1", 8102}, kStart);
    (void)set.on_report(1, report(kSecond, 1), kStart);
    set.on_info(0, {.instance = kFirst, .model_names = {"a"}});
    set.on_info(1, {.instance = kSecond, .model_names = {"b"}});
    EXPECT_EQ(set.mode_for("b", kStart), FleetMode::kServing);
    set.on_gone(1, kStart);
    EXPECT_EQ(set.mode_for("b", kStart), FleetMode::kNone);
    EXPECT_EQ(set.mode_for("a", kStart), FleetMode::kServing);
    EXPECT_EQ(set.mode(kStart), FleetMode::kServing);
    EXPECT_TRUE(set.is_model_known("b")) << "it may come back";
    EXPECT_EQ(set.served_name(""), "a");
}

TEST(ReplicaSetTest, ANewReplicaRisesToItsSlotsWhileAnotherOneIsThere) {
    ReplicaSet set({.silence_down = seconds(600)}, seconds(30));
    set.add_fixed("http://127.0.0.1:8101", {"127.0.0.1", 8101}, kStart);
    set.add_fixed("http://127.0.0.1:8102", {"127.0.0.1", 8102}, kStart);
    (void)set.on_report(0, report(kFirst, 1), kStart);
    EXPECT_EQ(set.snapshot(0, kStart).replicas[0].slots, 8) << "there is no other one";
    (void)set.on_report(1, report(kSecond, 1), kStart + seconds(40));
    const auto slots = [&set](Clock::time_point now) {
        return set.snapshot(0, now).replicas[1].slots;
    };
    EXPECT_EQ(slots(kStart + seconds(40)), 1);
    EXPECT_EQ(slots(kStart + seconds(55)), 4);
    EXPECT_EQ(slots(kStart + seconds(70)), 8);
}

TEST(ReplicaSetTest, ASnapshotHasTheMeasuredRatesAndTheMemoryInUse) {
    ReplicaSet set = ready_set();
    EXPECT_EQ(set.snapshot(0, kStart).replicas[0].prefill_tokens_per_s, kPrefillRateFallback);
    proto::ReplicaStatus status = report(kFirst, 2);
    status.prefill_tokens_per_s = 5000;
    status.decode_tokens_per_s = 300;
    status.kv_blocks_total = 100;
    status.kv_blocks_free = 70;
    status.block_tokens = 64;
    (void)set.on_report(0, status, kStart);
    Charge charge(set.find(0)->account, {.prefill_tokens = 64, .blocks = 14});
    const ReplicaView view = set.snapshot(0, kStart).replicas[0];
    EXPECT_EQ(view.prefill_tokens_per_s, 5000);
    EXPECT_EQ(view.decode_tokens_per_s, 300);
    EXPECT_EQ(view.blocks_used, 44) << "30 in the report, 14 of a charge that it does not contain";
    EXPECT_EQ(view.gpus, 1);

    const auto used = [&set](Clock::time_point now) {
        return set.snapshot(0, now).replicas[0].blocks_used;
    };
    charge.mark_sent(kStart);
    status.seq = 3;
    status.running = 1;
    status.queued_tokens = 65;  // its prefill is under way
    status.kv_blocks_free = 65;
    status.gpus = 4;
    (void)set.on_report(0, status, kStart + kReportLag);
    EXPECT_EQ(used(kStart + kReportLag), 37) << "what is queued will need two more";
    EXPECT_EQ(set.snapshot(0, kStart).replicas[0].gpus, 4);
    EXPECT_EQ(used(kStart + seconds(6)), 14) << "without a fresh report own charges alone";
}

TEST(ReplicaSetTest, TheMemoryOfAPromptIsChargedUntilAReportContainsIt) {
    ReplicaSet set = ready_set();
    proto::ReplicaStatus status = report(kFirst, 2);
    status.kv_blocks_total = status.kv_blocks_free = 100;
    status.block_tokens = 64;
    (void)set.on_report(0, status, kStart);
    const auto used = [&set] { return set.snapshot(0, kStart).replicas[0].blocks_used; };
    Charge charge(set.find(0)->account, {.prefill_tokens = 1, .blocks = 14});
    charge.mark_sent(kStart);
    charge.mark_first_byte(kStart + milliseconds(5), 640);
    EXPECT_EQ(used(), 14) << "the report is older than the first byte";
    status.seq = 3;
    status.running = 1;
    status.kv_blocks_free = 88;
    (void)set.on_report(0, status, kStart + kReportLag);
    EXPECT_EQ(used(), 12);
    charge.release(kStart + kReportLag);
    EXPECT_TRUE(set.find(0)->account->is_idle());
}

TEST(ReplicaSetTest, AnotherInstanceEndsTheOneBefore) {
    ReplicaSet set = ready_set();
    std::vector<InstanceRef> ended;
    set.on_instance_end = [&ended](InstanceRef gone) { ended.push_back(gone); };
    set.on_gone(0, kStart);
    EXPECT_TRUE(ended.empty()) << "it may come back as it was";
    (void)set.on_report(0, report(kSecond, 1), kStart);
    EXPECT_THAT(ended, ElementsAre(InstanceRef{0, 1}));
}

TEST(ReplicaSetTest, ADrainOutlivesTheInstanceAndNotTheWishToRemove) {
    ReplicaSet set = ready_set();
    EXPECT_TRUE(set.set_drain(0, true, kStart));
    EXPECT_FALSE(set.set_drain(0, true, kStart)) << "it was so already";
    EXPECT_EQ(state_of(set), ReplicaState::kDraining);
    EXPECT_EQ(set.mode(kStart), FleetMode::kNone);
    (void)set.on_report(0, report(kSecond, 1), kStart + seconds(1));
    EXPECT_EQ(state_of(set), ReplicaState::kDraining) << "restarted meanwhile";
    EXPECT_TRUE(set.ask_removal(0, kStart + seconds(2)));
    EXPECT_FALSE(set.ask_removal(0, kStart + seconds(2)));
    EXPECT_TRUE(set.find(0)->is_leaving);
    EXPECT_TRUE(set.set_drain(0, false, kStart + seconds(3)));
    EXPECT_FALSE(set.find(0)->is_leaving) << "it is wanted again";
    EXPECT_EQ(state_of(set), ReplicaState::kReady);
    EXPECT_FALSE(set.set_drain(7, true, kStart));
    EXPECT_FALSE(set.ask_removal(7, kStart));
}

TEST(ReplicaSetTest, ARemovedReplicaIsForgottenButItsNumber) {
    ReplicaSet set = ready_set();
    std::vector<int> ended;
    std::vector<std::string> lost;
    set.on_instance_end = [&](InstanceRef instance) { ended.push_back(instance.index); };
    set.on_lost = [&](const Replica& replica, const std::shared_ptr<Account>& account) {
        EXPECT_EQ(replica.state, ReplicaState::kDown);
        lost.push_back(account->instance());
    };
    EXPECT_FALSE(set.was_there(0));
    set.remove(0, kStart);
    EXPECT_THAT(ended, ElementsAre(0));
    EXPECT_THAT(lost, ElementsAre(kFirst));
    EXPECT_EQ(set.find(0), nullptr);
    EXPECT_TRUE(set.was_there(0));
    EXPECT_FALSE(set.was_there(1));
    EXPECT_FALSE(set.was_there(-1));
    EXPECT_EQ(set.on_report(0, report(kFirst, 2), kStart), ReplicaSet::Report::kWrongInstance);
    set.on_gone(0, kStart);
    const Replica& next = set.add_fixed("http://127.0.0.1:8101", {"127.0.0.1", 8101}, kStart);
    EXPECT_EQ(next.index, 1);
    ASSERT_TRUE(set.announce(announcement(proto::ReplicaState::kReady, kSecond), kStart));  // 2
    EXPECT_EQ(set.add_fixed("http://127.0.0.1:1", {"127.0.0.1", 1}, kStart).index, 3);
}

}  // namespace
}  // namespace router

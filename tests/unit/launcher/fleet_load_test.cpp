// The way from ABSENT to READY in the pure core: one load at a time under one lock, the ready
// pipe's protocol, and waiting by progress. Time is simulated; nothing runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/fleet_world.h"

namespace deploy {
namespace {

using enum ReplicaState;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ReplicaStateTest, AllowsExactlyTheTransitionsOfTheTable) {
    EXPECT_TRUE(is_allowed(kAbsent, kWaitVram));
    EXPECT_TRUE(is_allowed(kWaitLock, kWaitVram));
    EXPECT_TRUE(is_allowed(kSelftest, kReady));
    EXPECT_TRUE(is_allowed(kStopping, kUnkillable));
    EXPECT_FALSE(is_allowed(kAbsent, kLoading));  // never without memory and lock
    EXPECT_FALSE(is_allowed(kWaitVram, kLoading));
    EXPECT_FALSE(is_allowed(kLoading, kReady));    // never without a self-test
    EXPECT_FALSE(is_allowed(kBackoff, kLoading));  // restarts go the same way as first starts
    EXPECT_FALSE(is_allowed(kQuarantined, kReady));
    for (int i = 0; i < proto::kReplicaStateCount; ++i) {
        const auto state = static_cast<ReplicaState>(i);
        EXPECT_FALSE(is_allowed(state, state)) << name_of(state);
    }
}

TEST(FleetLoadTest, LoadsStrictlyOneAfterAnother) {
    FleetWorld world(4);
    world.begin();
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(world.spawned.size(), static_cast<std::size_t>(i + 1));
        EXPECT_EQ(world.state(i), kLoading);
        EXPECT_TRUE(world.is_file_locked);
        world.say_ready(i);
        EXPECT_EQ(world.state(i), kReady);
    }
    EXPECT_THAT(world.spawned, ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(world.file_locks_taken, 4);  // given back between loads, so others get a turn
    EXPECT_FALSE(world.is_file_locked);
    EXPECT_EQ(world.routers_spawned, 1);
}

TEST(FleetLoadTest, HoldsTheLockUntilDeathAndGivesItOnAtOnce) {
    FleetWorld world(2);
    world.begin();
    world.say(0, proto::HelloEvent{});
    world.die(0, SIGKILL);
    EXPECT_EQ(world.state(0), kBackoff);
    EXPECT_THAT(world.spawned, ElementsAre(0, 1));  // without waiting for replica 0's backoff
    world.pass(seconds(3));
    EXPECT_EQ(world.state(0), kWaitLock);  // back in the line, behind replica 1
    world.say_ready(1);
    EXPECT_THAT(world.spawned, ElementsAre(0, 1, 0));
}

TEST(FleetLoadTest, TwoReplicasThatCrashTogetherComeBackOneAfterTheOther) {
    FleetWorld world(3);
    world.all_ready();
    world.die(1, SIGSEGV);
    world.die(2, SIGSEGV);
    world.pass(seconds(3));
    ASSERT_EQ(world.spawned.size(), 4U);  // one of the two
    const int first = world.spawned.back();
    world.pass(seconds(1));
    EXPECT_EQ(world.spawned.size(), 4U);
    world.say_ready(first);
    EXPECT_EQ(world.spawned.size(), 5U);
    EXPECT_NE(world.spawned.back(), first);
}

TEST(FleetLoadTest, WaitsForTheFileLockOfAnotherLauncherAndSaysForWhom) {
    FleetWorld world(1);
    world.is_file_lock_free = false;
    world.begin();
    world.pass(seconds(200));  // a wait for the lock is never too long
    EXPECT_EQ(world.state(0), kWaitLock);
    EXPECT_TRUE(world.spawned.empty());
    EXPECT_THAT(world.log(), HasSubstr("waits for the load lock of the launcher with pid 7"));
    world.is_file_lock_free = true;
    world.pass(seconds(1));
    EXPECT_EQ(world.state(0), kLoading);
}

TEST(FleetLoadTest, WaitsForMemoryAndBacksOffWithTheNumbers) {
    FleetWorld world(2);
    world.is_memory_enough = false;
    world.begin();
    world.pass(seconds(59));
    EXPECT_EQ(world.state(0), kWaitVram);
    world.pass(seconds(2));
    EXPECT_EQ(world.state(0), kBackoff);
    EXPECT_TRUE(world.spawned.empty());
    EXPECT_THAT(world.replica(0).last_failure->why, HasSubstr("need 2 have 1"));
    world.is_memory_enough = true;
    world.pass(seconds(3));
    EXPECT_EQ(world.spawned.size(), 1U);
}

TEST(FleetLoadTest, MeasuresMemoryAgainUnderTheLock) {
    FleetWorld world(2);
    world.begin();
    ASSERT_EQ(world.state(1), kWaitLock);
    world.is_memory_enough = false;  // taken while replica 0 loads
    world.say_ready(0);
    EXPECT_EQ(world.state(1), kWaitVram);
    EXPECT_FALSE(world.is_file_locked);
    EXPECT_THAT(world.spawned, ElementsAre(0));
}

TEST(FleetLoadTest, LeavesASlowLoadAloneWhileItProgresses) {
    FleetWorld world(1);
    world.begin();
    world.say(0, proto::HelloEvent{});
    for (std::uint64_t minute = 1; minute <= 60; ++minute) {
        world.pass(seconds(100));  // an hour and more in all; each step within load_stall
        world.say_phase(0, kLoading, minute);
    }
    EXPECT_EQ(world.state(0), kLoading);
    EXPECT_EQ(world.signals(0, SIGKILL), 0);
}

TEST(FleetLoadTest, KillsALoadThatStopsProgressing) {
    FleetWorld world(1);
    world.begin();
    world.say(0, proto::HelloEvent{});
    world.say_phase(0, kLoading, 10);
    for (int i = 0; i < 25; ++i) {
        world.pass(seconds(5));
        if (world.state(0) == kLoading) world.say_phase(0, kLoading, 10);  // words, no progress
    }
    EXPECT_EQ(world.state(0), kStopping);
    EXPECT_EQ(world.signals(0, SIGKILL), 1);
    world.die(0, SIGKILL);
    EXPECT_EQ(world.state(0), kBackoff);
    EXPECT_EQ(world.replica(0).last_failure->kind, FailureClass::kStalled);
}

TEST(FleetLoadTest, WantsHelloWithinFiveSeconds) {
    FleetWorld world(1);
    world.begin();
    world.pass(Duration{4'900});
    EXPECT_EQ(world.state(0), kLoading);
    world.pass(Duration{200});
    EXPECT_EQ(world.state(0), kStopping);
    EXPECT_EQ(world.replica(0).condemned->kind, FailureClass::kStalled);
}

TEST(FleetLoadTest, TimeInTheLineNeverCountsAgainstALoad) {
    FleetWorld world(2);
    world.begin();
    world.say(0, proto::HelloEvent{});
    for (std::uint64_t i = 1; i < 10; ++i) {
        world.pass(seconds(110));
        world.say_phase(0, kLoading, i);
    }
    world.say_phase(0, kLoading, 100);
    world.say_phase(0, kWarming, 1);
    world.say_phase(0, kSelftest, 1);
    world.say(0, proto::KernelsEvent{});
    world.say(0, proto::SelftestEvent{.passed = true, .tokens_sha256 = "x"});
    world.say(0, proto::ReadyEvent{.gpu_uuids = {"CPU-0"}});
    EXPECT_EQ(world.state(1), kLoading);  // after a quarter of an hour in WAIT_LOCK
}

TEST(FleetLoadTest, NothingFiresAfterASuspension) {
    FleetWorld world(2);
    world.begin();
    world.say(0, proto::HelloEvent{});
    world.now += std::chrono::hours(1);  // the whole machine slept
    world.give(Tick{});
    EXPECT_EQ(world.state(0), kLoading);
    world.pass(seconds(119));
    EXPECT_EQ(world.state(0), kLoading);
    world.pass(seconds(2));
    EXPECT_EQ(world.state(0), kStopping);
}

/// One way to break the protocol of the ready pipe.
struct Breach {
    const char* name;
    void (*commit)(FleetWorld&);
};

class ProtocolBreachTest : public testing::TestWithParam<Breach> {};

TEST_P(ProtocolBreachTest, KillsAndBacksOff) {
    FleetWorld world(1);
    world.begin();
    GetParam().commit(world);
    EXPECT_EQ(world.state(0), kStopping);
    EXPECT_EQ(world.signals(0, SIGKILL), 1);
    world.die(0, SIGKILL);
    EXPECT_EQ(world.state(0), kBackoff);
    EXPECT_EQ(world.replica(0).last_failure->kind, FailureClass::kProtocol);
}

INSTANTIATE_TEST_SUITE_P(
    All, ProtocolBreachTest,
    testing::Values(Breach{"WrongInstance",
                           [](FleetWorld& w) {
                               w.give(ReplicaSaid{
                                   0,
                                   {.instance = "0123456789abcdef", .event = proto::HelloEvent{}}});
                           }},
                    Breach{"GarbledLine",
                           [](FleetWorld& w) {
                               w.give(ReplicaGarbled{0, "no JSON"});
                           }},
                    Breach{"SecondHello",
                           [](FleetWorld& w) {
                               w.say(0, proto::HelloEvent{});
                               w.say(0, proto::HelloEvent{});
                           }},
                    Breach{"PhaseBeforeHello", [](FleetWorld& w) { w.say_phase(0, kLoading, 1); }},
                    Breach{"PhaseLeftOut",
                           [](FleetWorld& w) {
                               w.say(0, proto::HelloEvent{});
                               w.say_phase(0, kSelftest, 1);
                           }},
                    Breach{"PhaseBackwards",
                           [](FleetWorld& w) {
                               w.say(0, proto::HelloEvent{});
                               w.say_phase(0, kWarming, 1);
                               w.say_phase(0, kLoading, 1);
                           }},
                    Breach{"PhaseReady",
                           [](FleetWorld& w) {
                               w.say(0, proto::HelloEvent{});
                               w.say_phase(0, kReady, 1);
                           }},
                    Breach{"ReadyWithoutSelftest",
                           [](FleetWorld& w) {
                               w.say_until_selftest(0);
                               w.say(0, proto::ReadyEvent{.gpu_uuids = {"CPU-0"}});
                           }},
                    Breach{"SelftestWhileLoading",
                           [](FleetWorld& w) {
                               w.say(0, proto::HelloEvent{});
                               w.say(0, proto::SelftestEvent{.passed = true, .tokens_sha256 = "x"});
                           }}),
    [](const auto& one) { return one.param.name; });

TEST(FleetLoadTest, AnEarlierProcessWordsAreNoOnesWords) {
    FleetWorld world(1);
    world.begin();
    const std::string old_instance = world.replica(0).instance;
    world.die(0, SIGKILL);
    world.pass(seconds(2));
    ASSERT_EQ(world.state(0), kLoading);
    EXPECT_NE(world.replica(0).instance, old_instance);
    world.give(ReplicaSaid{0, {.instance = old_instance, .event = proto::HelloEvent{}}});
    EXPECT_EQ(world.state(0), kStopping);
}

TEST(FleetLoadTest, LaterReplicasMustAnswerTheSelftestLikeTheFirst) {
    FleetWorld world(2);
    world.begin();
    world.say_ready(0, "aaaa");
    world.say_until_selftest(1);
    world.say(1, proto::SelftestEvent{.passed = true, .tokens_sha256 = "bbbb"});
    EXPECT_EQ(world.state(1), kStopping);
    world.die(1, SIGKILL);
    EXPECT_EQ(world.replica(1).last_failure->kind, FailureClass::kSelftest);
    EXPECT_THAT(world.replica(1).last_failure->why, HasSubstr("expected aaaa, got bbbb"));
}

TEST(FleetLoadTest, WrongPlacementIsQuarantinedAtOnce) {
    FleetWorld world(2);
    world.begin();
    world.say_ready(0);
    world.say_until_selftest(1);
    world.say(1, proto::SelftestEvent{.passed = true, .tokens_sha256 = "same"});
    world.say(1, proto::ReadyEvent{.gpu_uuids = {"CPU-7"}});
    world.die(1, SIGKILL);
    EXPECT_EQ(world.state(1), kQuarantined);
    EXPECT_EQ(exit_code_of(world.replica(1).last_failure->kind), 9);
}

TEST(FleetLoadTest, AMissingKernelIsShownAndServed) {
    FleetWorld world(1);
    world.begin();
    world.say(0, proto::HelloEvent{});
    world.say_phase(0, kWarming, 1);
    world.say_phase(0, kSelftest, 1);
    world.say(0, proto::KernelsEvent{{{"attention_decode", "armed", ""},
                                      {"matmul_mma", "wrong_arch", "needs sm_90"}}});
    world.say(0, proto::SelftestEvent{.passed = true, .tokens_sha256 = "x"});
    world.say(0, proto::ReadyEvent{.gpu_uuids = {"CPU-0"}});
    EXPECT_EQ(world.state(0), kReady);
    EXPECT_EQ(world.replica(0).degraded, "matmul_mma wrong_arch");
}

TEST(FleetLoadTest, SettlesBeforeItIsReadyAndKeepsTheLockMeanwhile) {
    FleetWorld world(2, {.settle = Duration{3'000}});
    world.begin();
    world.say_ready(0);
    EXPECT_EQ(world.state(0), kSelftest);
    EXPECT_THAT(world.spawned, ElementsAre(0));
    world.pass(seconds(4));
    EXPECT_EQ(world.state(0), kReady);
    EXPECT_THAT(world.spawned, ElementsAre(0, 1));
}

TEST(FleetLoadTest, AnnouncesEveryChangeOfState) {
    FleetWorld world(1);
    world.all_ready();
    const std::vector<std::pair<int, ReplicaState>> expected{
        {0, kWaitVram}, {0, kWaitLock}, {0, kLoading}, {0, kWarming}, {0, kSelftest}, {0, kReady}};
    EXPECT_EQ(world.announced, expected);
}

TEST(FleetLoadTest, EstimatesWhenReplicasWillBeReady) {
    FleetWorld world(3);
    world.begin();
    world.say(0, proto::HelloEvent{});
    world.pass(seconds(4));
    world.say_phase(0, kLoading, 100);
    world.pass(seconds(6));
    world.say_phase(0, kWarming, 1);
    world.say_phase(0, kSelftest, 1);
    world.say(0, proto::KernelsEvent{});
    world.say(0, proto::SelftestEvent{.passed = true, .tokens_sha256 = "x"});
    world.say(0, proto::ReadyEvent{.gpu_uuids = {"CPU-0"}});  // took 10 s
    EXPECT_EQ(eta_s(world.fleet, 0, world.now), 0);
    EXPECT_NEAR(eta_s(world.fleet, 1, world.now), 10, 0.5);
    EXPECT_NEAR(eta_s(world.fleet, 2, world.now), 20, 0.5);
}

}  // namespace
}  // namespace deploy

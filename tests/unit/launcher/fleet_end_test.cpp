// Failures, stopping and the router in the pure core: who is restarted, who is quarantined, what a
// first, second and third TERM do. Time is simulated; nothing runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/fleet_world.h"

namespace deploy {
namespace {

using enum ReplicaState;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(FleetEndTest, BacksOffLongerEachTimeWithinItsJitter) {
    FleetWorld world(1, {.crash_limit = 100});
    world.begin();
    for (const double expected_s : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0}) {
        world.die(0, SIGKILL);
        ASSERT_EQ(world.state(0), kBackoff);
        const double delay_s =
            std::chrono::duration<double>(world.replica(0).retry_at - world.now).count();
        EXPECT_GE(delay_s, expected_s * 0.79);
        EXPECT_LE(delay_s, expected_s * 1.21);
        while (world.state(0) == kBackoff)
            world.pass(seconds(1));
        ASSERT_EQ(world.state(0), kLoading);
    }
}

TEST(FleetEndTest, ThreeDeathsWithoutALongReadyBetweenQuarantine) {
    FleetWorld world(2);
    world.all_ready();
    for (int death = 0; death < 3; ++death) {
        EXPECT_NE(world.state(1), kQuarantined);
        world.die(1, SIGSEGV);
        world.pass(seconds(3));
        if (world.state(1) == kLoading) world.say_ready(1);
    }
    EXPECT_EQ(world.state(1), kQuarantined);
    EXPECT_FALSE(world.is_file_locked);
    EXPECT_EQ(world.state(0), kReady);  // one bad replica never stops the others
    EXPECT_FALSE(world.exit_code.has_value());
    world.give(ReplicaOrder{1, Order::kRetry});
    EXPECT_EQ(world.state(1), kLoading);
}

TEST(FleetEndTest, AMinuteOfReadyForgetsEarlierDeaths) {
    FleetWorld world(1);
    world.all_ready();
    for (int death = 0; death < 5; ++death) {
        for (int i = 0; i < 7; ++i) {
            world.pass(seconds(10));
            world.give(WorkReported{.replica = 0, .step = 1});
        }
        world.die(0, SIGSEGV);
        world.pass(seconds(2));
        ASSERT_EQ(world.state(0), kLoading) << "after death " << death;
        world.say_ready(0);
    }
    EXPECT_EQ(world.state(0), kReady);
}

TEST(FleetEndTest, PermanentCausesAreNotRetried) {
    for (const int code : {2, 4, 7, 9}) {
        FleetWorld world(2);
        world.begin();
        world.exit(0, code);
        EXPECT_EQ(world.state(0), kQuarantined) << "exit " << code;
        EXPECT_THAT(world.spawned, ElementsAre(0, 1)) << "exit " << code;
    }
    for (const int code : {1, 5, 8, 77}) {
        FleetWorld world(2);
        world.begin();
        world.exit(0, code);
        EXPECT_EQ(world.state(0), kBackoff) << "exit " << code;
    }
}

TEST(FleetEndTest, ItsOwnLastWordsNameTheCause) {
    FleetWorld world(2);
    world.begin();
    world.say(0, proto::HelloEvent{});
    world.say(0, proto::FatalEvent{.id = "Q0412",
                                   .error_class = "model_file",
                                   .what = "shard 3 is short",
                                   .why = "ends at 5",
                                   .fix = "copy it again"});
    world.exit(0, 1);  // even if its exit code says less
    EXPECT_EQ(world.state(0), kQuarantined);
    EXPECT_EQ(world.replica(0).last_failure->what, "shard 3 is short");
}

TEST(FleetEndTest, EndsWithTheClassWhenNothingEverBecameReady) {
    FleetWorld world(2);
    world.begin();
    world.exit(0, 4);
    EXPECT_FALSE(world.exit_code.has_value());
    world.exit(1, 4);
    EXPECT_EQ(world.router_signals(SIGTERM), 2);  // the second spares its grace time
    world.give(RouterDied{});
    ASSERT_TRUE(world.exit_code.has_value());
    EXPECT_EQ(*world.exit_code, 4);
}

TEST(FleetEndTest, StaysUpWhenAllAreQuarantinedAfterTheFirstReady) {
    FleetWorld world(1);
    world.all_ready();
    world.exit(0, 4);
    EXPECT_EQ(world.state(0), kQuarantined);
    EXPECT_FALSE(world.exit_code.has_value());
}

TEST(FleetEndTest, HostMemoryIsNamedOnlyWithEvidence) {
    EXPECT_EQ(classify({.wait_status = SIGKILL}).kind, FailureClass::kSignal);
    EXPECT_EQ(classify({.wait_status = SIGKILL, .is_host_memory = true}).kind,
              FailureClass::kHostMemory);
    EXPECT_THAT(classify({.wait_status = SIGSEGV, .last_line = "boom"}).why, HasSubstr("boom"));
}

TEST(FleetEndTest, ALineThatHasNothingToDoWithADeathIsNotItsReason) {
    const std::string routine = "2026-11-30T12:37:31.873 info replica access method=GET status=200";
    EXPECT_THAT(classify({.wait_status = SIGKILL, .last_line = "boom"}).why,
                HasSubstr("another process sent it"));
    EXPECT_EQ(classify({.wait_status = SIGSEGV, .last_line = routine}).why, "");
    EXPECT_EQ(classify({.wait_status = 1 << 8, .last_line = routine}).why, "");
    const std::string error = "2026-11-30T12:37:31.873 error replica device lost, more info below";
    EXPECT_EQ(classify({.wait_status = 1 << 8, .last_line = error}).why, error);
}

TEST(FleetEndTest, AWedgedReplicaIsKilledAndALongPrefillIsNot) {
    FleetWorld world(2);
    world.all_ready();
    for (std::uint64_t second = 1; second <= 70; ++second) {
        world.pass(seconds(1));
        world.give(WorkReported{.replica = 0, .step = 5, .running = 1});       // stands still
        world.give(WorkReported{.replica = 1, .step = second, .running = 1});  // makes steps
    }
    EXPECT_EQ(world.signals(0, SIGKILL), 1);
    EXPECT_EQ(world.state(0), kStopping);
    EXPECT_EQ(world.state(1), kReady);
    world.die(0, SIGKILL);
    EXPECT_EQ(world.replica(0).last_failure->kind, FailureClass::kWedged);
    EXPECT_EQ(world.state(0), kBackoff);
}

TEST(FleetEndTest, ASilentReplicaIsWedged) {
    FleetWorld world(1);
    world.all_ready();
    world.pass(seconds(59));
    EXPECT_EQ(world.state(0), kReady);
    world.pass(seconds(2));
    EXPECT_EQ(world.state(0), kStopping);
}

TEST(FleetEndTest, StopLetsTheRouterFinishThenEndsTheReplicasTogether) {
    FleetWorld world(2);
    world.all_ready();
    world.give(StopAsked{});
    EXPECT_EQ(world.router_signals(SIGTERM), 1);
    EXPECT_EQ(world.state(0), kReady);  // still serves what the router has
    for (int i = 0; i < 100; ++i) {
        world.pass(seconds(3));
        for (int r = 0; r < 2; ++r)
            world.give(WorkReported{.replica = r, .step = 1});
    }
    EXPECT_EQ(world.state(0), kReady);
    world.give(RouterDied{});
    EXPECT_EQ(world.signals(0, SIGTERM), 1);
    EXPECT_EQ(world.signals(1, SIGTERM), 1);
    world.exit(0, 0);
    EXPECT_FALSE(world.exit_code.has_value());
    world.exit(1, 0);
    EXPECT_EQ(world.exit_code, 0);
}

TEST(FleetEndTest, StopWhileLoadingEndsThatChildAtOnceAndStartsNoOther) {
    FleetWorld world(3);
    world.begin();
    world.say_ready(0);
    world.give(StopAsked{});
    EXPECT_EQ(world.signals(1, SIGTERM), 1);
    EXPECT_EQ(world.state(1), kStopping);
    EXPECT_EQ(world.state(2), kAbsent);
    world.exit(1, 0);
    EXPECT_EQ(world.state(1), kAbsent);
    EXPECT_THAT(world.spawned, ElementsAre(0, 1));
    EXPECT_FALSE(world.is_file_locked);
    world.give(RouterDied{});
    world.exit(0, 0);
    EXPECT_EQ(world.exit_code, 0);
}

TEST(FleetEndTest, NothingIsRestartedWhileStopping) {
    FleetWorld world(2);
    world.all_ready();
    world.give(StopAsked{});
    world.die(0, SIGSEGV);
    EXPECT_EQ(world.state(0), kAbsent);
    world.give(RouterDied{});
    world.exit(1, 0);
    EXPECT_EQ(world.exit_code, 0);
    EXPECT_THAT(world.spawned, ElementsAre(0, 1));
    EXPECT_EQ(world.routers_spawned, 1);
}

TEST(FleetEndTest, KillFollowsATermThatIsRefused) {
    FleetWorld world(1);
    world.all_ready();
    world.give(StopAsked{});
    world.give(RouterDied{});
    world.pass(Duration{9'900});
    EXPECT_EQ(world.signals(0, SIGKILL), 0);
    world.pass(Duration{200});
    EXPECT_EQ(world.signals(0, SIGKILL), 1);
}

TEST(FleetEndTest, AProcessThatSurvivesKillIsUnkillableAndTheOthersServe) {
    FleetWorld world(2);
    world.all_ready();
    for (int i = 0; i < 120; ++i) {  // wedged, killed, and it stays
        world.pass(seconds(1));
        world.give(WorkReported{.replica = 0, .step = 5, .running = 1});
        world.give(WorkReported{.replica = 1, .step = 5, .running = 0});
    }
    EXPECT_EQ(world.state(0), kUnkillable);
    EXPECT_EQ(world.state(1), kReady);
    EXPECT_THAT(world.log(), HasSubstr("survives KILL"));
    world.give(StopAsked{});
    world.give(RouterDied{});
    world.exit(1, 0);
    EXPECT_EQ(world.exit_code, 11);
}

TEST(FleetEndTest, ASecondStopHurriesAndAThirdKills) {
    FleetWorld world(1);
    world.all_ready();
    world.give(StopAsked{});
    world.give(StopAsked{});
    EXPECT_EQ(world.router_signals(SIGTERM), 2);
    world.pass(seconds(3));
    EXPECT_EQ(world.router_signals(SIGKILL), 1);
    world.give(StopAsked{});
    EXPECT_EQ(world.signals(0, SIGKILL), 1);
    world.die(0, SIGKILL);
    world.give(RouterDied{});
    EXPECT_EQ(world.exit_code, 0);
}

TEST(FleetEndTest, TheRouterIsRestartedAtOnceThenWithBackoff) {
    FleetWorld world(1);
    world.all_ready();
    world.give(RouterDied{{.wait_status = SIGKILL}});
    EXPECT_EQ(world.routers_spawned, 2);  // no tick needed
    EXPECT_EQ(world.state(0), kReady);
    world.give(RouterDied{{.wait_status = SIGKILL}});
    EXPECT_EQ(world.routers_spawned, 2);
    EXPECT_TRUE(world.is_router_guarded);
    world.pass(seconds(2));
    EXPECT_EQ(world.routers_spawned, 3);
    EXPECT_FALSE(world.is_router_guarded);
    EXPECT_THAT(world.spawned, ElementsAre(0));  // no replica was touched
}

TEST(FleetEndTest, ARouterWithBadOptionsEndsTheFleet) {
    FleetWorld world(1);
    world.begin();
    world.give(RouterDied{{.wait_status = 2 << 8}});
    EXPECT_EQ(world.signals(0, SIGTERM), 1);
    world.exit(0, 0);
    EXPECT_EQ(world.exit_code, 2);
}

TEST(FleetEndTest, OptionsThatWentBadLaterAreWaitedForWhileReplicasStayLoaded) {
    FleetWorld world(1);
    world.all_ready();
    world.give(RouterDied{{.wait_status = SIGKILL}});
    EXPECT_EQ(world.routers_spawned, 2);
    world.give(RouterDied{{.wait_status = 2 << 8}});  // its key file, say
    EXPECT_EQ(world.routers_spawned, 2);
    EXPECT_TRUE(world.is_router_guarded);
    EXPECT_EQ(world.signals(0, SIGTERM), 0);
    world.pass(seconds(2));
    EXPECT_EQ(world.routers_spawned, 3);
    EXPECT_EQ(world.state(0), kReady);
}

TEST(FleetEndTest, RestartDrainsFirstAndLoadsAgainUnderTheLock) {
    FleetWorld world(2);
    world.all_ready();
    world.give(WorkReported{.replica = 1, .step = 1, .running = 1});
    world.give(ReplicaOrder{1, Order::kRestart});
    EXPECT_EQ(world.state(1), kDraining);
    for (std::uint64_t step = 2; step < 20; ++step) {
        world.pass(seconds(1));
        world.give(WorkReported{.replica = 0, .step = 1});
        world.give(WorkReported{.replica = 1, .step = step, .running = 1});
    }
    EXPECT_EQ(world.state(1), kDraining);
    world.give(WorkReported{.replica = 1, .step = 20});
    world.pass(seconds(1));
    EXPECT_EQ(world.state(1), kStopping);
    world.exit(1, 0);
    EXPECT_EQ(world.state(1), kLoading);
    EXPECT_THAT(world.spawned, ElementsAre(0, 1, 1));
}

TEST(FleetEndTest, ADrainedReplicaStaysAwayUntilUndrained) {
    FleetWorld world(1);
    world.all_ready();
    world.give(ReplicaOrder{0, Order::kDrain});
    world.pass(seconds(1));
    world.give(WorkReported{.replica = 0, .step = 1});
    EXPECT_EQ(world.state(0), kStopping);  // no tick was needed
    world.exit(0, 0);
    world.pass(seconds(100));
    EXPECT_EQ(world.state(0), kAbsent);
    EXPECT_THAT(refusal_of(world.fleet, {0, Order::kRetry}), HasSubstr("ABSENT"));
    world.give(ReplicaOrder{0, Order::kUndrain});
    EXPECT_EQ(world.state(0), kLoading);
}

TEST(FleetEndTest, ADrainAtTheRouterLeavesTheProcessAndLastsOverItsRestarts) {
    FleetWorld world(1);
    world.all_ready();
    world.give(ReplicaOrder{0, Order::kSetAside});
    EXPECT_EQ(world.state(0), kDraining);
    EXPECT_TRUE(is_drained(world.replica(0)));
    for (std::uint64_t second = 0; second < 700; ++second) {  // past every deadline
        world.pass(seconds(1));
        world.give(WorkReported{.replica = 0, .step = 1});
    }
    EXPECT_EQ(world.state(0), kDraining);
    EXPECT_EQ(world.signals(0, SIGTERM), 0);
    world.die(0, SIGKILL);
    world.pass(seconds(2));
    world.say_ready(0);
    EXPECT_EQ(world.state(0), kDraining);
    world.give(ReplicaOrder{0, Order::kRestart});
    world.pass(seconds(1));
    world.give(WorkReported{.replica = 0, .step = 1});
    EXPECT_EQ(world.state(0), kStopping);
    world.exit(0, 0);
    world.say_ready(0);
    EXPECT_EQ(world.state(0), kDraining);
    world.give(ReplicaOrder{0, Order::kUndrain});
    EXPECT_EQ(world.state(0), kReady);
    EXPECT_FALSE(is_drained(world.replica(0)));
}

TEST(FleetEndTest, EitherDrainCanFollowTheOtherAndOneUndrainEndsBoth) {
    FleetWorld world(1);
    world.all_ready();
    world.give(ReplicaOrder{0, Order::kSetAside});
    world.give(ReplicaOrder{0, Order::kDrain});
    world.pass(seconds(1));
    world.give(WorkReported{.replica = 0, .step = 1});
    EXPECT_EQ(world.state(0), kStopping);
    world.exit(0, 0);
    EXPECT_EQ(world.state(0), kAbsent);
    EXPECT_TRUE(is_drained(world.replica(0)));
    world.give(ReplicaOrder{0, Order::kUndrain});
    EXPECT_EQ(world.state(0), kLoading);
    world.say_ready(0);
    EXPECT_EQ(world.state(0), kReady);
}

TEST(FleetEndTest, UndrainOfOneThatIsStoppingBringsItBackWhenItHasEnded) {
    FleetWorld world(1);
    world.all_ready();
    world.give(ReplicaOrder{0, Order::kDrain});
    world.pass(seconds(1));
    world.give(WorkReported{.replica = 0, .step = 1});
    ASSERT_EQ(world.state(0), kStopping);
    ASSERT_EQ(refusal_of(world.fleet, {0, Order::kUndrain}), "");
    world.give(ReplicaOrder{0, Order::kUndrain});
    world.exit(0, 0);
    EXPECT_EQ(world.state(0), kLoading);
}

TEST(FleetEndTest, OrdersThatMakeNoSenseAreRefusedInWords) {
    FleetWorld world(2);
    world.all_ready();
    EXPECT_THAT(refusal_of(world.fleet, {7, Order::kRestart}), HasSubstr("no replica 7"));
    EXPECT_THAT(refusal_of(world.fleet, {-1, Order::kRestart}), HasSubstr("no replica -1"));
    EXPECT_THAT(refusal_of(world.fleet, {0, Order::kRetry}), HasSubstr("READY"));
    EXPECT_THAT(refusal_of(world.fleet, {0, Order::kUndrain}), HasSubstr("not drained"));
    EXPECT_EQ(refusal_of(world.fleet, {0, Order::kRestart}), "");
    world.give(StopAsked{});
    EXPECT_THAT(refusal_of(world.fleet, {0, Order::kRestart}), HasSubstr("stopping"));
}

TEST(FleetEndTest, AnOrderForAWaitingReplicaLeavesTheLineInOrder) {
    FleetWorld world(3);
    world.begin();
    world.give(ReplicaOrder{1, Order::kDrain});
    EXPECT_EQ(world.state(1), kAbsent);
    world.say_ready(0);
    EXPECT_THAT(world.spawned, ElementsAre(0, 2));
}

}  // namespace
}  // namespace deploy

// A restart of the router in the pure core: who serves when, what a bad successor costs, what
// happens to those that still finish their requests, and what a stop or a death in between comes
// to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/fleet_world.h"

namespace deploy {
namespace {

using proto::RouterNews;
using std::chrono::seconds;
using testing::HasSubstr;

FleetWorld serving() {
    FleetWorld world(1);
    world.all_ready();
    world.give(RouterSaid{world.fleet.router.pid, RouterNews::kServing});
    return world;
}

int successor_pid(const FleetWorld& world) {
    return world.fleet.successor.has_value() ? world.fleet.successor->pid : -1;
}

void successor_serves(FleetWorld& world) {
    world.give(RouterSaid{successor_pid(world), RouterNews::kServing});
}

/// A restart in which everything goes well; returns the pid of the router that retires.
int restart(FleetWorld& world) {
    const int pid = world.fleet.router.pid;
    world.give(RestartRouter{});
    successor_serves(world);
    world.give(RouterSaid{pid, RouterNews::kLetGo});
    return pid;
}

TEST(FleetRouterTest, TheRouterLetsGoOnceItsSuccessorServes) {
    FleetWorld world = serving();
    const int old_pid = world.fleet.router.pid;
    world.give(RestartRouter{});
    EXPECT_EQ(world.successors_spawned, 1);
    EXPECT_EQ(world.fleet.router.pid, old_pid);
    EXPECT_EQ(world.other_router_signals(old_pid, SIGUSR1), 0) << "it still serves alone";
    EXPECT_THAT(router_restart_refusal(world.fleet), HasSubstr("already"));
    const int new_pid = successor_pid(world);
    successor_serves(world);
    EXPECT_EQ(world.routers_retired, 1);
    EXPECT_EQ(world.successors_promoted, 1);
    EXPECT_EQ(world.fleet.router.pid, new_pid);
    EXPECT_EQ(world.other_router_signals(old_pid, SIGUSR1), 1);
    EXPECT_EQ(router_restart_refusal(world.fleet), "");
    ASSERT_EQ(world.fleet.retired_routers.size(), 1U);
    EXPECT_FALSE(world.fleet.retired_routers[0].has_let_go);
    world.give(RouterSaid{old_pid, RouterNews::kLetGo});
    EXPECT_TRUE(world.fleet.retired_routers[0].has_let_go);
    world.give(OtherRouterDied{old_pid, {}});
    EXPECT_TRUE(world.fleet.retired_routers.empty());
    EXPECT_EQ(world.routers_spawned, 1) << "its end is no death";
    EXPECT_EQ(world.fleet.router.restarts, 1);
}

TEST(FleetRouterTest, OneThatDoesNotLetGoIsAskedAgain) {
    FleetWorld world = serving();
    const int old_pid = world.fleet.router.pid;
    world.give(RestartRouter{});
    successor_serves(world);
    world.pass(seconds(1));
    world.pass(seconds(1));
    EXPECT_GE(world.other_router_signals(old_pid, SIGUSR1), 2);
    world.give(RouterSaid{old_pid, RouterNews::kLetGo});
    const int asked = world.other_router_signals(old_pid, SIGUSR1);
    world.pass(seconds(1));
    EXPECT_EQ(world.other_router_signals(old_pid, SIGUSR1), asked);
}

TEST(FleetRouterTest, ASuccessorThatDiesChangesNothing) {
    FleetWorld world = serving();
    const int old_pid = world.fleet.router.pid;
    world.give(RestartRouter{});
    world.give(OtherRouterDied{successor_pid(world), {.wait_status = 2 << 8}});
    EXPECT_EQ(world.fleet.router.pid, old_pid);
    EXPECT_EQ(world.fleet.router.state, RouterState::kRunning);
    EXPECT_EQ(world.other_router_signals(old_pid, SIGUSR1), 0);
    EXPECT_NE(world.fleet.successor_failure, "");
    EXPECT_THAT(world.log(), HasSubstr("the old ones stay in use"));
    EXPECT_EQ(router_restart_refusal(world.fleet), "") << "it may be tried again";
    world.give(RestartRouter{});
    EXPECT_EQ(world.fleet.successor_failure, "");
    successor_serves(world);
    EXPECT_EQ(world.successors_promoted, 1);
}

TEST(FleetRouterTest, OneThatCannotEvenBeStartedChangesNothing) {
    FleetWorld world = serving();
    world.give(RestartRouter{});
    world.fleet.successor->pid = 0;  // the answer was not SuccessorSpawned
    world.give(OtherRouterDied{0, {.wait_status = 1 << 8, .last_line = "no such program"}});
    EXPECT_THAT(world.fleet.successor_failure, HasSubstr("no such program"));
    EXPECT_EQ(world.fleet.router.state, RouterState::kRunning);
}

TEST(FleetRouterTest, ASuccessorThatDoesNotComeUpIsKilledInTime) {
    FleetWorld world = serving();
    world.give(RestartRouter{});
    const int pid = successor_pid(world);
    const auto pass = [&world](int count) {
        for (int i = 0; i < count; ++i) {
            world.pass(seconds(1));
            world.give(WorkReported{.replica = 0});
        }
    };
    pass(9);
    EXPECT_EQ(world.other_router_signals(pid, SIGKILL), 0);
    pass(2);
    EXPECT_EQ(world.other_router_signals(pid, SIGKILL), 1);
    EXPECT_THAT(router_restart_refusal(world.fleet), HasSubstr("already")) << "it still lives";
    world.give(OtherRouterDied{pid, {.wait_status = SIGKILL}});
    EXPECT_THAT(world.fleet.successor_failure, HasSubstr("did not serve within 10 s"));
    EXPECT_EQ(world.fleet.router.state, RouterState::kRunning);
    EXPECT_EQ(world.routers_spawned, 1);
}

TEST(FleetRouterTest, TheSuccessorTakesThePlaceOfARouterThatDiesBesideIt) {
    FleetWorld world = serving();
    world.give(RestartRouter{});
    const int pid = successor_pid(world);
    world.give(RouterDied{{.wait_status = SIGKILL}});
    world.pass(seconds(1));
    EXPECT_EQ(world.routers_spawned, 1) << "one is on its way";
    EXPECT_FALSE(world.is_router_guarded);
    successor_serves(world);
    EXPECT_EQ(world.fleet.router.pid, pid);
    EXPECT_TRUE(world.fleet.retired_routers.empty());
}

TEST(FleetRouterTest, WhereBothDieARouterWithTheOldSettingsStartsAtOnce) {
    FleetWorld world = serving();
    world.give(RestartRouter{});
    const int pid = successor_pid(world);
    world.give(RouterDied{{.wait_status = SIGKILL}});
    world.give(OtherRouterDied{pid, {.wait_status = SIGKILL}});
    EXPECT_EQ(world.routers_spawned, 2);
    EXPECT_EQ(world.fleet.router.state, RouterState::kRunning);
}

TEST(FleetRouterTest, BadSettingsDoNotEndAFleetThatIsStillLoading) {
    FleetWorld world(1);
    world.begin();
    world.give(RestartRouter{});
    world.give(OtherRouterDied{successor_pid(world), {.wait_status = 2 << 8}});
    EXPECT_EQ(world.fleet.router.state, RouterState::kRunning);
    EXPECT_EQ(world.signals(0, SIGTERM), 0);
}

TEST(FleetRouterTest, ARestartEndsABackoffAndAFailedOneDoesNot) {
    FleetWorld world = serving();
    world.give(RouterDied{{.wait_status = SIGKILL}});
    world.give(RouterDied{{.wait_status = SIGKILL}});
    ASSERT_TRUE(world.is_router_guarded);
    world.give(RestartRouter{});
    EXPECT_FALSE(world.is_router_guarded) << "the successor accepts on that port";
    world.give(OtherRouterDied{successor_pid(world), {.wait_status = SIGKILL}});
    EXPECT_TRUE(world.is_router_guarded);
    EXPECT_EQ(world.fleet.router.state, RouterState::kBackoff);
    world.give(RestartRouter{});
    successor_serves(world);
    EXPECT_FALSE(world.is_router_guarded);
    EXPECT_EQ(world.fleet.router.state, RouterState::kRunning);
    EXPECT_TRUE(world.fleet.retired_routers.empty());
    const int spawned = world.routers_spawned;
    world.pass(seconds(4));
    EXPECT_EQ(world.routers_spawned, spawned);
}

TEST(FleetRouterTest, OneThatLetsGoUnaskedHasASuccessorAtOnce) {
    FleetWorld world = serving();
    const int old_pid = world.fleet.router.pid;
    world.give(RouterSaid{old_pid, RouterNews::kLetGo});
    EXPECT_EQ(world.routers_retired, 1);
    EXPECT_EQ(world.routers_spawned, 2);
    EXPECT_EQ(world.fleet.router.state, RouterState::kRunning);
    EXPECT_NE(world.fleet.router.pid, old_pid);
    world.give(OtherRouterDied{old_pid, {}});
    EXPECT_EQ(world.routers_spawned, 2);
}

TEST(FleetRouterTest, RetiredOnesAreLimitedInNumberAndInTime) {
    FleetWorld world = serving();
    std::vector<int> pids;
    for (std::size_t i = 0; i < kRetiredRoutersMax; ++i) {
        ASSERT_EQ(router_restart_refusal(world.fleet), "");
        pids.push_back(restart(world));
    }
    EXPECT_THAT(router_restart_refusal(world.fleet), HasSubstr("4 earlier routers"));
    world.give(OtherRouterDied{pids.back(), {.wait_status = SIGKILL}});
    EXPECT_THAT(world.log(), HasSubstr("the earlier router (pid " + std::to_string(pids.back())));
    EXPECT_EQ(router_restart_refusal(world.fleet), "");
    EXPECT_EQ(world.successors_spawned, 4);
    for (int i = 0; i < 700; ++i) {  // its replica answers all the time
        world.pass(seconds(1));
        world.give(WorkReported{.replica = 0});
    }
    EXPECT_EQ(world.other_router_signals(pids.back(), SIGKILL), 0);
    EXPECT_GE(world.other_router_signals(pids.front(), SIGKILL), 1);
}

TEST(FleetRouterTest, AStopWaitsForThemBeforeItTakesTheReplicas) {
    FleetWorld world = serving();
    const int old_pid = restart(world);
    world.give(StopAsked{});
    EXPECT_EQ(world.other_router_signals(old_pid, SIGTERM), 1);
    EXPECT_EQ(world.router_signals(SIGTERM), 1);
    EXPECT_THAT(router_restart_refusal(world.fleet), HasSubstr("stopping"));
    world.give(RouterDied{});
    EXPECT_EQ(world.signals(0, SIGTERM), 0) << "the earlier one still needs it";
    world.give(StopAsked{});
    EXPECT_EQ(world.other_router_signals(old_pid, SIGTERM), 2);
    world.give(OtherRouterDied{old_pid, {}});
    EXPECT_EQ(world.signals(0, SIGTERM), 1);
    world.exit(0, 0);
    EXPECT_EQ(world.exit_code, 0);
}

TEST(FleetRouterTest, AStopEndsASuccessorOnTrialToo) {
    FleetWorld world = serving();
    world.give(RestartRouter{});
    const int pid = successor_pid(world);
    world.give(StopAsked{});
    EXPECT_EQ(world.router_signals(SIGTERM), 1);
    EXPECT_EQ(world.other_router_signals(pid, SIGTERM), 1);
    world.give(RouterSaid{pid, RouterNews::kServing});
    EXPECT_EQ(world.successors_promoted, 0);
    world.give(RouterDied{});
    EXPECT_EQ(world.signals(0, SIGTERM), 0) << "it may have accepted something";
    world.give(OtherRouterDied{pid, {}});
    EXPECT_EQ(world.signals(0, SIGTERM), 1);
    world.exit(0, 0);
    EXPECT_EQ(world.exit_code, 0);
}

TEST(FleetRouterTest, AStopByCommandWaitsForNobodyWhoMayCome) {
    FleetWorld world = serving();
    const int old_pid = restart(world);
    world.give(StopAsked{.has_grace = false});
    EXPECT_EQ(world.router_signals(SIGQUIT), 1);
    EXPECT_EQ(world.other_router_signals(old_pid, SIGQUIT), 1);
    EXPECT_EQ(world.router_signals(SIGTERM), 0);
    world.give(StopAsked{.has_grace = false});
    EXPECT_EQ(world.router_signals(SIGTERM), 1) << "now it hurries";
}

TEST(FleetRouterTest, TheThirdStopKillsThemToo) {
    FleetWorld world = serving();
    const int old_pid = restart(world);
    world.give(RestartRouter{});
    const int pid = successor_pid(world);
    for (int i = 0; i < 3; ++i)
        world.give(StopAsked{});
    EXPECT_EQ(world.other_router_signals(old_pid, SIGKILL), 1);
    EXPECT_EQ(world.other_router_signals(pid, SIGKILL), 1);
    EXPECT_EQ(world.router_signals(SIGKILL), 1);
    world.die(0, SIGKILL);
    world.give(RouterDied{});
    world.give(OtherRouterDied{pid, {.wait_status = SIGKILL}});
    EXPECT_FALSE(world.exit_code.has_value());
    world.give(OtherRouterDied{old_pid, {.wait_status = SIGKILL}});
    EXPECT_EQ(world.exit_code, 0);
}

TEST(FleetRouterTest, AModelThatNoReplicaCanServeEndsASuccessorAsWell) {
    FleetWorld world(1);
    world.begin();
    world.give(RestartRouter{});
    const int pid = successor_pid(world);
    world.exit(0, 4);
    EXPECT_EQ(world.other_router_signals(pid, SIGTERM), 2) << "nobody is being served";
    world.give(RouterDied{});
    EXPECT_FALSE(world.exit_code.has_value());
    world.give(OtherRouterDied{pid, {.wait_status = SIGTERM}});
    EXPECT_EQ(world.exit_code, 4);
}

}  // namespace
}  // namespace deploy

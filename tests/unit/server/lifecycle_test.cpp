// Proves what each state of a replica's life answers, how places are counted, and how a wedge is
// told from idleness.
#include "replica/server/lifecycle.h"

#include <gtest/gtest.h>

#include "replica/server/admission.h"

namespace replica::server {
namespace {

using proto::ReplicaState;

TEST(LifecycleTest, RefusesUntilReadyAndWhileDraining) {
    Lifecycle lifecycle;
    EXPECT_EQ(lifecycle.obstacle(false), "loading");
    EXPECT_EQ(lifecycle.refusal(false)->code, proto::ErrorCode::kLoading);
    EXPECT_TRUE(lifecycle.refusal(false)->retry_after_s.has_value());
    lifecycle.progress(ReplicaState::kSelftest, 1, 16);
    EXPECT_EQ(lifecycle.obstacle(false), "warming");
    lifecycle.ready();
    EXPECT_EQ(lifecycle.obstacle(false), std::nullopt);
    EXPECT_EQ(lifecycle.obstacle(true), "wedged");
    lifecycle.drain();
    EXPECT_EQ(lifecycle.refusal(false)->code, proto::ErrorCode::kDraining);
}

TEST(LifecycleTest, LateProgressDoesNotUndoADrain) {
    Lifecycle lifecycle;
    lifecycle.drain();
    lifecycle.progress(ReplicaState::kLoading, 1, 2);
    lifecycle.ready();
    EXPECT_EQ(lifecycle.state(), ReplicaState::kDraining);
}

TEST(LifecycleTest, ALostDeviceIsNeverReady) {
    Lifecycle lifecycle;
    lifecycle.ready();
    lifecycle.fail();
    EXPECT_FALSE(lifecycle.is_ready());
    EXPECT_EQ(lifecycle.obstacle(false), "wedged");
}

EngineStatus engine_with(int running, std::uint64_t steps) {
    EngineStatus status;
    status.running = running;
    status.steps = steps;
    return status;
}

TEST(WedgeWatchTest, OnlyRunningRequestsWithoutStepsAreAWedge) {
    WedgeWatch watch;
    Lifecycle::Clock::time_point now{std::chrono::hours{1}};
    const auto later = [&](int seconds) { return now += std::chrono::seconds{seconds}; };
    EXPECT_FALSE(watch.observe(engine_with(0, 7), now));
    EXPECT_FALSE(watch.observe(engine_with(0, 7), later(3600))) << "idle";
    EXPECT_FALSE(watch.observe(engine_with(1, 7), later(1))) << "just begun";
    EXPECT_FALSE(watch.observe(engine_with(1, 7), later(58)));
    EXPECT_TRUE(watch.observe(engine_with(1, 7), later(3)));
    EXPECT_FALSE(watch.observe(engine_with(1, 8), later(1))) << "it moves again";
}

TEST(AdmissionTest, PlacesAreTakenAndGivenBack) {
    Admission admission({.running_max = 1, .waiting_max = 1});
    auto first = admission.take(), second = admission.take();
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(admission.take(), nullptr);
    first.reset();
    EXPECT_EQ(admission.inside(), 1);
    EXPECT_NE(admission.take(), nullptr);
}

TEST(AdmissionTest, TheRefusalNamesThePlacesAndTheWait) {
    const Admission admission({.running_max = 8, .waiting_max = 32});
    const proto::ApiError error = admission.queue_full({.seconds = 2.0, .spread = 0.0});
    EXPECT_EQ(error.message,
              "The queue is full: 32 of 32 places are taken. Try again in 2 seconds.");
    EXPECT_EQ(error.retry_after_s, 2);
}

}  // namespace
}  // namespace replica::server

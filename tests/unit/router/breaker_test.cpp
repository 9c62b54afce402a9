// The breaker of one instance: what opens it, how long, who closes it; and the rule of the fleet
// that one way in stays open.
#include "router/breaker.h"

#include <gtest/gtest.h>

#include "router/replica_set.h"

namespace router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
const Clock::time_point kStart{seconds(1000)};

void fail(Breaker& breaker, int count, Clock::time_point now) {
    for (int i = 0; i < count; ++i)
        breaker.on_end(AttemptVerdict::kFault, false, now);
}

TEST(BreakerTest, FiveFailuresInARowOpenItAndFourDoNot) {
    Breaker breaker;
    fail(breaker, 4, kStart);
    EXPECT_EQ(breaker.state(), BreakerState::kClosed);
    breaker.on_end(AttemptVerdict::kGood, false, kStart);
    fail(breaker, 3, kStart);
    EXPECT_EQ(breaker.state(), BreakerState::kClosed) << "a good answer begins the row anew";
    fail(breaker, 2, kStart);
    EXPECT_EQ(breaker.state(), BreakerState::kOpen);
    EXPECT_TRUE(breaker.is_shut());
}

TEST(BreakerTest, HalfOfTenResultsInTenSecondsOpenIt) {
    Breaker breaker;
    for (int i = 0; i < 4; ++i) {
        breaker.on_end(AttemptVerdict::kFault, false, kStart + seconds(i));
        breaker.on_end(AttemptVerdict::kGood, false, kStart + seconds(i));
    }
    EXPECT_EQ(breaker.state(), BreakerState::kClosed) << "eight results are too few";
    breaker.on_end(AttemptVerdict::kGood, false, kStart + seconds(4));
    breaker.on_end(AttemptVerdict::kFault, false, kStart + seconds(5));
    EXPECT_EQ(breaker.state(), BreakerState::kOpen);
}

TEST(BreakerTest, ResultsOlderThanTenSecondsDoNotCount) {
    Breaker breaker;
    for (int i = 0; i < 4; ++i) {
        breaker.on_end(AttemptVerdict::kFault, false, kStart);
        breaker.on_end(AttemptVerdict::kGood, false, kStart);
    }
    breaker.on_end(AttemptVerdict::kGood, false, kStart + seconds(11));
    breaker.on_end(AttemptVerdict::kFault, false, kStart + seconds(11));
    EXPECT_EQ(breaker.state(), BreakerState::kClosed);
}

TEST(BreakerTest, RefusalsBusyAnswersAndClientsThatLeaveAreNeutral) {
    Breaker breaker;
    fail(breaker, 4, kStart);
    for (int i = 0; i < 100; ++i) {
        breaker.on_end(AttemptVerdict::kNoFault, false, kStart);
        breaker.on_end(AttemptVerdict::kNeutral, false, kStart);
    }
    EXPECT_EQ(breaker.state(), BreakerState::kClosed);
    fail(breaker, 1, kStart);
    EXPECT_EQ(breaker.state(), BreakerState::kOpen) << "nor do they interrupt the row";
}

TEST(BreakerTest, ItStaysOpenForASecondDoublingToThirty) {
    Breaker breaker;
    fail(breaker, 5, kStart);
    Clock::time_point now = kStart;
    for (const int open_s : {1, 2, 4, 8, 16, 30, 30}) {
        EXPECT_FALSE(breaker.advance(now + seconds(open_s) - milliseconds(1))) << open_s;
        now += seconds(open_s);
        EXPECT_TRUE(breaker.advance(now)) << open_s;
        ASSERT_TRUE(breaker.on_select());
        breaker.on_end(AttemptVerdict::kFault, true, now);
        ASSERT_EQ(breaker.state(), BreakerState::kOpen);
    }
    ASSERT_TRUE(breaker.advance(now + seconds(30)));
    breaker.on_end(AttemptVerdict::kGood, breaker.on_select(), now);
    fail(breaker, 5, now);
    EXPECT_TRUE(breaker.advance(now + seconds(1))) << "closing begins at one second again";
}

TEST(BreakerTest, HalfOpenLetsOneThroughAndANeutralEndGivesTheTrialBack) {
    Breaker breaker;
    fail(breaker, 5, kStart);
    ASSERT_TRUE(breaker.advance(kStart + seconds(1)));
    EXPECT_TRUE(breaker.is_on_trial());
    EXPECT_FALSE(breaker.is_shut());
    ASSERT_TRUE(breaker.on_select());
    EXPECT_TRUE(breaker.is_shut());
    EXPECT_FALSE(breaker.on_select()) << "one at a time";
    breaker.on_end(AttemptVerdict::kFault, false, kStart + seconds(1));
    EXPECT_EQ(breaker.state(), BreakerState::kHalfOpen) << "an older request is no trial";
    breaker.on_end(AttemptVerdict::kNeutral, true, kStart + seconds(1));
    EXPECT_EQ(breaker.state(), BreakerState::kHalfOpen);
    EXPECT_FALSE(breaker.is_shut());
    ASSERT_TRUE(breaker.on_select());
    breaker.on_end(AttemptVerdict::kNoFault, true, kStart + seconds(2));
    EXPECT_EQ(breaker.state(), BreakerState::kClosed) << "a complete 400 shows that it works";
    EXPECT_EQ(breaker.transitions(BreakerState::kOpen), 1U);
    EXPECT_EQ(breaker.transitions(BreakerState::kHalfOpen), 1U);
    EXPECT_EQ(breaker.transitions(BreakerState::kClosed), 1U);
}

proto::ReplicaStatus report(const std::string& instance, std::uint64_t seq) {
    proto::ReplicaStatus status;
    status.instance = instance;
    status.state = proto::ReplicaState::kReady;
    status.seq = status.step = seq;
    status.sequences_max = 8;
    return status;
}

struct TwoReplicas {
    TwoReplicas() : set({}) {
        for (int i = 0; i < 2; ++i) {
            set.add_fixed("http://a", {"127.0.0.1", 1}, kStart);
            (void)set.on_report(i, report("i" + std::to_string(i), 1), kStart);
        }
    }
    void fail(int index) {
        const InstanceRef ref{index, set.find(index)->life};
        for (int i = 0; i < Breaker::kFaultsInRow; ++i)
            set.on_attempt_end(ref, AttemptVerdict::kFault, false, kStart);
    }
    [[nodiscard]] BreakerState state(int index) { return set.find(index)->breaker.state(); }

    ReplicaSet set;
};

TEST(BreakerTest, TheLastWayIntoALivingFleetStaysHalfOpen) {
    TwoReplicas fleet;
    fleet.fail(0);
    EXPECT_EQ(fleet.state(0), BreakerState::kOpen);
    EXPECT_TRUE(fleet.set.snapshot(1, kStart).replicas[0].is_shut);
    fleet.fail(1);
    EXPECT_EQ(fleet.state(0), BreakerState::kHalfOpen);
    EXPECT_EQ(fleet.state(1), BreakerState::kHalfOpen);
    const Snapshot snapshot = fleet.set.snapshot(1, kStart);
    for (const ReplicaView& view : snapshot.replicas) {
        EXPECT_FALSE(view.is_shut);
        EXPECT_TRUE(view.is_trial);
    }
    const Decision decision = choose(snapshot, {});
    EXPECT_EQ(decision.verdict, Verdict::kDispatch);
    EXPECT_EQ(decision.reason, Reason::kTrial);
}

TEST(BreakerTest, ADeadReplicaIsNoWayIn) {
    TwoReplicas fleet;
    fleet.fail(0);
    fleet.set.on_gone(1, kStart);
    EXPECT_EQ(fleet.state(0), BreakerState::kHalfOpen) << "it is the only one that lives";
}

TEST(BreakerTest, ANewInstanceBeginsClosedAndTheOldOnesEndsDoNotCount) {
    TwoReplicas fleet;
    fleet.fail(0);
    const InstanceRef old{0, fleet.set.find(0)->life};
    (void)fleet.set.on_report(0, report("new", 1), kStart);
    EXPECT_EQ(fleet.state(0), BreakerState::kClosed);
    for (int i = 0; i < 20; ++i)
        fleet.set.on_attempt_end(old, AttemptVerdict::kFault, false, kStart);
    EXPECT_EQ(fleet.state(0), BreakerState::kClosed);
}

TEST(BreakerTest, TimeOpensTheTrial) {
    TwoReplicas fleet;
    fleet.fail(0);
    int changes = 0;
    fleet.set.on_change = [&changes] { ++changes; };
    (void)fleet.set.on_report(0, report("i0", 2), kStart + seconds(1));
    changes = 0;
    fleet.set.tick(kStart + seconds(1));
    EXPECT_EQ(fleet.state(0), BreakerState::kHalfOpen);
    EXPECT_GE(changes, 1) << "who waits may go";
}

}  // namespace
}  // namespace router

// The choice of a replica, as a pure function: named cases, then properties over random snapshots.
#include "router/policy.h"

#include <random>

#include <gmock/gmock.h>

namespace router {
namespace {

ReplicaView ready(int index) {
    return {.index = index, .life = 1, .state = ReplicaState::kReady, .slots = 8};
}

TEST(PolicyTest, PicksTheReplicaWithTheFewestOutstandingTokens) {
    Snapshot snapshot{.replicas = {ready(0), ready(1), ready(2)}};
    snapshot.replicas[0].queued_tokens = 300;
    snapshot.replicas[1].queued_tokens = 100;
    snapshot.replicas[1].unseen_tokens = 50;
    snapshot.replicas[2].expected_output_tokens = 200;
    const Decision decision = choose(snapshot, {});
    EXPECT_EQ(decision.verdict, Verdict::kDispatch);
    EXPECT_EQ(decision.replica, (InstanceRef{1, 1}));
    EXPECT_EQ(decision.outstanding_tokens, 150);
}

TEST(PolicyTest, BreaksTiesByFewerSequencesThenByTheLongestRest) {
    Snapshot snapshot{.replicas = {ready(0), ready(1), ready(2)}};
    snapshot.replicas[0].occupied = 1;
    snapshot.replicas[1].last_dispatch = 9;
    snapshot.replicas[2].last_dispatch = 4;
    EXPECT_EQ(choose(snapshot, {}).replica->index, 2);
}

TEST(PolicyTest, OnlyReadyReplicasTakeNewWork) {
    for (const ReplicaState state : {ReplicaState::kStarting, ReplicaState::kSuspect,
                                     ReplicaState::kDown, ReplicaState::kDraining}) {
        Snapshot snapshot{.replicas = {ready(0)}};
        snapshot.replicas[0].state = state;
        EXPECT_EQ(choose(snapshot, {}).verdict, Verdict::kUnavailable) << name_of(state);
    }
    EXPECT_EQ(choose({}, {}).verdict, Verdict::kUnavailable);
}

TEST(PolicyTest, AFullReplicaHoldsOneRequestAheadAndNoMore) {
    Snapshot snapshot{.replicas = {ready(0)}, .dispatch_ahead = 1};
    snapshot.replicas[0].occupied = 8;
    EXPECT_EQ(choose(snapshot, {}).verdict, Verdict::kDispatch);
    snapshot.replicas[0].occupied = 9;
    const Decision decision = choose(snapshot, {});
    EXPECT_EQ(decision.verdict, Verdict::kWait);
    EXPECT_EQ(decision.replica->index, 0) << "the one to wait for";
}

TEST(PolicyTest, ARequestWiderThanTheReplicaStartsWhenItIsIdle) {
    Snapshot snapshot{.replicas = {ready(0)}};
    EXPECT_EQ(choose(snapshot, {.sequences = 16}).verdict, Verdict::kDispatch);
    snapshot.replicas[0].occupied = 1;
    EXPECT_EQ(choose(snapshot, {.sequences = 16}).verdict, Verdict::kWait);
}

TEST(PolicyTest, ASaturatedReplicaIsFullAndAnExcludedOneIsNoCandidate) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    snapshot.replicas[0].is_saturated = true;
    EXPECT_EQ(choose(snapshot, {}).replica->index, 1);
    EXPECT_EQ(choose(snapshot, {.excluded = {{1, 1}}}).verdict, Verdict::kWait);
    EXPECT_EQ(choose(snapshot, {.excluded = {{0, 1}, {1, 1}}}).verdict, Verdict::kUnavailable);
}

TEST(PolicyTest, ARestartedReplicaIsANewCandidate) {
    Snapshot snapshot{.replicas = {ready(0)}};
    snapshot.replicas[0].life = 2;
    EXPECT_EQ(choose(snapshot, {.excluded = {{0, 1}}}).verdict, Verdict::kDispatch);
}

/// Anything a fleet may look like, crowded into small numbers so that ties and limits occur.
Snapshot random_snapshot(std::mt19937& random) {
    const auto below = [&random](int limit) {
        return static_cast<int>(random() % static_cast<unsigned>(limit));
    };
    Snapshot snapshot{.dispatch_ahead = below(3)};
    const int count = below(6);
    for (int i = 0; i < count; ++i) {
        ReplicaView view{.index = i, .life = 1};
        view.state = below(3) == 0 ? static_cast<ReplicaState>(below(kReplicaStateCount))
                                   : ReplicaState::kReady;
        view.slots = 1 + below(4);
        view.occupied = below(7);
        view.queued_tokens = below(3) * 10;
        view.unseen_tokens = below(3) * 10;
        view.expected_output_tokens = below(3) * 10;
        view.last_dispatch = static_cast<std::uint64_t>(below(4));
        view.is_saturated = below(8) == 0;
        snapshot.replicas.push_back(view);
    }
    return snapshot;
}

TEST(PolicyTest, NeverPicksWhatCannotStartNorMoreThanTheLeastLoaded) {
    for (unsigned seed = 0; seed < 100'000; ++seed) {
        std::mt19937 random(seed);
        const Snapshot snapshot = random_snapshot(random);
        const Demand demand{.sequences = 1 + static_cast<int>(random() % 3)};
        const Decision decision = choose(snapshot, demand);
        bool has_startable = false;
        bool has_ready = false;
        for (const ReplicaView& replica : snapshot.replicas) {
            const bool can = is_startable(replica, demand.sequences, snapshot.dispatch_ahead);
            has_startable = has_startable || can;
            has_ready = has_ready || replica.state == ReplicaState::kReady;
            if (can && decision.verdict == Verdict::kDispatch) {
                ASSERT_LE(decision.outstanding_tokens, outstanding_tokens(replica)) << seed;
            }
        }
        ASSERT_EQ(decision.verdict == Verdict::kDispatch, has_startable) << seed;
        ASSERT_EQ(decision.verdict == Verdict::kUnavailable, !has_ready) << seed;
        if (decision.verdict == Verdict::kDispatch) {
            const auto& chosen =
                snapshot.replicas.at(static_cast<std::size_t>(decision.replica->index));
            ASSERT_TRUE(is_startable(chosen, demand.sequences, snapshot.dispatch_ahead)) << seed;
        }
    }
}

TEST(PolicyTest, TheChoiceDoesNotDependOnTheOrderOfTheSnapshot) {
    for (unsigned seed = 0; seed < 20'000; ++seed) {
        std::mt19937 random(seed);
        Snapshot snapshot = random_snapshot(random);
        const Decision before = choose(snapshot, {});
        std::shuffle(snapshot.replicas.begin(), snapshot.replicas.end(), random);
        const Decision after = choose(snapshot, {});
        ASSERT_EQ(before.verdict, after.verdict) << seed;
        ASSERT_EQ(before.replica, after.replica) << seed;
    }
}

TEST(PolicyTest, RetryAfterIsTheBacklogInWholeSecondsWithinItsBounds) {
    const Backlog backlog{.prompt_tokens = 20'000,
                          .output_tokens = 400,
                          .prefill_tokens_per_s = 2'000,
                          .decode_tokens_per_s = 40};
    EXPECT_EQ(retry_after_s(backlog, 0.0), 20);
    EXPECT_GT(retry_after_s(backlog, 0.9), 20);
    EXPECT_LE(retry_after_s(backlog, 0.9), 30);
    EXPECT_EQ(retry_after_s({}, 0.0), 1);
    EXPECT_EQ(retry_after_s({.prompt_tokens = 1'000'000'000}, 0.5), 60) << "rates not known";
}

}  // namespace
}  // namespace router

// The choice of a replica, as a pure function: named cases. Properties are in
// policy_property_test.cpp.
#include "router/policy.h"

#include <gmock/gmock.h>

namespace router {
namespace {

using std::chrono::seconds;

/// Idle, 8 slots, 1000 prompt tokens and 100 output tokens a second: easy to reckon with.
ReplicaView ready(int index) {
    ReplicaView view{.index = index, .life = 1, .state = ReplicaState::kReady, .slots = 8};
    view.prefill_tokens_per_s = 1000;
    view.decode_tokens_per_s = 100;
    return view;
}

Demand prompt_of(std::int64_t tokens) {
    Demand demand;
    demand.prompt_tokens = tokens;
    return demand;
}

TEST(PolicyTest, PicksTheReplicaThatCostsTheLeastSeconds) {
    Snapshot snapshot{.replicas = {ready(0), ready(1), ready(2)}};
    snapshot.replicas[0].queued_tokens = 300;           // 0.3 s
    snapshot.replicas[1].queued_tokens = 100;           // 0.1 s
    snapshot.replicas[1].unseen_tokens = 50;            // 0.05 s
    snapshot.replicas[2].expected_output_tokens = 200;  // 0.25 * 2 s
    const Decision decision = choose(snapshot, prompt_of(100));
    EXPECT_EQ(decision.verdict, Verdict::kDispatch);
    EXPECT_EQ(decision.replica, (InstanceRef{1, 1}));
    EXPECT_EQ(decision.reason, Reason::kLeastLoad);
    EXPECT_DOUBLE_EQ(decision.expected_ttft_s, 0.25);
    ASSERT_EQ(decision.candidates.size(), 3U);
    EXPECT_DOUBLE_EQ(decision.candidates[2].terms.decode_s, 0.5);
}

TEST(PolicyTest, AFasterReplicaMayHaveTheLongerQueue) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    snapshot.replicas[0].queued_tokens = 1000;
    snapshot.replicas[1].queued_tokens = 1500;
    snapshot.replicas[1].prefill_tokens_per_s = 3000;
    EXPECT_EQ(choose(snapshot, prompt_of(1000)).replica->index, 1);
}

TEST(PolicyTest, APrefixOutweighsAShortQueueAndNotALongOne) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    Demand demand = prompt_of(1000);
    demand.matches = {{{0, 1}, 900}};
    snapshot.replicas[0].queued_tokens = 200;
    const Decision near = choose(snapshot, demand);
    EXPECT_EQ(near.replica->index, 0);
    EXPECT_EQ(near.reason, Reason::kPrefix);
    EXPECT_EQ(near.matched_tokens, 900);
    EXPECT_EQ(near.uncached_tokens, 100);
    EXPECT_DOUBLE_EQ(near.expected_ttft_s, 0.3);
    EXPECT_DOUBLE_EQ(near.least_load_ttft_s, 1.0) << "what the other one would have taken";
    snapshot.replicas[0].queued_tokens = 1000;
    EXPECT_EQ(choose(snapshot, demand).replica->index, 1);
}

TEST(PolicyTest, AReplicaThatLostItsCacheIsNotBelieved) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    Demand demand = prompt_of(1000);
    demand.matches = {{{0, 1}, 900}};
    snapshot.replicas[0].queued_tokens = 200;
    snapshot.replicas[0].trust = 0.1;
    const Decision decision = choose(snapshot, demand);
    EXPECT_EQ(decision.replica->index, 1);
    EXPECT_EQ(decision.find({0, 1})->uncached_tokens, 910);
}

TEST(PolicyTest, BreaksTiesByFewerSequencesThenByTheLongestRest) {
    Snapshot snapshot{.replicas = {ready(0), ready(1), ready(2)}};
    snapshot.replicas[0].occupied = 1;
    snapshot.replicas[1].last_dispatch = 9;
    snapshot.replicas[2].last_dispatch = 4;
    EXPECT_EQ(choose(snapshot, {}).replica->index, 2);
    Demand demand;
    demand.preferred = InstanceRef{1, 1};
    EXPECT_EQ(choose(snapshot, demand).replica->index, 1) << "a cache key breaks ties first";
    snapshot.replicas[1].queued_tokens = 100;
    EXPECT_EQ(choose(snapshot, demand).replica->index, 2) << "and nothing but ties";
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

TEST(PolicyTest, AReplicaOfAnotherModelIsNoCandidateHoweverIdleItIs) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    snapshot.replicas[1].queued_tokens = 5000;
    Demand demand = prompt_of(100);
    demand.not_serving = {{0, 1}};
    const Decision decision = choose(snapshot, demand);
    EXPECT_EQ(decision.replica, (InstanceRef{1, 1}));
    EXPECT_EQ(decision.reason, Reason::kOnly);
    EXPECT_EQ(decision.find({0, 1})->obstacle, Obstacle::kModel);
    EXPECT_FALSE(decision.find({0, 1})->is_candidate());
    demand.not_serving.push_back({1, 1});
    EXPECT_EQ(choose(snapshot, demand).verdict, Verdict::kUnavailable);
    // The only one of its model is not kept free of its long prompts.
    snapshot.big.is_interactive = true;
    demand = prompt_of(10'000);
    demand.not_serving = {{0, 1}};
    EXPECT_EQ(choose(snapshot, demand).verdict, Verdict::kDispatch);
}

TEST(PolicyTest, AnOpenBreakerIsNoCandidateAndATrialSaysSo) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    snapshot.replicas[0].is_shut = true;
    const Decision only = choose(snapshot, {});
    EXPECT_EQ(only.replica->index, 1);
    EXPECT_EQ(only.reason, Reason::kOnly);
    EXPECT_EQ(only.find({0, 1})->obstacle, Obstacle::kBreaker);
    snapshot.replicas[1].is_trial = true;
    EXPECT_EQ(choose(snapshot, {}).reason, Reason::kTrial);
}

TEST(PolicyTest, AFullReplicaHoldsOneRequestAheadAndNoMore) {
    Snapshot snapshot{.replicas = {ready(0)}, .dispatch_ahead = 1};
    snapshot.replicas[0].occupied = 8;
    EXPECT_EQ(choose(snapshot, {}).verdict, Verdict::kDispatch);
    snapshot.replicas[0].occupied = 9;
    const Decision decision = choose(snapshot, {});
    EXPECT_EQ(decision.verdict, Verdict::kWait);
    EXPECT_EQ(decision.replica->index, 0) << "the one to wait for";
    EXPECT_EQ(decision.obstacle, Obstacle::kSlots);
}

TEST(PolicyTest, ARequestWiderThanTheReplicaStartsWhenItIsIdle) {
    Snapshot snapshot{.replicas = {ready(0)}};
    EXPECT_EQ(choose(snapshot, {.sequences = 16}).verdict, Verdict::kDispatch);
    snapshot.replicas[0].occupied = 1;
    EXPECT_EQ(choose(snapshot, {.sequences = 16}).verdict, Verdict::kWait);
}

TEST(PolicyTest, APromptThatDoesNotFitIntoMemoryWaitsUnlessTheReplicaIsIdle) {
    Snapshot snapshot{.replicas = {ready(0)}};
    ReplicaView& view = snapshot.replicas[0];
    view.blocks_total = 100;
    view.block_tokens = 64;
    view.blocks_used = 90;
    view.occupied = 1;
    Demand demand = prompt_of(600);  // 10 blocks
    EXPECT_EQ(choose(snapshot, demand).verdict, Verdict::kDispatch);
    demand.output_tokens_kept = 256;
    const Decision decision = choose(snapshot, demand);
    EXPECT_EQ(decision.verdict, Verdict::kWait);
    EXPECT_EQ(decision.obstacle, Obstacle::kBlocks);
    view.occupied = 0;
    EXPECT_EQ(choose(snapshot, demand).verdict, Verdict::kDispatch) << "it would never start";
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

TEST(PolicyTest, WaitsForABetterReplicaOnlyWhileItMay) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}, .dispatch_ahead = 0};
    snapshot.replicas[0].occupied = 8;  // full, its sequences about to end
    snapshot.replicas[0].expected_output_tokens = 8;
    Demand demand = prompt_of(8000);
    demand.matches = {{{0, 1}, 7900}};
    const Decision held = choose(snapshot, demand);
    EXPECT_EQ(held.verdict, Verdict::kWait);
    EXPECT_TRUE(held.is_hold);
    EXPECT_EQ(held.replica->index, 0);
    demand.may_hold = false;
    EXPECT_EQ(choose(snapshot, demand).replica->index, 1);
}

TEST(PolicyTest, NobodyIsHeldForAReplicaThatIsOnlyFull) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}, .dispatch_ahead = 0};
    snapshot.replicas[0].occupied = 8;
    snapshot.replicas[0].expected_output_tokens = 800;
    EXPECT_EQ(choose(snapshot, prompt_of(100)).replica->index, 1);
}

TEST(PolicyTest, TheReplicaWithTheLeastToPrefillIsKeptForInteractiveRequests) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    snapshot.big.is_interactive = true;
    snapshot.replicas[1].queued_tokens = 500;
    Demand document = prompt_of(20'000);
    const Decision decision = choose(snapshot, document);
    EXPECT_EQ(decision.replica->index, 1);
    EXPECT_EQ(decision.reason, Reason::kLight);
    EXPECT_TRUE(decision.is_big);
    EXPECT_EQ(choose(snapshot, prompt_of(200)).replica->index, 0) << "which may use it";
    document.waited = seconds(10);
    EXPECT_EQ(choose(snapshot, document).replica->index, 0) << "and so may who waited long";
    snapshot.big.is_interactive = false;
    document.waited = seconds(0);
    EXPECT_EQ(choose(snapshot, document).replica->index, 0) << "nobody is there to keep it for";
}

TEST(PolicyTest, TheOnlyReplicaIsKeptForNobody) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    snapshot.replicas[1].state = ReplicaState::kDown;
    snapshot.big.is_interactive = true;
    EXPECT_EQ(choose(snapshot, prompt_of(20'000)).verdict, Verdict::kDispatch);
}

TEST(PolicyTest, ASecondLongPromptWaitsWhileOthersDo) {
    Snapshot snapshot{.replicas = {ready(0)}, .waiting = 1};
    snapshot.replicas[0].big_prefills = 1;
    const Decision decision = choose(snapshot, prompt_of(20'000));
    EXPECT_EQ(decision.verdict, Verdict::kWait);
    EXPECT_EQ(decision.obstacle, Obstacle::kBigCap);
    EXPECT_EQ(choose(snapshot, prompt_of(1000)).verdict, Verdict::kDispatch) << "it is not long";
    snapshot.waiting = 0;
    EXPECT_EQ(choose(snapshot, prompt_of(20'000)).verdict, Verdict::kDispatch);
}

TEST(PolicyTest, ALongPromptWhosePrefixIsCachedIsNotLong) {
    Snapshot snapshot{.replicas = {ready(0)}, .waiting = 1};
    snapshot.replicas[0].big_prefills = 1;
    Demand demand = prompt_of(20'000);
    demand.matches = {{{0, 1}, 19'000}};
    EXPECT_EQ(choose(snapshot, demand).verdict, Verdict::kDispatch);
}

TEST(PolicyTest, TheCapOverAllReplicasCountsGpus) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    snapshot.big.count_max = 4;
    snapshot.replicas[0].gpus = snapshot.replicas[1].gpus = 4;
    EXPECT_EQ(choose(snapshot, prompt_of(20'000)).verdict, Verdict::kDispatch);
    snapshot.replicas[0].big_prefills = 1;
    EXPECT_EQ(choose(snapshot, prompt_of(20'000)).obstacle, Obstacle::kBigCap);
}

TEST(PolicyTest, TwoIdleReplicasDoNotBeginALongPrefillTogether) {
    Snapshot snapshot{.replicas = {ready(0), ready(1)}};
    snapshot.replicas[0].big_prefills = 1;
    snapshot.replicas[0].queued_tokens = 20'000;
    snapshot.big.is_start_recent = true;
    const Decision decision = choose(snapshot, prompt_of(20'000));
    EXPECT_EQ(decision.verdict, Verdict::kWait);
    EXPECT_EQ(decision.obstacle, Obstacle::kStagger);
    EXPECT_EQ(decision.replica->index, 1);
    EXPECT_EQ(choose(snapshot, prompt_of(1000)).verdict, Verdict::kDispatch);
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

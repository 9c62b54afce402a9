// The queue: bounds, order with ageing, passing and reservation, and its counts.
#include "router/wait_queue.h"

#include <random>
#include <vector>

#include <gmock/gmock.h>

namespace router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Clock::time_point kStart{};

/// A fleet of one replica with `slots` places, taken one by one by what the queue dispatches.
struct Fleet {
    ReplicaView view{.index = 0, .life = 1, .state = ReplicaState::kReady, .slots = 1};
    std::vector<std::string> started;

    WaitQueue::Entry request(std::string name, Clock::time_point arrival, int priority = 0,
                             int sequences = 1) {
        return {.priority = priority,
                .arrival = arrival,
                .body_bytes = 100,
                .prompt_tokens = 10,
                .demand = {.sequences = sequences},
                .on_dispatch = [this, name, sequences](const Decision&) {
                    started.push_back(name);
                    view.occupied += sequences;
                }};
    }
    void run(WaitQueue& queue, Clock::time_point now) {
        queue.dispatch(now, [this] { return Snapshot{.replicas = {view}, .dispatch_ahead = 0}; });
    }
};

TEST(WaitQueueTest, RefusesWhatIsBeyondItsBoundAndNeverWhatComesBackToTheFront) {
    Fleet fleet;
    WaitQueue queue(2);
    EXPECT_TRUE(queue.push(fleet.request("a", kStart)));
    EXPECT_TRUE(queue.push(fleet.request("b", kStart)));
    EXPECT_FALSE(queue.push(fleet.request("c", kStart)));
    WaitQueue::Entry again = fleet.request("d", kStart);
    again.in_front = true;
    EXPECT_TRUE(queue.push(std::move(again)));
    fleet.view.slots = 3;
    fleet.run(queue, kStart);
    EXPECT_THAT(fleet.started, ElementsAre("d", "a", "b"));
}

TEST(WaitQueueTest, TakesTheLowerPriorityFirstAndThenTheEarlierArrival) {
    Fleet fleet;
    fleet.view.slots = 4;
    WaitQueue queue(8);
    (void)queue.push(fleet.request("late", kStart + seconds(1)));
    (void)queue.push(fleet.request("bulk", kStart, 20));
    (void)queue.push(fleet.request("early", kStart));
    (void)queue.push(fleet.request("interactive", kStart + seconds(2), -20));
    fleet.run(queue, kStart + seconds(3));
    EXPECT_THAT(fleet.started, ElementsAre("interactive", "early", "late", "bulk"));
}

TEST(WaitQueueTest, WaitingTenSecondsIsWorthOneStepOfPriority) {
    Fleet fleet;
    fleet.view.slots = 2;
    WaitQueue queue(8);
    (void)queue.push(fleet.request("fresh", kStart + seconds(11), 0));
    (void)queue.push(fleet.request("aged", kStart, 1));
    fleet.run(queue, kStart + seconds(12));
    EXPECT_THAT(fleet.started, ElementsAre("aged", "fresh"));
}

TEST(WaitQueueTest, WhatDoesNotFitMayBePassedForTwoSecondsAndThenItsReplicaIsKept) {
    Fleet fleet;
    fleet.view.slots = 4;
    fleet.view.occupied = 1;
    WaitQueue queue(8);
    (void)queue.push(fleet.request("wide", kStart, 0, 4));
    (void)queue.push(fleet.request("a", kStart + seconds(1)));
    fleet.run(queue, kStart + seconds(1));
    EXPECT_THAT(fleet.started, ElementsAre("a"));
    (void)queue.push(fleet.request("b", kStart + seconds(2)));
    fleet.run(queue, kStart + seconds(4));
    EXPECT_THAT(fleet.started, ElementsAre("a")) << "the replica is kept for the wide one";
    fleet.view.occupied = 0;
    fleet.run(queue, kStart + seconds(5));
    EXPECT_THAT(fleet.started, ElementsAre("a", "wide"));
}

TEST(WaitQueueTest, ALongPromptThatIsPassedTooLongGetsOnePlaceKeptAndOthersGoOn) {
    Fleet fleet;
    fleet.view.slots = 4;
    fleet.view.occupied = 1;
    fleet.view.big_prefills = 1;  // so a second long one waits, while others wait too
    WaitQueue queue(8);
    WaitQueue::Entry document = fleet.request("document", kStart);
    document.demand.prompt_tokens = 100'000;
    (void)queue.push(std::move(document));
    (void)queue.push(fleet.request("a", kStart));
    fleet.run(queue, kStart);
    EXPECT_THAT(fleet.started, ElementsAre("a"));
    (void)queue.push(fleet.request("b", kStart + seconds(3)));
    (void)queue.push(fleet.request("c", kStart + seconds(3)));
    fleet.run(queue, kStart + seconds(3));
    EXPECT_THAT(fleet.started, ElementsAre("a", "b")) << "the fourth place is the document's";
    fleet.view.big_prefills = 0;
    fleet.run(queue, kStart + seconds(4));
    EXPECT_THAT(fleet.started, ElementsAre("a", "b", "document"));
}

/// When a request goes elsewhere that would rather wait for the holder of its prompt, with 10 s
/// looked at; `hold_max` is what it may wait.
Clock::duration hold_of(milliseconds hold_max) {
    std::vector<ReplicaView> views(2, {.life = 1, .state = ReplicaState::kReady, .slots = 1});
    views[1].index = 1;
    views[0].occupied = 1;  // about to end, and it holds the prompt
    std::vector<int> started;
    WaitQueue queue(8, nullptr, hold_max);
    WaitQueue::Entry entry{.arrival = kStart};
    entry.demand.prompt_tokens = 10'000;
    entry.refresh = [](Demand& demand) { demand.matches = {{{0, 1}, 9'900}}; };
    entry.on_dispatch = [&started](const Decision& decision) {
        started.push_back(decision.replica->index);
    };
    (void)queue.push(std::move(entry));
    const auto run = [&](Clock::time_point now) {
        queue.dispatch(now, [&] { return Snapshot{.replicas = views, .dispatch_ahead = 0}; });
    };
    Clock::time_point now = kStart;
    for (run(now); started.empty() && now < kStart + seconds(10); run(now))
        now += milliseconds(100);
    EXPECT_THAT(started, ElementsAre(1));
    return now - kStart;
}

TEST(WaitQueueTest, WhoWaitsForABetterReplicaGoesElsewhereWhenItsTimeIsOver) {
    EXPECT_EQ(hold_of(seconds(2)), seconds(2));
    EXPECT_EQ(hold_of(seconds(5)), seconds(5));
    EXPECT_EQ(hold_of(seconds(0)), seconds(0)) << "nobody is waited for";
}

TEST(WaitQueueTest, RemovingIsIdempotentAndCountsFollow) {
    Fleet fleet;
    WaitQueue queue(8);
    const auto place = queue.push(fleet.request("a", kStart, -20));
    (void)queue.push(fleet.request("b", kStart));
    EXPECT_EQ(queue.body_bytes(), 200U);
    EXPECT_EQ(queue.prompt_tokens(), 20);
    EXPECT_EQ(queue.count_of(PriorityClass::kInteractive), 1U);
    EXPECT_TRUE(queue.remove(*place));
    EXPECT_FALSE(queue.remove(*place));
    fleet.run(queue, kStart);
    EXPECT_EQ(queue.size(), 0U);
    EXPECT_EQ(queue.body_bytes(), 0U);
    EXPECT_EQ(queue.prompt_tokens(), 0);
    EXPECT_EQ(queue.count_of(PriorityClass::kInteractive), 0U);
    EXPECT_EQ(queue.count_of(PriorityClass::kDefault), 0U);
}

TEST(WaitQueueTest, NobodyStartsOnAFullFleet) {
    Fleet fleet;
    fleet.view.occupied = 1;
    WaitQueue queue(8);
    (void)queue.push(fleet.request("a", kStart));
    fleet.run(queue, kStart);
    EXPECT_THAT(fleet.started, IsEmpty());
    EXPECT_EQ(queue.size(), 1U);
}

TEST(WaitQueueTest, TheOrderOfStartsIsTheOrderOfEffectivePriorityWheneverItIsAsked) {
    for (unsigned seed = 0; seed < 500; ++seed) {
        std::mt19937 random(seed);
        Fleet fleet;
        fleet.view.slots = 64;
        WaitQueue queue(64);
        std::vector<std::pair<double, int>> effective;  // at the moment of the dispatch
        const auto now = kStart + seconds(100);
        for (int i = 0; i < 40; ++i) {
            const int waited = static_cast<int>(random() % 100);
            const int priority = static_cast<int>(random() % 9) - 4;
            (void)queue.push(fleet.request(std::to_string(i), now - seconds(waited), priority));
            effective.emplace_back(priority - waited / 10.0, i);
        }
        std::sort(effective.begin(), effective.end());  // equal ones: earlier pushed first
        fleet.run(queue, now);
        ASSERT_EQ(fleet.started.size(), 40U);
        for (std::size_t i = 0; i < effective.size(); ++i) {
            const int started = std::stoi(fleet.started[i]);
            const auto place = std::find_if(effective.begin(), effective.end(),
                                            [&](const auto& one) { return one.second == started; });
            ASSERT_NEAR(place->first, effective[i].first, 1e-9) << "seed " << seed << " at " << i;
        }
    }
}

}  // namespace
}  // namespace router

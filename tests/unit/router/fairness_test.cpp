// Attained service: it halves, is divided by weight, corrected by reports; and what the queue makes
// of it.
#include "router/fairness.h"

#include <gmock/gmock.h>

#include "router/charge_ledger.h"
#include "router/wait_queue.h"

namespace router {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

constexpr Clock::time_point kStart{seconds(1000)};

TEST(FairShareTest, ServiceHalvesInAMinuteAndIsDividedByWeight) {
    FairShare shares;
    const KeyId alice = shares.id_of("alice", {.weight = 2});
    EXPECT_EQ(shares.id_of("alice", {.weight = 2}), alice);
    EXPECT_NE(alice, kAnonymousKey);
    shares.add(alice, service_of(1000, 500), kStart);
    EXPECT_DOUBLE_EQ(shares.attained(alice, kStart), 1000);
    EXPECT_NEAR(shares.attained(alice, kStart + seconds(60)), 500, 1e-9);
    shares.add(alice, -1e9, kStart + seconds(60));
    EXPECT_EQ(shares.attained(alice, kStart + seconds(60)), 0) << "never less than nothing";
}

TEST(FairShareTest, TheIndexIsOneWhenAllGotTheSameAndOneNthWhenOneGotAll) {
    FairShare shares;
    EXPECT_DOUBLE_EQ(shares.jain_ratio(kStart), 1);
    const KeyId alice = shares.id_of("alice", {});
    const KeyId bob = shares.id_of("bob", {.weight = 3});
    shares.add(alice, 1000, kStart);
    shares.add(bob, 3000, kStart);
    EXPECT_DOUBLE_EQ(shares.jain_ratio(kStart), 1);
    shares.add(alice, 1e9, kStart);
    EXPECT_NEAR(shares.jain_ratio(kStart), 0.5, 1e-3);
}

TEST(ChargeLedgerTest, GivesEachEntryOnceAndForgetsTheOldest) {
    ChargeLedger ledger;
    for (std::size_t i = 0; i <= ChargeLedger::kEntriesMax; ++i)
        ledger.add(std::to_string(i), {.model = "m", .charged_service = 5});
    EXPECT_FALSE(ledger.take("0"));
    EXPECT_EQ(ledger.take("1")->charged_service, 5);
    EXPECT_FALSE(ledger.take("1"));
    EXPECT_LE(ledger.size(), ChargeLedger::kEntriesMax);
}

TEST(ChargeLedgerTest, NamesTheAttemptUntilItIsOver) {
    ChargeLedger ledger;
    alignas(8) char attempt[8]{};  // only its address matters
    auto* grant = reinterpret_cast<Grant*>(attempt);
    ledger.add("runs", {.model = "m", .running = grant});
    ledger.add("ended", {.model = "m", .running = grant});
    ledger.note_end("ended");
    ledger.note_end("of nobody");
    EXPECT_EQ(ledger.take("runs")->running, grant);
    EXPECT_EQ(ledger.take("ended")->running, nullptr);
}

/// One replica with as many slots as are opened; names of what started, in order.
struct Fleet {
    FairShare shares;
    WaitQueue queue{64, &shares};
    std::vector<std::string> started;
    ReplicaView view{.index = 0, .life = 1, .state = ReplicaState::kReady, .slots = 0};

    Fleet() { view.occupied = 1; }

    bool push(const std::string& name, KeyId key, double at_s = 0, int priority = 0) {
        WaitQueue::Entry entry{.priority = priority};
        entry.arrival = kStart + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(at_s));
        entry.key = key;
        entry.on_dispatch = [this, name, key](const Decision&) {
            started.push_back(name);
            ++view.occupied;
            shares.add(key, 100, kStart);
            shares.on_start(key);
        };
        return queue.push(std::move(entry)).has_value();
    }
    void open(int slots) {
        view.slots = view.occupied + slots;
        queue.dispatch(kStart + seconds(30),
                       [this] { return Snapshot{.replicas = {view}, .dispatch_ahead = 0}; });
    }
};

TEST(WaitQueueFairnessTest, KeysTakeTurnsWhoeverSentMore) {
    Fleet fleet;
    const KeyId alice = fleet.shares.id_of("alice", {});
    const KeyId bob = fleet.shares.id_of("bob", {});
    for (int i = 0; i < 4; ++i)
        fleet.push("a" + std::to_string(i), alice);
    fleet.push("b0", bob, 5);
    fleet.push("b1", bob, 6);
    fleet.open(6);
    EXPECT_THAT(fleet.started, ElementsAre("a0", "b0", "a1", "b1", "a2", "a3"));
}

TEST(WaitQueueFairnessTest, AWeightOfTwoGetsTwoOfThree) {
    Fleet fleet;
    const KeyId alice = fleet.shares.id_of("alice", {.weight = 2});
    const KeyId bob = fleet.shares.id_of("bob", {});
    for (int i = 0; i < 6; ++i) {
        fleet.push("a", alice);
        fleet.push("b", bob);
    }
    fleet.open(6);
    EXPECT_EQ(std::count(fleet.started.begin(), fleet.started.end(), "a"), 4);
}

TEST(WaitQueueFairnessTest, PriorityGoesBeforeFairness) {
    Fleet fleet;
    const KeyId alice = fleet.shares.id_of("alice", {});
    fleet.shares.add(alice, 1e6, kStart);
    fleet.push("served much, urgent", alice, 0, -20);
    fleet.push("served little", kAnonymousKey);
    fleet.push("served little, waited", kAnonymousKey, -11);
    fleet.open(3);
    EXPECT_THAT(fleet.started,
                ElementsAre("served much, urgent", "served little, waited", "served little"));
}

TEST(WaitQueueFairnessTest, AKeyAtItsLimitWaitsAndLetsOthersPass) {
    Fleet fleet;
    const KeyId alice = fleet.shares.id_of("alice", {.requests_max = 1});
    fleet.push("a0", alice);
    fleet.push("a1", alice);
    fleet.push("other", kAnonymousKey, 1);
    fleet.open(3);
    EXPECT_THAT(fleet.started, ElementsAre("a0", "other"));
    fleet.shares.on_end(alice);
    fleet.open(3);
    EXPECT_THAT(fleet.started, ElementsAre("a0", "other", "a1"));
}

TEST(WaitQueueFairnessTest, AKeyMayFillHalfTheQueueWhileOthersWait) {
    Fleet fleet;
    fleet.queue.set_count_max(8);
    const KeyId alice = fleet.shares.id_of("alice", {});
    for (int i = 0; i < 6; ++i)
        EXPECT_TRUE(fleet.push("a", alice)) << "nobody else waits";
    EXPECT_TRUE(fleet.push("other", kAnonymousKey));
    EXPECT_FALSE(fleet.push("a", alice));
    EXPECT_TRUE(fleet.push("other", kAnonymousKey));
    EXPECT_FALSE(fleet.push("other", kAnonymousKey)) << "full";
}

}  // namespace
}  // namespace router

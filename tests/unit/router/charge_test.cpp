// Accounts: every charge and permit comes back exactly once, whatever the order and whoever died.
#include "router/charge.h"

#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace router {
namespace {

using std::chrono::milliseconds;

std::shared_ptr<Account> account() {
    return std::make_shared<Account>("9f2c41d07ab35e18");
}

TEST(ChargeTest, CountsFromSelectionAndGivesBackOnDestruction) {
    const auto replica = account();
    {
        const Charge charge(replica, {.prefill_tokens = 100, .output_tokens = 20});
        const Permit permit(replica, 2);
        EXPECT_EQ(replica->unseen_tokens(), 100);
        EXPECT_EQ(replica->prefill_tokens(), 100);
        EXPECT_EQ(replica->output_tokens(), 20);
        EXPECT_EQ(replica->occupied(), 2);
    }
    EXPECT_TRUE(replica->is_idle());
}

TEST(ChargeTest, TheFirstByteReleasesThePromptAndTheEndTheRest) {
    const auto replica = account();
    Charge charge(replica, {.prefill_tokens = 100, .output_tokens = 20});
    charge.mark_first_byte(Clock::time_point{});
    EXPECT_EQ(replica->prefill_tokens(), 0);
    EXPECT_EQ(replica->unseen_tokens(), 0);
    EXPECT_EQ(replica->output_tokens(), 20);
    charge.release();
    charge.release();
    EXPECT_TRUE(replica->is_idle());
}

TEST(ChargeTest, AReportContainsWhatWasSentAtLeastTheLagBefore) {
    const auto replica = account();
    const Clock::time_point start{};
    Charge early(replica, {.prefill_tokens = 100});
    Charge late(replica, {.prefill_tokens = 7});
    Charge unsent(replica, {.prefill_tokens = 1});
    early.mark_sent(start);
    late.mark_sent(start + milliseconds(15));
    replica->on_report(start + kReportLag, 1);
    EXPECT_EQ(replica->unseen_tokens(), 8);
    replica->on_report(start + milliseconds(15) + kReportLag, 2);
    EXPECT_EQ(replica->unseen_tokens(), 1);
    EXPECT_EQ(replica->prefill_tokens(), 108) << "own charges stay until the first byte";
}

TEST(ChargeTest, AReportOfFewerSequencesThanWereSentContainsTheOldestOnly) {
    const auto replica = account();
    const Clock::time_point start{};
    Charge first(replica, {.prefill_tokens = 100});
    Charge second(replica, {.prefill_tokens = 7});
    first.mark_sent(start);
    second.mark_sent(start);
    // A second later the replica is still tokenising the second one.
    replica->on_report(start + milliseconds(1000), 1);
    EXPECT_EQ(replica->unseen_tokens(), 7);
    replica->on_report(start + milliseconds(1100), 2);
    EXPECT_EQ(replica->unseen_tokens(), 0);
}

TEST(ChargeTest, SequencesOfOtherSendersTakeRoomToo) {
    const auto replica = account();
    const Clock::time_point start{};
    replica->on_report(start, 3);
    EXPECT_EQ(replica->occupied(), 3);
    Charge charge(replica, {.prefill_tokens = 9});
    const Permit permit(replica, 1);
    charge.mark_sent(start);
    replica->on_report(start + milliseconds(5), 3);
    EXPECT_EQ(replica->occupied(), 4) << "the same three, and ours is not among them yet";
    EXPECT_EQ(replica->unseen_tokens(), 9);
    replica->on_report(start + milliseconds(10), 4);
    EXPECT_EQ(replica->occupied(), 4) << "now it is one of the four";
    EXPECT_EQ(replica->unseen_tokens(), 0);
    replica->on_report(start + milliseconds(80), 0);
    EXPECT_EQ(replica->occupied(), 1) << "never fewer than our own";
}

TEST(ChargeTest, ABurstToAnIdleReplicaIsSeenAsItIsCounted) {
    const auto replica = account();
    const Clock::time_point start{};
    std::vector<Charge> charges;
    for (int i = 0; i < 5; ++i) {
        charges.emplace_back(replica, Charge::Amount{.prefill_tokens = 10});
        charges.back().mark_sent(start);
    }
    replica->on_report(start + milliseconds(1), 3);
    EXPECT_EQ(replica->unseen_tokens(), 20) << "three of the five have arrived";
}

TEST(ChargeTest, AReportMayStillCountWhatEndedSinceTheLastOne) {
    const auto replica = account();
    const Clock::time_point start{};
    auto first = std::make_unique<Charge>(replica, Charge::Amount{.prefill_tokens = 10});
    first->mark_sent(start);
    replica->on_report(start + milliseconds(50), 1);
    first.reset();
    Charge second(replica, {.prefill_tokens = 7});
    second.mark_sent(start + milliseconds(60));
    replica->on_report(start + milliseconds(61), 1);
    EXPECT_EQ(replica->unseen_tokens(), 7) << "the one it counts may be the first";
    EXPECT_EQ(replica->occupied(), 0) << "and not somebody else's";
    replica->on_report(start + milliseconds(81), 1);
    EXPECT_EQ(replica->unseen_tokens(), 0);
}

TEST(ChargeTest, ReportsOlderThanAnEndDoNotCountTheFinishedRequestAgain) {
    const auto replica = account();
    const Clock::time_point start{};
    Charge charge(replica, {.prefill_tokens = 1000});
    const std::uint64_t number = charge.number();
    charge.mark_sent(start);
    replica->on_report(start + milliseconds(30), 1);
    EXPECT_EQ(replica->queued_tokens(1000), 1000);
    charge.mark_first_byte(start + milliseconds(50), 990);
    EXPECT_EQ(replica->queued_tokens(1000), 10) << "its part of the last report is done";
    charge.release(start + milliseconds(52));
    // Two reports that were made before the end arrive late.
    for (const int ms : {60, 80}) {
        replica->on_report(start + milliseconds(ms), 1);
        EXPECT_EQ(replica->occupied(), 0) << ms;
        EXPECT_EQ(replica->queued_tokens(990), 0) << ms;
    }
    replica->on_done(number);
    replica->on_report(start + milliseconds(100), 1);
    EXPECT_EQ(replica->occupied(), 1) << "after the done event it is somebody else's";
    EXPECT_EQ(replica->queued_tokens(990), 990);
}

TEST(ChargeTest, ADoneEventBeforeTheEndOfTheAnswerTakesItOutOfLaterReports) {
    const auto replica = account();
    const Clock::time_point start{};
    Charge ending(replica, {.prefill_tokens = 10});
    Permit permit(replica, 1);
    ending.mark_sent(start);
    replica->on_report(start + milliseconds(30), 1);
    replica->on_done(ending.number());  // its last bytes are on their way
    Charge young(replica, {.prefill_tokens = 7});
    young.mark_sent(start + milliseconds(31));
    replica->on_report(start + milliseconds(60), 1);
    EXPECT_EQ(replica->unseen_tokens(), 0) << "the one that is counted is the young one";
    ending.release(start + milliseconds(61));
    replica->on_report(start + milliseconds(90), 2);
    EXPECT_EQ(replica->occupied(), 2) << "ours and another sender's: nothing else explains it";
}

TEST(ChargeTest, AnEndWithoutADoneEventIsForgottenAfterASecond) {
    const auto replica = account();
    const Clock::time_point start{};
    Charge charge(replica, {.prefill_tokens = 10});
    charge.mark_sent(start);
    charge.release(start + milliseconds(10));
    replica->on_report(start + milliseconds(900), 1);
    EXPECT_EQ(replica->occupied(), 0);
    replica->on_report(start + milliseconds(10) + kUnreportedEndMax, 1);
    EXPECT_EQ(replica->occupied(), 1);
}

TEST(ChargeTest, WhatIsKnownToWaitIsNeverTakenOffAReport) {
    const auto replica = account();
    const Clock::time_point start{};
    Charge first(replica, {.prefill_tokens = 300});
    Charge second(replica, {.prefill_tokens = 200});
    first.mark_sent(start);
    second.mark_sent(start);
    first.mark_first_byte(start + milliseconds(100));
    // The report may or may not count the first one; the second one it does.
    replica->on_report(start + milliseconds(101), 2);
    EXPECT_EQ(replica->queued_tokens(500), 200);
    EXPECT_EQ(replica->queued_tokens(250), 200);
    EXPECT_EQ(replica->queued_tokens(150), 150) << "its prefill is under way";
}

TEST(ChargeTest, TheExpectedAnswerShrinksAsItComesAndNeverBelowOneTokenEach) {
    const auto replica = account();
    Charge charge(replica, {.prefill_tokens = 10, .output_tokens = 20, .sequences = 2});
    charge.mark_output(5);
    EXPECT_EQ(replica->output_tokens(), 15);
    charge.mark_output(500);
    EXPECT_EQ(replica->output_tokens(), 2) << "it still runs";
    charge.release();
    EXPECT_TRUE(replica->is_idle());
}

TEST(ChargeTest, AReportThatNothingIsQueuedEndsThePrefillOfWhatItContains) {
    const auto replica = account();
    const Clock::time_point start{};
    Charge seen(replica, {.prefill_tokens = 100});
    Charge young(replica, {.prefill_tokens = 7});
    seen.mark_sent(start);
    replica->on_report(start + milliseconds(50), 1);
    young.mark_sent(start + milliseconds(50));
    replica->on_nothing_queued(start + milliseconds(51));
    EXPECT_TRUE(seen.is_prefilled());
    EXPECT_FALSE(young.is_prefilled());
    EXPECT_EQ(replica->prefill_tokens(), 7);
}

TEST(ChargeTest, MovingHandsTheDutyOver) {
    const auto replica = account();
    Charge first(replica, {.prefill_tokens = 5});
    Charge second = std::move(first);
    EXPECT_FALSE(
        first.is_held());  // NOLINT(bugprone-use-after-move): the moved-from state is the point
    second = Charge(replica, {.prefill_tokens = 9});
    EXPECT_EQ(replica->prefill_tokens(), 9);
    Permit permit(replica, 1);
    permit = Permit(replica, 3);
    EXPECT_EQ(replica->occupied(), 3);
}

TEST(ChargeTest, AReleaseAfterTheInstanceIsGoneChangesNothingOfItsSuccessor) {
    auto current = account();
    Charge charge(current, {.prefill_tokens = 100, .output_tokens = 3});
    Permit permit(current, 1);
    current = std::make_shared<Account>("0000000000000001");
    charge.release();
    permit.release();
    EXPECT_TRUE(current->is_idle());
}

TEST(ChargeTest, RandomLivesAlwaysEndAtExactlyZero) {
    struct Request {
        Charge charge;
        Permit permit;
    };
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        std::vector<std::shared_ptr<Account>> accounts = {account(), account(), account()};
        std::vector<Request> requests;
        Clock::time_point now{};
        for (int step = 0; step < 300; ++step) {
            now += milliseconds(random() % 30);
            const auto& replica = accounts[random() % accounts.size()];
            switch (random() % 6) {
                case 0:
                case 1: {
                    const auto tokens = static_cast<std::int64_t>(random() % 1000);
                    const int sequences = 1 + static_cast<int>(random() % 3);
                    requests.push_back(
                        {Charge(replica, {tokens, tokens / 2, sequences, tokens / 64}),
                         Permit(replica, sequences)});
                    requests.back().charge.mark_sent(now);
                    break;
                }
                case 2:
                    replica->on_report(now, static_cast<int>(random() % 5));
                    break;
                case 3:
                    if (!requests.empty())
                        requests[random() % requests.size()].charge.mark_first_byte(now);
                    break;
                case 4:
                    if (!requests.empty()) {
                        std::swap(requests[random() % requests.size()], requests.back());
                        requests.pop_back();
                    }
                    break;
                case 5:  // the process restarts
                    if (random() % 10 == 0) accounts[random() % accounts.size()] = account();
                    break;
            }
        }
        requests.clear();
        for (const auto& replica : accounts)
            ASSERT_TRUE(replica->is_idle()) << "seed " << seed;
    }
}

}  // namespace
}  // namespace router

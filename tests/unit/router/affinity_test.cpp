// The table of who holds which beginning of a prompt, its bounds, and the meter that judges it.
#include "router/affinity.h"

#include <gmock/gmock.h>

#include "router/affinity_regret.h"

namespace router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr Clock::time_point kStart{seconds(1000)};
constexpr InstanceRef kFirst{0, 1};
constexpr InstanceRef kSecond{1, 1};

/// Boundaries 1 .. count, 1000 tokens apart.
Boundaries prompt(std::uint64_t count) {
    Boundaries boundaries{.prompt_tokens = static_cast<std::int64_t>(count) * 1000};
    for (std::uint64_t i = 1; i <= count; ++i)
        boundaries.list.push_back({i, static_cast<std::int64_t>(i) * 1000});
    return boundaries;
}

TEST(AffinityTest, FindsForEachReplicaItsDeepestBoundary) {
    AffinityTable table({});
    table.note_pending(prompt(2), kFirst, kStart);
    table.note_pending(prompt(1), kSecond, kStart);
    EXPECT_THAT(table.look_up(prompt(4), kStart).matches,
                UnorderedElementsAre(Match{kFirst, 2000}, Match{kSecond, 1000}));
    EXPECT_THAT(table.look_up({}, kStart).matches, IsEmpty());
}

TEST(AffinityTest, AFirstTokenSetsTheTrueLengthsAndTheRestIsEstimated) {
    AffinityTable table({});
    table.note_pending(prompt(2), kFirst, kStart);
    table.confirm(prompt(2), kFirst, {.prompt_tokens = 1000, .cached_tokens = 0}, kStart);
    const AffinityTable::Found found = table.look_up(prompt(3), kStart);
    EXPECT_THAT(found.matches, ElementsAre(Match{kFirst, 1000}));
    EXPECT_EQ(found.prompt_tokens, 2000) << "1000 as reported, and 1000 estimated behind it";
}

TEST(AffinityTest, ANewDispatchDoesNotUnlearnTheTrueLengths) {
    AffinityTable table({});
    table.confirm(prompt(2), kFirst, {.prompt_tokens = 1000}, kStart);
    table.note_pending(prompt(2), kFirst, kStart);
    EXPECT_EQ(table.look_up(prompt(2), kStart).matches.at(0).tokens, 1000);
}

TEST(AffinityTest, CountsWhatTheReplicaNoLongerHad) {
    AffinityTable table({});
    table.confirm(prompt(3), kFirst, {.prompt_tokens = 3000}, kStart);
    const AffinityTable::Report report{
        .prompt_tokens = 3000, .cached_tokens = 1950, .block_tokens = 64};
    table.confirm(prompt(3), kFirst, report, kStart);
    EXPECT_EQ(table.evictions(EvictionReason::kCorrection), 1U)
        << "the third was gone; the second may end within a block";
}

TEST(AffinityTest, WhatFailedIsForgottenAndWhatWasConfirmedStays) {
    AffinityTable table({});
    table.confirm(prompt(1), kFirst, {.prompt_tokens = 1000}, kStart);
    table.note_pending(prompt(3), kFirst, kStart);
    table.drop_pending(prompt(3), kFirst);
    EXPECT_THAT(table.look_up(prompt(3), kStart).matches, ElementsAre(Match{kFirst, 1000}));
    EXPECT_EQ(table.size(), 1U);
}

TEST(AffinityTest, AnInstanceTakesItsEntriesWithIt) {
    AffinityTable table({});
    table.confirm(prompt(2), kFirst, {.prompt_tokens = 2000}, kStart);
    table.confirm(prompt(2), kSecond, {.prompt_tokens = 2000}, kStart);
    table.drop_instance(kFirst);
    EXPECT_THAT(table.look_up(prompt(2), kStart).matches, ElementsAre(Match{kSecond, 2000}));
    table.drop_instance(kSecond);
    EXPECT_EQ(table.size(), 0U);
    EXPECT_EQ(table.evictions(EvictionReason::kInstance), 4U);
}

TEST(AffinityTest, EntriesEndAfterTheirTimeAndUseKeepsThem) {
    AffinityTable table({.ttl = seconds(900)});
    table.note_pending(prompt(1), kFirst, kStart);
    EXPECT_EQ(table.look_up(prompt(1), kStart + seconds(899)).matches.size(), 1U);
    EXPECT_THAT(table.look_up(prompt(1), kStart + seconds(900)).matches, IsEmpty());
    table.note_pending(prompt(1), kFirst, kStart + seconds(800));
    EXPECT_EQ(table.look_up(prompt(1), kStart + seconds(1600)).matches.size(), 1U);
}

TEST(AffinityTest, KeepsAtMostItsNumberOfEntriesAndFourHoldersEach) {
    AffinityTable table({.entries_max = 10});
    for (std::uint64_t i = 0; i < 1000; ++i) {
        Boundaries one;
        one.list = {{i, 1000}};
        table.note_pending(one, kFirst, kStart);
        ASSERT_LE(table.size(), 10U);
    }
    EXPECT_EQ(table.evictions(EvictionReason::kLru), 990U);
    for (int i = 0; i < 9; ++i)
        table.note_pending(prompt(1), {i, 1}, kStart + milliseconds(i));
    EXPECT_THAT(table.look_up(prompt(1), kStart + seconds(1)).matches,
                UnorderedElementsAre(Match{{5, 1}, 1000}, Match{{6, 1}, 1000}, Match{{7, 1}, 1000},
                                     Match{{8, 1}, 1000}));
}

TEST(AffinityTest, ACacheKeyRemembersTheLastReplica) {
    AffinityTable table({});
    Boundaries boundaries{.cache_key = 77};
    EXPECT_FALSE(table.look_up(boundaries, kStart).preferred);
    table.note_pending(boundaries, kFirst, kStart);
    table.note_pending(boundaries, kSecond, kStart);
    EXPECT_EQ(table.look_up(boundaries, kStart).preferred, kSecond);
}

TEST(RegretMeterTest, SixtyFourPicksThatDidNotPaySwitchAffinityOffForAMinute) {
    RegretMeter meter;
    for (int i = 0; i < 63; ++i)
        meter.on_prefix_pick(1.2, 1.0, kStart);
    EXPECT_FALSE(meter.is_suspended(kStart));
    meter.on_prefix_pick(1.2, 1.0, kStart);
    EXPECT_TRUE(meter.is_suspended(kStart + seconds(59)));
    EXPECT_FALSE(meter.is_suspended(kStart + seconds(60)));
    meter.on_prefix_pick(1.2, 1.0, kStart + seconds(61));
    EXPECT_FALSE(meter.is_suspended(kStart + seconds(61))) << "it begins to count anew";
}

TEST(RegretMeterTest, PicksThatPaidAndTriflesDoNot) {
    RegretMeter paid;
    RegretMeter trifles;
    for (int i = 0; i < 200; ++i) {
        paid.on_prefix_pick(0.5, 1.0, kStart);
        trifles.on_prefix_pick(0.018, 0.010, kStart);  // 8 ms
    }
    EXPECT_FALSE(paid.is_suspended(kStart));
    EXPECT_FALSE(trifles.is_suspended(kStart));
}

TEST(RegretMeterTest, PredictionsThatAreAlwaysOffByTheSameFactorAreNoRegret) {
    RegretMeter meter;
    for (int i = 0; i < 100; ++i)
        meter.on_plain_pick(2.0, 1.0);  // everything takes twice the expected time
    for (int i = 0; i < 100; ++i)
        meter.on_prefix_pick(1.9, 1.0, kStart);
    EXPECT_FALSE(meter.is_suspended(kStart));
}

}  // namespace
}  // namespace router

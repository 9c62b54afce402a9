// What the policy learns from its own decisions, over a life of dispatches.
#include "router/policy_memory.h"

#include <random>

#include <gmock/gmock.h>

namespace router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::time_point kStart{seconds(1000)};
constexpr InstanceRef kReplica{0, 1};

std::shared_ptr<const Boundaries> prompt(std::uint64_t text = 1) {
    auto boundaries = std::make_shared<Boundaries>();
    boundaries->list = {{text, 1000}};
    boundaries->prompt_tokens = 1000;
    return boundaries;
}

Decision dispatch_to(InstanceRef replica, std::int64_t matched = 0, bool is_big = false) {
    Decision decision{.verdict = Verdict::kDispatch, .replica = replica};
    decision.matched_tokens = matched;
    decision.uncached_tokens = 1000 - matched;
    decision.is_big = is_big;
    return decision;
}

Snapshot one_ready() {
    return {.replicas = {{.index = 0, .life = 1, .state = ReplicaState::kReady, .slots = 8}}};
}

Placement::FirstToken cached(std::int64_t tokens) {
    return {.report = AffinityTable::Report{.prompt_tokens = 1000, .cached_tokens = tokens}};
}

std::size_t matches(const PolicyMemory& memory, const Boundaries& boundaries,
                    Clock::time_point now = kStart) {
    Demand demand;
    memory.fill(demand, boundaries, now);
    return demand.matches.size();
}

TEST(PolicyMemoryTest, APromptIsExpectedWhereItWasSentUntilThatFails) {
    PolicyMemory memory({});
    {
        const Placement placement(memory, dispatch_to(kReplica), prompt(), kAnonymousKey, 10,
                                  kStart);
        EXPECT_EQ(matches(memory, *prompt()), 1U);
    }
    EXPECT_EQ(matches(memory, *prompt()), 0U) << "it ended without a first token";
    {
        Placement placement(memory, dispatch_to(kReplica), prompt(), kAnonymousKey, 10, kStart);
        placement.on_first_token(cached(0), kStart);
    }
    EXPECT_EQ(matches(memory, *prompt()), 1U);
    memory.drop_instance(kReplica);
    EXPECT_EQ(matches(memory, *prompt()), 0U);
}

TEST(PolicyMemoryTest, ACacheThatNeverKeepsAnythingLosesTrustWithinAFewRequests) {
    PolicyMemory memory({});
    const auto send = [&memory](std::int64_t had) {
        Placement placement(memory, dispatch_to(kReplica, 900), prompt(), kAnonymousKey, 10,
                            kStart);
        placement.on_first_token(cached(had), kStart);
    };
    send(900);
    EXPECT_DOUBLE_EQ(memory.trust(kReplica), 1);
    for (int i = 0; i < 10; ++i)
        send(0);
    EXPECT_LT(memory.trust(kReplica), 0.35);
    for (int i = 0; i < 60; ++i)
        send(0);
    EXPECT_DOUBLE_EQ(memory.trust(kReplica), 0.05) << "not less, or it would never come back";
    for (int i = 0; i < 60; ++i)
        send(1000);
    EXPECT_GT(memory.trust(kReplica), 0.95);
    EXPECT_DOUBLE_EQ(memory.trust({0, 2}), 1) << "another instance is another cache";
}

TEST(PolicyMemoryTest, WithoutAReportedCountNothingIsLearntAboutTheCache) {
    PolicyMemory memory({});
    Placement placement(memory, dispatch_to(kReplica, 900), prompt(), kAnonymousKey, 10, kStart);
    placement.on_first_token({}, kStart);
    EXPECT_DOUBLE_EQ(memory.trust(kReplica), 1);
}

TEST(PolicyMemoryTest, ALongPrefillIsCountedUntilItsFirstTokenAndStaggersTheNext) {
    PolicyMemory memory({});
    const auto view = [&memory](Clock::time_point now) {
        Snapshot snapshot = one_ready();
        memory.fill(snapshot, now);
        return std::pair(snapshot.replicas[0].big_prefills, snapshot.big.is_start_recent);
    };
    EXPECT_EQ(view(kStart), std::pair(0, false));
    Placement placement(memory, dispatch_to(kReplica, 0, true), nullptr, kAnonymousKey, 10, kStart);
    EXPECT_EQ(view(kStart + milliseconds(199)), std::pair(1, true));
    EXPECT_EQ(view(kStart + milliseconds(200)), std::pair(1, false));
    placement.on_first_token({}, kStart + seconds(3));
    EXPECT_EQ(view(kStart + seconds(3)), std::pair(0, false));
    placement.end_big_prefill();
    EXPECT_EQ(view(kStart + seconds(3)).first, 0) << "once";
}

TEST(PolicyMemoryTest, OnlyAShortRequestKeepsAReplicaFreeOfLongOnes) {
    PolicyMemory memory({});
    const auto is_interactive = [&memory](Clock::time_point now) {
        Snapshot snapshot = one_ready();
        memory.fill(snapshot, now);
        return snapshot.big.is_interactive;
    };
    memory.note_arrival(20'000, one_ready(), kStart);  // 10 s at 2000 tokens a second
    EXPECT_FALSE(is_interactive(kStart));
    memory.note_arrival(500, one_ready(), kStart);
    EXPECT_TRUE(is_interactive(kStart + milliseconds(29'999)));
    EXPECT_FALSE(is_interactive(kStart + seconds(30)));
}

TEST(PolicyMemoryTest, SuspendedAffinityHidesMatchesAndGoesOnLearning) {
    PolicyMemory memory({});
    Decision decision = dispatch_to(kReplica, 900);
    decision.reason = Reason::kPrefix;
    decision.least_load_ttft_s = 0.1;
    for (std::size_t i = 0; i < RegretMeter::kPicks; ++i) {
        Placement placement(memory, decision, prompt(), kAnonymousKey, 10, kStart);
        placement.on_first_token(cached(1000), kStart + seconds(1));
    }
    const auto now = kStart + seconds(1);
    EXPECT_TRUE(memory.is_affinity_suspended(now));
    EXPECT_EQ(matches(memory, *prompt(), now), 0U);
    EXPECT_EQ(matches(memory, *prompt(), now + seconds(60)), 1U);
}

TEST(PolicyMemoryTest, AnAnswerThatComesWholeSaysNothingAboutTimes) {
    PolicyMemory memory({});
    Decision decision = dispatch_to(kReplica, 900);
    decision.reason = Reason::kPrefix;
    decision.least_load_ttft_s = 0.1;
    for (std::size_t i = 0; i < 2 * RegretMeter::kPicks; ++i) {
        Placement placement(memory, decision, prompt(), kAnonymousKey, 10, kStart);
        Placement::FirstToken first = cached(1000);
        first.is_timely = false;
        placement.on_first_token(first, kStart + seconds(9));
    }
    EXPECT_FALSE(memory.is_affinity_suspended(kStart + seconds(9)));
}

TEST(PolicyMemoryTest, RandomLivesLeaveNothingCounted) {
    for (unsigned seed = 0; seed < 50; ++seed) {
        std::mt19937 random(seed);
        PolicyMemory memory({.affinity = {.entries_max = 20}});
        std::vector<std::unique_ptr<Placement>> placements;
        Clock::time_point now = kStart;
        std::uint64_t life = 1;
        for (int step = 0; step < 300; ++step) {
            now += milliseconds(random() % 5000);
            switch (random() % 4) {
                case 0:
                    placements.push_back(std::make_unique<Placement>(
                        memory,
                        dispatch_to({static_cast<int>(random() % 3), life}, random() % 2 * 500,
                                    random() % 2 == 0),
                        prompt(random() % 40), kAnonymousKey, 10, now));
                    break;
                case 1:
                    if (placements.empty()) break;
                    placements[random() % placements.size()]->on_first_token(
                        cached(static_cast<std::int64_t>(random() % 1000)), now);
                    break;
                case 2:
                    if (placements.empty()) break;
                    std::swap(placements[random() % placements.size()], placements.back());
                    placements.pop_back();
                    break;
                case 3:
                    if (random() % 8 != 0) break;
                    memory.drop_instance({static_cast<int>(random() % 3), life});
                    if (random() % 2 == 0) ++life;
                    break;
            }
            ASSERT_LE(memory.affinity().size(), 20U);
        }
        placements.clear();
        EXPECT_FALSE(memory.has_big_prefills()) << "seed " << seed;
    }
}

}  // namespace
}  // namespace router

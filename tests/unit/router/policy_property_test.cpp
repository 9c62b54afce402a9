// What must hold for every choice, over random snapshots crowded into small numbers, so that ties
// and limits occur. Above all "never worse than least-loaded", checked against a second, plain
// implementation of least-loaded. QUADRIGA_SNAPSHOTS sets how many are drawn; a million by default.
#include <algorithm>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "router/policy.h"

namespace router {
namespace {

std::uint64_t snapshot_count() {
    const char* text = std::getenv("QUADRIGA_SNAPSHOTS");
    return text == nullptr ? 1'000'000 : std::strtoull(text, nullptr, 10);
}

/// Draws with one generator: seeding one for each snapshot would take longer than the choices.
class Random {
public:
    int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
    bool one_in(int count) { return below(count) == 0; }

private:
    std::mt19937 random_{20'250'101};
};

ReplicaView random_view(Random& random, int index) {
    ReplicaView view{.index = index, .life = 1};
    view.state = random.one_in(5) ? static_cast<ReplicaState>(random.below(kReplicaStateCount))
                                  : ReplicaState::kReady;
    view.slots = 1 + random.below(4);
    view.occupied = random.below(6);
    view.queued_tokens = random.below(4) * 700;
    view.unseen_tokens = random.below(3) * 700;
    view.expected_output_tokens = random.below(4) * 60;
    view.prefill_tokens_per_s = 500 * (1 + random.below(3));
    view.decode_tokens_per_s = 50 * (1 + random.below(3));
    view.trust = random.one_in(2) ? 1 : 0.05 + 0.1 * random.below(10);
    if (random.one_in(2)) {
        view.block_tokens = 64;
        view.blocks_total = 200;
        view.blocks_used = random.below(200);
    }
    view.big_prefills = random.below(3);
    view.gpus = random.one_in(4) ? 2 : 1;
    view.is_saturated = random.one_in(10);
    view.is_shut = random.one_in(12);
    view.is_reserved = random.one_in(12);
    view.reserved_slots = random.below(2);
    view.last_dispatch = static_cast<std::uint64_t>(random.below(4));
    return view;
}

Snapshot random_snapshot(Random& random) {
    Snapshot snapshot{.dispatch_ahead = random.below(3), .waiting = random.below(2)};
    const int count = random.below(6);
    for (int i = 0; i < count; ++i)
        snapshot.replicas.push_back(random_view(random, i));
    snapshot.big.is_interactive = random.one_in(2);
    snapshot.big.is_start_recent = random.one_in(4);
    snapshot.big.count_max = random.below(3);
    return snapshot;
}

Demand random_demand(Random& random, const Snapshot& snapshot, bool with_matches) {
    Demand demand;
    demand.sequences = 1 + random.below(3);
    demand.prompt_tokens = 1 + random.below(4) * 900;
    demand.output_tokens_kept = random.below(2) * 256;
    demand.may_hold = random.one_in(2);
    demand.waited = std::chrono::seconds(random.below(12));
    for (const ReplicaView& view : snapshot.replicas) {
        if (random.one_in(8)) demand.excluded.push_back(view.ref());
        if (random.one_in(6)) demand.preferred = view.ref();
        if (with_matches && random.one_in(2)) {
            demand.matches.push_back({view.ref(), random.below(5) * 700});
        }
    }
    return demand;
}

/// Least-loaded by the letter: the cost without a saving, over those that can start the request, in
/// the order of ties. Built on the candidates' terms, so that only the choice is repeated here.
const Candidate* least_loaded(const Snapshot& snapshot, const Demand& demand,
                              const Decision& decision) {
    const auto cost = [](const CostTerms& terms) {
        return terms.queue_s + terms.prefill_s + terms.decode_s + terms.kv_s + terms.slot_s;
    };
    double least = 1e300;
    for (const Candidate& one : decision.candidates) {
        if (one.can_start()) least = std::min(least, cost(one.terms));
    }
    const Candidate* best = nullptr;
    const ReplicaView* best_view = nullptr;
    for (std::size_t i = 0; i < decision.candidates.size(); ++i) {
        const Candidate& one = decision.candidates[i];
        const ReplicaView& view = snapshot.replicas[i];
        if (!one.can_start() || cost(one.terms) > least + std::max(0.002, 0.01 * least)) continue;
        const bool is_preferred = demand.preferred == view.ref();
        bool is_better = best == nullptr;
        if (best != nullptr) {
            const bool was_preferred = demand.preferred == best_view->ref();
            if (is_preferred != was_preferred) {
                is_better = is_preferred;
            } else if (view.occupied != best_view->occupied) {
                is_better = view.occupied < best_view->occupied;
            } else {
                is_better = view.last_dispatch < best_view->last_dispatch;
            }
        }
        if (!is_better) continue;
        best = &one;
        best_view = &view;
    }
    return best;
}

TEST(PolicyPropertyTest, WithoutAMatchThePickIsTheLeastLoaded) {
    Random random;
    for (std::uint64_t i = 0; i < snapshot_count(); ++i) {
        const Snapshot snapshot = random_snapshot(random);
        const Demand demand = random_demand(random, snapshot, false);
        const Decision decision = choose(snapshot, demand);
        if (decision.verdict != Verdict::kDispatch) continue;
        ASSERT_EQ(*decision.replica, least_loaded(snapshot, demand, decision)->replica)
            << "snapshot " << i;
        ASSERT_NE(decision.reason, Reason::kPrefix);
    }
}

TEST(PolicyPropertyTest, WithMatchesThePickCostsAtMostTheLeastLoadedOneWithItsOwnMatchAndATie) {
    Random random;
    for (std::uint64_t i = 0; i < snapshot_count(); ++i) {
        const Snapshot snapshot = random_snapshot(random);
        const Demand demand = random_demand(random, snapshot, true);
        const Decision decision = choose(snapshot, demand);
        if (decision.verdict != Verdict::kDispatch) continue;
        const double pick = decision.find(*decision.replica)->terms.total();
        const double other = least_loaded(snapshot, demand, decision)->terms.total();
        ASSERT_LE(pick, other + tie_width_s(other) + 1e-12) << "snapshot " << i;
    }
}

TEST(PolicyPropertyTest, NeverPicksWhatCannotStartAndNeverWaitsWithoutReason) {
    Random random;
    for (std::uint64_t i = 0; i < snapshot_count() / 5; ++i) {
        const Snapshot snapshot = random_snapshot(random);
        const Demand demand = random_demand(random, snapshot, true);
        const Decision decision = choose(snapshot, demand);
        bool has_startable = false;
        bool has_candidate = false;
        for (const Candidate& one : decision.candidates) {
            has_startable = has_startable || one.can_start();
            has_candidate = has_candidate || one.is_candidate();
        }
        ASSERT_EQ(decision.verdict == Verdict::kUnavailable, !has_candidate) << i;
        if (decision.verdict == Verdict::kDispatch) {
            const auto& view =
                snapshot.replicas.at(static_cast<std::size_t>(decision.replica->index));
            ASSERT_TRUE(is_startable(view, demand.sequences, snapshot.dispatch_ahead)) << i;
            ASSERT_FALSE(view.is_shut) << i;
        }
        if (decision.verdict == Verdict::kWait) {
            ASSERT_TRUE(decision.is_hold || !has_startable ||
                        decision.obstacle == Obstacle::kStagger)
                << i;
            ASSERT_FALSE(decision.is_hold && !demand.may_hold) << i;
        }
    }
}

TEST(PolicyPropertyTest, TheChoiceDoesNotDependOnTheOrderOfTheSnapshot) {
    Random random;
    std::mt19937 order(7);
    for (int i = 0; i < 50'000; ++i) {
        Snapshot snapshot = random_snapshot(random);
        const Demand demand = random_demand(random, snapshot, true);
        const Decision before = choose(snapshot, demand);
        std::shuffle(snapshot.replicas.begin(), snapshot.replicas.end(), order);
        const Decision after = choose(snapshot, demand);
        ASSERT_EQ(before.verdict, after.verdict) << i;
        ASSERT_EQ(before.replica, after.replica) << i;
    }
}

}  // namespace
}  // namespace router

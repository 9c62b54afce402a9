// The cost of a replica, against the formula of the specification written out once more.
#include "router/cost.h"

#include <random>

#include <gtest/gtest.h>

namespace router {
namespace {

/// 1000 prompt tokens and 100 output tokens a second, 8 slots.
ReplicaView replica() {
    ReplicaView view{.index = 0, .life = 1, .state = ReplicaState::kReady, .slots = 8};
    view.prefill_tokens_per_s = 1000;
    view.decode_tokens_per_s = 100;
    return view;
}

TEST(CostTest, IsTheFormulaOfTheSpecification) {
    std::mt19937 random(3);
    const auto below = [&random](int limit) {
        return static_cast<double>(random() % static_cast<unsigned>(limit));
    };
    for (int i = 0; i < 10'000; ++i) {
        ReplicaView view = replica();
        view.queued_tokens = static_cast<std::int64_t>(below(5000));
        view.unseen_tokens = static_cast<std::int64_t>(below(5000));
        view.expected_output_tokens = static_cast<std::int64_t>(below(900));
        view.trust = 0.05 + below(20) / 20;
        view.block_tokens = 64;
        view.blocks_total = 1000;
        view.blocks_used = static_cast<std::int64_t>(below(1000));
        const auto tokens = 64 * (1 + static_cast<std::int64_t>(below(100)));
        const auto matched = static_cast<std::int64_t>(below(static_cast<int>(tokens)));
        const std::int64_t least = std::min<std::int64_t>(view.ahead(), 1000);
        const CostTerms terms = cost_of(
            view, {.tokens = tokens, .matched = matched, .least_ahead = least}, CostOptions{});

        const auto ahead = static_cast<double>(view.queued_tokens + view.unseen_tokens);
        const auto q = static_cast<double>(tokens);
        const double credit = view.trust / (1 + 0.5 * (ahead - static_cast<double>(least)) / q);
        const double k = std::min(0.999, (static_cast<double>(view.blocks_used) + q / 64) / 1000);
        const double expected =
            ahead / 1000 + q / 1000 - credit * static_cast<double>(matched) / 1000 +
            0.25 * static_cast<double>(view.expected_output_tokens) / 100 + 0.15 * k / (1 - k);
        ASSERT_NEAR(terms.total(), expected, 1e-9) << i;
        ASSERT_NEAR(terms.without_match(), expected + terms.saved_s, 1e-9) << i;
    }
}

TEST(CostTest, AFreeSlotCostsNothingAndEachMissingOneATurn) {
    ReplicaView view = replica();
    view.occupied = 7;
    view.expected_output_tokens = 7 * 90;
    EXPECT_EQ(cost_of(view, {}, {}).slot_s, 0);
    view.occupied = 8;
    view.expected_output_tokens = 8 * 90;
    // Eight answers with 90 tokens to go on average: the first ends after 2 * 90 / 9 of its own
    // tokens, and each gets 100 / 8 a second.
    const double one = cost_of(view, {}, {}).slot_s;
    EXPECT_NEAR(one, 2.0 * 90 / 9 / (100.0 / 8), 1e-9);
    EXPECT_NEAR(cost_of(view, {.sequences = 3}, {}).slot_s, 3 * one, 1e-9);
    view.expected_output_tokens = 0;
    EXPECT_GT(cost_of(view, {}, {}).slot_s, 0) << "others' answers end too, but nobody knows when";
}

TEST(CostTest, UnknownMemoryAndSillyRatesDoNoHarm) {
    ReplicaView view = replica();
    EXPECT_EQ(cost_of(view, {.tokens = 5000}, {}).kv_s, 0);
    view.prefill_tokens_per_s = 0;
    view.decode_tokens_per_s = -3;
    view.expected_output_tokens = 10;
    const CostTerms terms = cost_of(view, {.tokens = 5000, .matched = 90'000}, {});
    EXPECT_EQ(terms.prefill_s, 5000);
    EXPECT_EQ(terms.saved_s, 5000) << "never more than the prompt";
    EXPECT_EQ(terms.decode_s, 2.5);
}

TEST(CostTest, AReplicaFarBehindGetsLessForItsCache) {
    ReplicaView view = replica();
    const CostQuestion question{.tokens = 1000, .matched = 1000};
    EXPECT_DOUBLE_EQ(cost_of(view, question, {}).saved_s, 1);
    view.queued_tokens = 2000;
    EXPECT_DOUBLE_EQ(cost_of(view, question, {}).saved_s, 0.5);
}

}  // namespace
}  // namespace router

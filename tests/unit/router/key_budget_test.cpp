// What all keys share: the bound, one key's half, and shares that grow and are given back.
#include "router/key_budget.h"

#include <utility>

#include <gtest/gtest.h>

namespace router {
namespace {

TEST(KeyBudgetTest, AKeyMayTakeHalfWhileOthersHoldSomething) {
    KeyBudget budget(100);
    auto alone = budget.take(80, 1);
    ASSERT_TRUE(alone) << "nobody else is here";
    auto other = budget.take(10, 2);
    ASSERT_TRUE(other);
    EXPECT_TRUE(budget.is_half_full(1, 1));
    EXPECT_FALSE(budget.take(1, 1)) << "10 are free, but not for this key";
    EXPECT_FALSE(budget.is_half_full(10, 2));
    alone->release();
    auto half = budget.take(50, 1);
    EXPECT_TRUE(half) << "the half, inclusive";
    EXPECT_FALSE(budget.take(1, 1));
    other->release();
    EXPECT_TRUE(budget.take(1, 1)) << "alone again";
    half->release();
    EXPECT_EQ(budget.used(), 0U);
    EXPECT_FALSE(budget.is_half_full(90, 1)) << "nothing of anybody is remembered";
}

TEST(KeyBudgetTest, AShareGrowsOrStaysAsItIs) {
    KeyBudget budget(100);
    KeyBudget::Share share;
    EXPECT_TRUE(budget.grow(share, 40, 1));
    EXPECT_TRUE(budget.grow(share, 100, 1)) << "nobody else is here";
    EXPECT_TRUE(budget.grow(share, 70, 1)) << "it has that";
    EXPECT_EQ(share.amount(), 100U);
    EXPECT_FALSE(budget.grow(share, 101, 1));
    EXPECT_EQ(share.amount(), 100U);
    share.release();
    EXPECT_EQ(budget.used(), 0U);
    KeyBudget::Share other;
    EXPECT_TRUE(budget.grow(other, 10, 2));
    EXPECT_TRUE(budget.grow(share, 50, 1));
    EXPECT_FALSE(budget.grow(share, 51, 1)) << "the key's half";
    EXPECT_EQ(budget.used(), 60U);
    share = KeyBudget::Share();
    other.release();
    EXPECT_EQ(budget.used(), 0U);
}

TEST(KeyBudgetTest, GivesSharesUntilItIsFullAndTakesThemBack) {
    KeyBudget budget(100);
    auto first = budget.take(60);
    ASSERT_TRUE(first);
    EXPECT_FALSE(budget.take(41));
    auto second = budget.take(40);
    ASSERT_TRUE(second);
    EXPECT_EQ(budget.used(), 100U);
    KeyBudget::Share moved = std::move(*first);
    moved.release();
    moved.release();
    second.reset();
    EXPECT_EQ(budget.used(), 0U);
}

TEST(KeyBudgetTest, ASmallerBoundTakesNothingAwayAndGivesNothingOut) {
    KeyBudget budget(4);
    auto three = budget.take(3);
    ASSERT_TRUE(three);
    budget.set_most(2);
    EXPECT_FALSE(budget.take(1));
    three->release();
    EXPECT_TRUE(budget.take(2));
}

TEST(KeyBudgetTest, HalfOfOneIsOne) {
    KeyBudget budget(2);
    auto other = budget.take(1, 2);
    EXPECT_TRUE(budget.take(1, 1));
    budget.set_most(1);
    EXPECT_FALSE(budget.take(1, 1));
    EXPECT_FALSE(budget.is_half_full(1, 1)) << "it is the whole that is full";
}

}  // namespace
}  // namespace router

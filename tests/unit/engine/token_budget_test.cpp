// The rows of a step while others wait for their next token.
#include "replica/engine/token_budget.h"

#include <gtest/gtest.h>

namespace replica {
namespace {

using std::chrono_literals::operator""ms;
using Seconds = TokenBudget::Seconds;

TokenBudget measured(Seconds target) {
    TokenBudget budget({.rows_min = 8, .rows_max = 512, .step_time_target = target});
    for (int i = 0; i < 5; ++i)
        budget.record(100, 110ms, 10ms);  // 1 ms a prompt row
    return budget;
}

TEST(TokenBudgetTest, FitsPromptRowsIntoTheTimeThatIsLeft) {
    EXPECT_NEAR(measured(100ms).rows(4, 20ms), 84, 1);
    EXPECT_NEAR(measured(200ms).rows(4, 20ms), 184, 1);
}

TEST(TokenBudgetTest, IsWholeWhenNobodyDecodes) {
    EXPECT_EQ(measured(100ms).rows(0, 0ms), 512);
}

TEST(TokenBudgetTest, IsWholeWithoutATargetOrAMeasurement) {
    EXPECT_EQ(measured(0ms).rows(4, 20ms), 512);
    const TokenBudget fresh({.rows_min = 8, .rows_max = 512, .step_time_target = 100ms});
    EXPECT_EQ(fresh.rows(4, 20ms), 512);
}

TEST(TokenBudgetTest, APromptAlwaysMovesAndTheBoundsHold) {
    EXPECT_EQ(measured(100ms).rows(4, 300ms), 4 + kChunkRowsMin);
    EXPECT_EQ(measured(10000ms).rows(4, 20ms), 512);
    TokenBudget tight({.rows_min = 40, .rows_max = 64, .step_time_target = 1ms});
    tight.record(100, 110ms, 10ms);
    EXPECT_EQ(tight.rows(4, 20ms), 40);
}

TEST(TokenBudgetTest, AFewRowsTellNothing) {
    TokenBudget budget({.rows_min = 8, .rows_max = 512, .step_time_target = 100ms});
    budget.record(3, 100ms, 10ms);
    EXPECT_EQ(budget.rows(4, 20ms), 512);
}

}  // namespace
}  // namespace replica

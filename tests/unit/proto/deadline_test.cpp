// Deadlines of peers, and what a stop of this process does to them.
#include "proto/deadline.h"

#include <gtest/gtest.h>

namespace proto {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Deadline::Clock::time_point kStart{seconds(1000)};

TEST(DeadlineTest, PassesAtItsTime) {
    Deadline deadline(seconds(10), kStart);
    EXPECT_EQ(deadline.at(), kStart + seconds(10));
    EXPECT_FALSE(deadline.has_passed(kStart + milliseconds(9999)));
    EXPECT_TRUE(deadline.has_passed(kStart + seconds(10)));
    EXPECT_TRUE(deadline.has_passed(kStart + seconds(11))) << "a loaded machine";
}

TEST(DeadlineTest, BeginsAnewOnceWhenItIsLookedAtTooLate) {
    Deadline deadline(seconds(10), kStart);
    EXPECT_FALSE(deadline.has_passed(kStart + milliseconds(11'001)));
    EXPECT_EQ(deadline.at(), kStart + milliseconds(21'001));
    EXPECT_TRUE(deadline.has_passed(kStart + seconds(600))) << "only once";
}

TEST(DeadlineTest, NeverIsNever) {
    Deadline deadline = Deadline::never();
    EXPECT_FALSE(deadline.has_passed(kStart + seconds(1'000'000)));
}

}  // namespace
}  // namespace proto

// Stops of the process, as a tick and the timers beside it see them.
#include "router/pause_watch.h"

#include <gtest/gtest.h>

namespace router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr PauseWatch::Clock::time_point kStart{seconds(1000)};

TEST(PauseWatchTest, ATickThatIsALittleLateIsNoStop) {
    PauseWatch pauses;
    EXPECT_EQ(pauses.stopped(kStart), seconds(0)) << "nothing is due yet";
    pauses.expect(kStart);
    EXPECT_EQ(pauses.on_tick(kStart + seconds(1)), std::nullopt);
    EXPECT_EQ(pauses.stopped(kStart + seconds(9)), seconds(0)) << "the next is not due yet";
}

TEST(PauseWatchTest, ATimerBeforeTheLateTickSeesTheStopAndTheTickCountsItOnce) {
    PauseWatch pauses;
    pauses.expect(kStart);
    EXPECT_EQ(pauses.stopped(kStart + seconds(4)), seconds(4));
    EXPECT_EQ(pauses.awake(kStart + seconds(4)), kStart);
    EXPECT_EQ(pauses.on_tick(kStart + milliseconds(4001)), milliseconds(4001));
    EXPECT_EQ(pauses.stopped(kStart + seconds(5)), milliseconds(4001));
    pauses.expect(kStart + seconds(6));
    EXPECT_EQ(pauses.on_tick(kStart + seconds(6)), std::nullopt);
    pauses.expect(kStart + seconds(7));
    EXPECT_EQ(pauses.on_tick(kStart + seconds(10)), seconds(3));
    EXPECT_EQ(pauses.stopped(kStart + seconds(10)), milliseconds(7001));
}

}  // namespace
}  // namespace router

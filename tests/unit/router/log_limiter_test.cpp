// Warnings that repeat: which are written, and what is said of the others.
#include "router/log_limiter.h"

#include <gmock/gmock.h>

namespace router {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr LogLimiter::Clock::time_point kStart{seconds(1000)};

int admitted(LogLimiter& limiter, const std::string& text, int count,
             LogLimiter::Clock::time_point now = kStart) {
    int written = 0;
    for (int i = 0; i < count; ++i)
        written += limiter.admit(text, now) ? 1 : 0;
    return written;
}

TEST(LogLimiterTest, TenOfAMinuteAreWrittenAndTheOthersCounted) {
    LogLimiter limiter;
    EXPECT_EQ(admitted(limiter, "event=broken replica=2 code=7", 500), 10);
    EXPECT_THAT(limiter.take_counts(kStart + seconds(59)), IsEmpty());
    EXPECT_THAT(limiter.take_counts(kStart + seconds(60)),
                ElementsAre("event=log_repeated of=broken replica=2 lines=490 within_s=60"));
    EXPECT_THAT(limiter.take_counts(kStart + seconds(600)), IsEmpty());
    EXPECT_EQ(admitted(limiter, "event=broken replica=2", 11, kStart + seconds(61)), 10)
        << "a new minute";
}

TEST(LogLimiterTest, EventsAndReplicasAreToldApartAndOtherFieldsAreNot) {
    LogLimiter limiter;
    EXPECT_EQ(admitted(limiter, "event=broken replica=2", 20), 10);
    EXPECT_EQ(admitted(limiter, "event=broken replica=3", 20), 10);
    EXPECT_EQ(admitted(limiter, "event=other request_id=a replica=2", 10), 10);
    EXPECT_EQ(admitted(limiter, "event=other request_id=b replica=2", 10), 0);
    EXPECT_EQ(admitted(limiter, "event=plain", 20), 10);
    EXPECT_EQ(admitted(limiter, "no event at all", 20), 20);
    EXPECT_THAT(limiter.take_all_counts(),
                ElementsAre("event=log_repeated of=broken replica=2 lines=10 within_s=60",
                            "event=log_repeated of=broken replica=3 lines=10 within_s=60",
                            "event=log_repeated of=other replica=2 lines=10 within_s=60",
                            "event=log_repeated of=plain lines=10 within_s=60"));
}

TEST(LogLimiterTest, BeyondTheKindsItTellsApartReplicasCountTogether) {
    LogLimiter limiter;
    const auto line = [](std::size_t replica) {
        return "event=broken replica=" + std::to_string(replica);
    };
    for (std::size_t i = 0; i < LogLimiter::kKindsMax; ++i)
        EXPECT_TRUE(limiter.admit(line(i), kStart));
    int written = 0;
    for (std::size_t i = 0; i < 100; ++i)
        written += limiter.admit(line(LogLimiter::kKindsMax + i), kStart) ? 1 : 0;
    EXPECT_EQ(written, 10);
    EXPECT_TRUE(limiter.admit(line(0), kStart)) << "known ones keep their own count";
}

}  // namespace
}  // namespace router

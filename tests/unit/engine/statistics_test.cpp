// Rates over busy time and the longest step, with made-up times.
#include "replica/engine/statistics.h"

#include <gtest/gtest.h>

namespace replica {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

const Statistics::Clock::time_point kStart = Statistics::Clock::time_point{} + 1000s;

EngineStatus status_of(const Statistics& statistics, Statistics::Clock::time_point now) {
    EngineStatus status;
    statistics.fill(status, now);
    return status;
}

TEST(StatisticsTest, NothingHappenedYet) {
    const EngineStatus status = status_of(Statistics(), kStart);
    EXPECT_EQ(status.steps, 0U);
    EXPECT_EQ(status.decode_tokens_per_s, 0.0);
    EXPECT_EQ(status.longest_step, 0s);
}

TEST(StatisticsTest, RatesCountTheTimeOfTheirOwnKindOfStep) {
    Statistics statistics;
    statistics.record_step({.decode_rows = 4, .generated_tokens = 4, .duration = 100ms}, kStart);
    statistics.record_step({.prefill_rows = 50, .duration = 500ms}, kStart + 1s);
    const EngineStatus status = status_of(statistics, kStart + 2s);
    EXPECT_NEAR(status.decode_tokens_per_s, 40, 1e-6);
    EXPECT_NEAR(status.prefill_tokens_per_s, 100, 1e-6);
    EXPECT_EQ(status.steps, 2U);
    EXPECT_EQ(status.last_step_end, kStart + 1s);
}

TEST(StatisticsTest, RatesForgetBusyTimeAndKeepThroughIdleTime) {
    Statistics statistics;
    auto now = kStart;
    for (int i = 0; i < 100; ++i)
        statistics.record_step({.decode_rows = 1, .generated_tokens = 1, .duration = 100ms},
                               now += 100ms);
    now += 3600s;
    EXPECT_NEAR(status_of(statistics, now).decode_tokens_per_s, 10, 0.1);
    for (int i = 0; i < 500; ++i)  // 50 busy seconds at another speed
        statistics.record_step({.decode_rows = 2, .generated_tokens = 2, .duration = 100ms},
                               now += 100ms);
    EXPECT_NEAR(status_of(statistics, now).decode_tokens_per_s, 20, 0.2);
}

TEST(StatisticsTest, TheLongestStepIsThatOfTheLastMinute) {
    Statistics statistics;
    statistics.record_step({.decode_rows = 1, .generated_tokens = 1, .duration = 900ms}, kStart);
    statistics.record_step({.decode_rows = 1, .generated_tokens = 1, .duration = 300ms},
                           kStart + 30s);
    EXPECT_EQ(status_of(statistics, kStart + 59s).longest_step, 900ms);
    EXPECT_EQ(status_of(statistics, kStart + 61s).longest_step, 300ms);
    EXPECT_EQ(status_of(statistics, kStart + 200s).longest_step, 0s);
    statistics.record_step({.decode_rows = 1, .generated_tokens = 1, .duration = 50ms},
                           kStart + 60s);  // same ring entry
    EXPECT_EQ(status_of(statistics, kStart + 60s).longest_step, 300ms);
}

TEST(StatisticsTest, WorkAfterIdlenessStartsTheClockAnew) {
    Statistics statistics;
    statistics.record_step({.decode_rows = 1, .generated_tokens = 1, .duration = 50ms}, kStart);
    statistics.work_begins(kStart + 500s);
    EXPECT_EQ(status_of(statistics, kStart + 501s).last_step_end, kStart + 500s);
}

}  // namespace
}  // namespace replica

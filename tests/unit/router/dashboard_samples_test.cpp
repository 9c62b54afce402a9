// The dashboard's history: rates are differences over the time that passed, quantiles cover ten
// seconds and are fine, the ring keeps the last ten minutes.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/dashboard/sample_ring.h"

namespace router {
namespace {

using std::chrono::milliseconds;

const Clock::time_point kStart{std::chrono::hours(1)};

Reading reading_at(milliseconds age) {
    return {.at = kStart + age};
}

Sample sample_of(std::uint64_t number) {
    return {.number = number};
}

TEST(FineHistogramTest, QuantilesAreRightWithinAThirtySecondOfTheirValue) {
    for (const double value : {0.000'003, 0.000'45, 0.0123, 0.117, 0.199, 1.9, 47.0, 3000.0}) {
        FineHistogram histogram;
        histogram.add(value);
        EXPECT_NEAR(*histogram.quantile(0.5), value, value / 32) << value;
    }
}

TEST(FineHistogramTest, AQuantileIsTheObservationOfItsRank) {
    FineHistogram histogram;
    for (int i = 1; i <= 100; ++i)
        histogram.add(0.01 * i);
    EXPECT_NEAR(*histogram.quantile(0.5), 0.50, 0.50 / 32);
    EXPECT_NEAR(*histogram.quantile(0.95), 0.95, 0.95 / 32);
    EXPECT_NEAR(*histogram.quantile(0.001), 0.01, 0.01 / 32);
    EXPECT_EQ(FineHistogram().quantile(0.5), std::nullopt);
}

TEST(FineHistogramTest, WhatIsNoDurationCountsAsTheShortestOrTheLongest) {
    FineHistogram histogram;
    for (const double odd : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
        histogram.add(odd);
    EXPECT_LT(*histogram.quantile(1.0), 2e-6);
    histogram.add(std::numeric_limits<double>::infinity());
    EXPECT_GT(*histogram.quantile(1.0), 4000);
    EXPECT_EQ(histogram.count(), 4U);
}

TEST(SamplerTest, RatesAreOverTheTimeThatReallyPassed) {
    Sampler sampler;
    Reading first = reading_at(milliseconds(0));
    first.requests[static_cast<std::size_t>(Outcome::kOk)] = 10;
    first.aborts = 3;
    EXPECT_EQ(sampler.take(first), std::nullopt) << "there is nothing to compare it with";

    Reading second = reading_at(milliseconds(2000));
    second.requests[static_cast<std::size_t>(Outcome::kOk)] = 16;
    second.aborts = 4;
    second.prefix_predicted_tokens = 1000;
    second.inflight[static_cast<std::size_t>(Phase::kDecode)] = 7;
    const std::optional<Sample> sample = sampler.take(second);
    ASSERT_TRUE(sample);
    EXPECT_EQ(sample->number, 1U);
    EXPECT_DOUBLE_EQ(sample->requests[static_cast<std::size_t>(Outcome::kOk)], 3);
    EXPECT_DOUBLE_EQ(sample->aborts, 0.5);
    EXPECT_DOUBLE_EQ(sample->prefix_predicted_tokens, 500);
    EXPECT_DOUBLE_EQ(sample->inflight[static_cast<std::size_t>(Phase::kDecode)], 7);
    EXPECT_EQ(sample->ttft_p50_s, std::nullopt) << "nothing was observed";
}

TEST(SamplerTest, TokensOfAProcessThatIsNewCountFromItsSecondReport) {
    Sampler sampler;
    Reading reading = reading_at(milliseconds(0));
    reading.tokens[0] = {.instance = "a", .prompt_tokens = 5000, .generated_tokens = 900};
    (void)sampler.take(reading);
    reading.at += milliseconds(1000);
    reading.tokens[0].generated_tokens = 950;
    reading.tokens[0].prompt_tokens = 5100;
    reading.tokens[1] = {.instance = "b", .prompt_tokens = 70000, .generated_tokens = 8000};
    const auto steady = sampler.take(reading);
    EXPECT_DOUBLE_EQ(steady->generated_tokens, 50);
    EXPECT_DOUBLE_EQ(steady->prompt_tokens, 100);

    reading.at += milliseconds(1000);
    reading.tokens[0] = {.instance = "c", .prompt_tokens = 10, .generated_tokens = 4};
    reading.tokens[1].generated_tokens = 8020;
    const auto restarted = sampler.take(reading);
    EXPECT_DOUBLE_EQ(restarted->generated_tokens, 20);
    EXPECT_DOUBLE_EQ(restarted->prompt_tokens, 0);
}

TEST(SamplerTest, QuantilesForgetWhatIsOlderThanTenSeconds) {
    Sampler sampler;
    Reading slow = reading_at(milliseconds(0));
    slow.ttft.add(8.0);
    (void)sampler.take(slow);
    for (int second = 1; second <= 10; ++second) {
        Reading quick = reading_at(milliseconds(1000 * second));
        quick.ttft.add(0.1);
        const auto sample = sampler.take(quick);
        ASSERT_TRUE(sample && sample->ttft_p95_s);
        if (second < 10) {
            EXPECT_GT(*sample->ttft_p95_s, 7) << second;
        } else {
            EXPECT_LT(*sample->ttft_p95_s, 0.2);
        }
    }
}

TEST(SampleRingTest, KeepsTheLastTenMinutesAndGivesWhatIsNew) {
    SampleRing ring;
    EXPECT_TRUE(ring.after(0).empty());
    for (std::uint64_t n = 1; n <= kSamplesMax + 5; ++n)
        ring.push(sample_of(n));
    EXPECT_EQ(ring.size(), kSamplesMax);
    const auto all = ring.after(0);
    ASSERT_EQ(all.size(), kSamplesMax);
    EXPECT_EQ(all.front()->number, 6U);
    EXPECT_EQ(all.back()->number, kSamplesMax + 5);
    ASSERT_EQ(ring.after(kSamplesMax + 3).size(), 2U);
    EXPECT_EQ(ring.after(kSamplesMax + 3).front()->number, kSamplesMax + 4);
}

TEST(SampleRingTest, ANumberFromElsewhereGivesNothing) {
    SampleRing ring;
    ring.push(sample_of(1));
    EXPECT_TRUE(ring.after(1).empty());
    EXPECT_TRUE(ring.after(99).empty());
    EXPECT_TRUE(ring.after(std::numeric_limits<std::uint64_t>::max()).empty());
}

}  // namespace
}  // namespace router

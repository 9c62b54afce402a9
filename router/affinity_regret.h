// Whether affinity pays, measured: the last word against a cost function that is wrong.
//
// For each request that went to a replica because of its cache, the time to its first token is
// compared with what the pick without caches was predicted to take. Predictions are off by a factor
// that has nothing to do with caches (rates, decode load), so they are scaled by how the
// predictions of ordinary picks came out lately. When the last 64 prefix picks were on average
// worse by more than 5 % and 10 ms, affinity is off for a minute. No clock. Decision thread only.
// Source: spec of the router, section 4 (d).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "router/charge.h"

namespace router {

class RegretMeter {
public:
    static constexpr std::size_t kPicks = 64;
    static constexpr std::chrono::seconds kSuspension{60};

    /// A pick that no cache decided.
    void on_plain_pick(double actual_s, double expected_s) {
        if (expected_s < kExpectedMin) return;
        const double ratio = std::clamp(actual_s / expected_s, 1 / kRatioMax, kRatioMax);
        ratio_ += kWeight * (ratio - ratio_);
    }

    /// A pick that a cache decided. `least_load_s`: predicted for the pick without caches.
    void on_prefix_pick(double actual_s, double least_load_s, Clock::time_point now) {
        if (is_suspended(now)) return;  // sent before it was
        Pick& place = picks_.at(count_++ % kPicks);
        place = {actual_s, least_load_s * ratio_};
        if (count_ < kPicks) return;
        Pick sum;
        for (const Pick& pick : picks_) {
            sum.actual_s += pick.actual_s;
            sum.other_s += pick.other_s;
        }
        const double worse_s = (sum.actual_s - sum.other_s) / kPicks;
        const bool is_regretted =
            worse_s > kWorseMin && sum.actual_s > sum.other_s * (1 + kWorseShare);
        if (!is_regretted) return;
        suspended_until_ = now + kSuspension;
        count_ = 0;
    }

    [[nodiscard]] bool is_suspended(Clock::time_point now) const { return now < suspended_until_; }

private:
    static constexpr double kWeight = 0.1;
    static constexpr double kRatioMax = 5;  // beyond it a prediction was about something else
    static constexpr double kExpectedMin = 0.001;  // quotients of nearly nothing say nothing
    static constexpr double kWorseShare = 0.05;
    static constexpr double kWorseMin = 0.010;

    struct Pick {
        double actual_s = 0;
        double other_s = 0;
    };
    std::array<Pick, kPicks> picks_{};
    std::size_t count_ = 0;
    double ratio_ = 1;
    Clock::time_point suspended_until_;
};

}  // namespace router

// The last ten minutes of the router, one sample per second, for the plots of the dashboard.
//
//   Metrics, ReplicaSet ──▶ Reading (totals now) ──▶ Sampler (differences) ──▶ Sample ──▶
//   SampleRing
//
// Rates are per second of the time that really passed between two readings. Quantiles are over the
// last ten seconds, since the p95 of the three requests of one second says nothing. Pure: time
// comes in with the reading. Decision thread only; about 150 KiB in all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "router/charge.h"
#include "router/fine_histogram.h"
#include "router/metrics.h"

namespace router {

/// Ten minutes, one sample per second.
inline constexpr std::size_t kSamplesMax = 600;
inline constexpr std::chrono::milliseconds kSampleInterval{1'000};
/// Seconds of observations behind each quantile.
inline constexpr std::size_t kQuantileWindow = 10;

/// The counters of one replica's process.
struct TokenReading {
    std::string instance;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t generated_tokens = 0;
};

/// What counters and reports say at one moment; all numbers are totals unless said otherwise.
struct Reading {
    Clock::time_point at;
    std::array<double, kOutcomeCount> requests{};  // generations that ended
    double aborts = 0;                             // clients that left
    double retries = 0;
    double breaker_openings = 0;
    double prefix_predicted_tokens = 0;
    double prefix_confirmed_tokens = 0;
    std::array<double, kPhaseCount> inflight{};  // now
    std::map<int, TokenReading> tokens;          // by replica, those that have reported

    // Observations since the reading before.
    FineHistogram ttft;
    FineHistogram event_gap;
    std::array<FineHistogram, kStageCount> overhead;
};

/// One second; a rate is per second, a missing quantile had nothing to go by.
struct Sample {
    std::uint64_t number = 0;  // 1, 2, 3 … of this process
    Clock::time_point at;      // its end
    std::array<double, kOutcomeCount> requests{};
    double aborts = 0;
    double retries = 0;
    double breaker_openings = 0;
    double prefix_predicted_tokens = 0;
    double prefix_confirmed_tokens = 0;
    double prompt_tokens = 0;
    double generated_tokens = 0;
    std::array<double, kPhaseCount> inflight{};
    std::optional<double> ttft_p50_s, ttft_p95_s;
    std::optional<double> event_gap_p50_s, event_gap_p95_s;
    std::array<std::optional<double>, kStageCount> overhead_p99_s;
};

/// The observations of the last kQuantileWindow seconds.
class QuantileWindow {
public:
    void push(const FineHistogram& second);
    [[nodiscard]] std::optional<double> quantile(double q) const { return whole_.quantile(q); }

private:
    std::array<FineHistogram, kQuantileWindow> seconds_;
    std::size_t next_ = 0;
    FineHistogram whole_;  // their sum
};

class Sampler {
public:
    /// None for the first reading: there is nothing to compare it with.
    [[nodiscard]] std::optional<Sample> take(Reading reading);

private:
    std::optional<Reading> last_;
    std::uint64_t count_ = 0;
    QuantileWindow ttft_;
    QuantileWindow event_gap_;
    std::array<QuantileWindow, kStageCount> overhead_;
};

class SampleRing {
public:
    void push(Sample sample);
    [[nodiscard]] std::size_t size() const { return samples_.size(); }
    /// Samples with a number above `number`, oldest first. O(what it returns).
    [[nodiscard]] std::vector<const Sample*> after(std::uint64_t number) const;

private:
    std::vector<Sample>
        samples_;  // a ring once it is full: sample n stands at (n - 1) % kSamplesMax
    std::uint64_t count_ = 0;
};

}  // namespace router

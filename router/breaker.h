// One instance's breaker: keeps requests from a replica that answers with failures.
//
//             5 failures in a row, or half of at least 10 results in 10 s
//   CLOSED ──────────────────────────────────────────────────────────────▶ OPEN  1 s, doubling to
//   30 s
//      ▲                                                                  │  ▲
//      │ any complete answer that is no 5xx                     time over │  │ the trial failed
//      └──────────────────────────── HALF-OPEN ◀──────────────────────────┘  │
//                                     one request at a time ─────────────────┘
//
// What says nothing about the replica's health is neutral: answers 4xx, 429 and 503 of a busy one,
// clients that leave. A neutral end of a trial gives the trial back. Pure: time comes in as an
// argument. Decision thread only. Source: spec of the router, section 8.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "router/charge.h"

namespace router {

/// In the order of the metric's values.
enum class BreakerState : std::uint8_t { kClosed, kHalfOpen, kOpen };
inline constexpr int kBreakerStateCount = 3;
/// `closed`, `half_open`, `open`.
[[nodiscard]] std::string_view name_of(BreakerState state);

/// What an attempt says about its replica.
enum class AttemptVerdict : std::uint8_t {
    kGood,     // a complete answer below 400
    kNoFault,  // a complete answer 4xx: neutral, but the replica works
    kNeutral,  // 503 of a busy one, the client left, not sent
    kFault,    // refused, reset, malformed, truncated, 500, 502, 504, stalled
};

class Breaker {
public:
    static constexpr int kFaultsInRow = 5;
    static constexpr int kResultsMin = 10;  // before the share of failures counts
    static constexpr std::int64_t kWindowSeconds = 10;
    static constexpr std::chrono::milliseconds kOpenFirst{1'000};
    static constexpr std::chrono::milliseconds kOpenMax{30'000};

    [[nodiscard]] BreakerState state() const { return state_; }
    /// No request may go there now: open, or half-open with its trial under way.
    [[nodiscard]] bool is_shut() const {
        return state_ == BreakerState::kOpen ||
               (state_ == BreakerState::kHalfOpen && is_trial_taken_);
    }
    /// The next request would be the trial.
    [[nodiscard]] bool is_on_trial() const { return state_ == BreakerState::kHalfOpen; }

    /// A request was selected for the replica; true when it is the trial.
    [[nodiscard]] bool on_select();
    void on_end(AttemptVerdict verdict, bool was_trial, Clock::time_point now);
    /// Opens a trial when the time of an open breaker is over. True when it changed.
    bool advance(Clock::time_point now);
    /// Half-open at once, whatever the time: no other replica is left.
    void open_trial();
    /// Another instance: all is forgotten but the counts of transitions.
    void reset();

    [[nodiscard]] std::uint64_t transitions(BreakerState to) const {
        return transitions_.at(static_cast<std::size_t>(to));
    }

private:
    struct Second {
        std::int64_t second = -kWindowSeconds;
        int good = 0;
        int faults = 0;
    };
    void enter(BreakerState state);
    void count(bool is_fault, Clock::time_point now);
    [[nodiscard]] bool is_share_too_high(Clock::time_point now) const;
    void open(Clock::time_point now);

    BreakerState state_ = BreakerState::kClosed;
    bool is_trial_taken_ = false;
    int faults_in_row_ = 0;
    std::chrono::milliseconds open_for_{kOpenFirst};
    Clock::time_point open_until_;
    std::array<Second, kWindowSeconds> window_{};
    std::array<std::uint64_t, kBreakerStateCount> transitions_{};
};

}  // namespace router

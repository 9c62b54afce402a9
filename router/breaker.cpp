#include "router/breaker.h"

#include <algorithm>
#include <utility>

namespace router {
namespace {

std::int64_t second_of(Clock::time_point now) {
    return std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
}

}  // namespace

std::string_view name_of(BreakerState state) {
    static constexpr std::array<std::string_view, kBreakerStateCount> kNames = {
        "closed", "half_open", "open"};
    return kNames.at(static_cast<std::size_t>(state));
}

bool Breaker::on_select() {
    if (state_ != BreakerState::kHalfOpen || is_trial_taken_) return false;
    is_trial_taken_ = true;
    return true;
}

void Breaker::on_end(AttemptVerdict verdict, bool was_trial, Clock::time_point now) {
    const bool is_half_open = state_ == BreakerState::kHalfOpen;
    switch (verdict) {
        case AttemptVerdict::kNeutral:
            if (was_trial && is_half_open) is_trial_taken_ = false;
            return;
        case AttemptVerdict::kNoFault:
            if (is_half_open) enter(BreakerState::kClosed);
            return;
        case AttemptVerdict::kGood:
            count(false, now);
            faults_in_row_ = 0;
            if (is_half_open) enter(BreakerState::kClosed);
            return;
        case AttemptVerdict::kFault:
            break;
    }
    count(true, now);
    ++faults_in_row_;
    if (is_half_open) {
        // Requests from before it opened may fail yet; only the trial's word counts.
        if (was_trial) open(now);
    } else if (state_ == BreakerState::kClosed &&
               (faults_in_row_ >= kFaultsInRow || is_share_too_high(now))) {
        open(now);
    }
}

bool Breaker::advance(Clock::time_point now) {
    if (state_ != BreakerState::kOpen || now < open_until_) return false;
    open_trial();
    return true;
}

void Breaker::open_trial() {
    if (state_ == BreakerState::kOpen) enter(BreakerState::kHalfOpen);
}

void Breaker::reset() {
    if (state_ != BreakerState::kClosed) enter(BreakerState::kClosed);
    const auto transitions = transitions_;
    *this = Breaker();
    transitions_ = transitions;
}

void Breaker::enter(BreakerState state) {
    state_ = state;
    is_trial_taken_ = false;
    ++transitions_.at(static_cast<std::size_t>(state));
    if (state != BreakerState::kClosed) return;
    open_for_ = kOpenFirst;
    faults_in_row_ = 0;
    window_ = {};  // what opened it is settled
}

void Breaker::open(Clock::time_point now) {
    open_until_ = now + open_for_;
    open_for_ = std::min(2 * open_for_, kOpenMax);
    enter(BreakerState::kOpen);
}

void Breaker::count(bool is_fault, Clock::time_point now) {
    const std::int64_t second = second_of(now);
    Second& one = window_.at(static_cast<std::size_t>(second % kWindowSeconds));
    if (one.second != second) one = {.second = second};
    ++(is_fault ? one.faults : one.good);
}

bool Breaker::is_share_too_high(Clock::time_point now) const {
    const std::int64_t second = second_of(now);
    int results = 0;
    int faults = 0;
    for (const Second& one : window_) {
        if (second - one.second >= kWindowSeconds) continue;
        results += one.good + one.faults;
        faults += one.faults;
    }
    return results >= kResultsMin && 2 * faults >= results;
}

}  // namespace router

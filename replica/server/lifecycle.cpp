#include "replica/server/lifecycle.h"

#include <algorithm>
#include <cmath>

namespace replica::server {

using proto::ReplicaState;

void Lifecycle::progress(ReplicaState state, std::uint64_t done, std::uint64_t total) {
    if (is_draining() || is_failed_) return;
    if (state != state_) phase_begin_ = Clock::now();
    state_ = state;
    done_ = done;
    total_ = total;
}

void Lifecycle::ready() {
    if (is_draining() || is_failed_) return;
    state_ = ReplicaState::kReady;
}

void Lifecycle::drain() {
    state_ = ReplicaState::kDraining;
}

void Lifecycle::fail() {
    is_failed_ = true;
}

double Lifecycle::eta_s(Clock::time_point now) const {
    if (state_ != ReplicaState::kLoading || done_ == 0 || total_ <= done_) return 0;
    const double elapsed = std::chrono::duration<double>(now - phase_begin_).count();
    return elapsed * static_cast<double>(total_ - done_) / static_cast<double>(done_);
}

std::optional<std::string_view> Lifecycle::obstacle(bool is_wedged_now) const {
    if (is_draining()) return "draining";
    if (is_failed_ || is_wedged_now) return "wedged";
    if (state_ == ReplicaState::kLoading) return "loading";
    if (state_ != ReplicaState::kReady) return "warming";
    return std::nullopt;
}

std::optional<proto::ApiError> Lifecycle::refusal(bool is_wedged_now) const {
    constexpr int kDrainRetryS = 5, kWedgedRetryS = 30;
    const auto why = obstacle(is_wedged_now);
    if (!why) return std::nullopt;
    proto::ApiError error;
    if (*why == "draining") {
        error.code = proto::ErrorCode::kDraining;
        error.message = "This server is stopping and takes no new requests.";
        error.retry_after_s = kDrainRetryS;
    } else if (*why == "wedged") {
        error.code = proto::ErrorCode::kWedged;
        error.message = "The device has stopped answering.";
        error.retry_after_s = kWedgedRetryS;
    } else {
        error.code = proto::ErrorCode::kLoading;
        error.message = "The model is still loading.";
        error.retry_after_s = proto::retry_after_seconds(std::max(1.0, eta_s(Clock::now())));
    }
    return error;
}

bool WedgeWatch::observe(const EngineStatus& status, Lifecycle::Clock::time_point now) {
    if (status.running == 0 || status.steps != steps_ || since_ == Lifecycle::Clock::time_point{}) {
        steps_ = status.steps;
        since_ = now;
    }
    return now - since_ > kWedgedAfter;
}

}  // namespace replica::server

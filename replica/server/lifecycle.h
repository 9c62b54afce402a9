// Where a replica is in its life, and what that means for a request that arrives.
//
//   LOADING ─▶ WARMING ─▶ SELFTEST ─▶ READY ─▶ DRAINING          (a lost device: READY ─▶ FAILED)
//
// A pure value; the I/O thread owns the one instance.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/error.h"
#include "proto/status.h"
#include "replica/engine/engine.h"

namespace replica::server {

/// Requests run and no step has ended for this long: the device hangs.
inline constexpr std::chrono::seconds kWedgedAfter{60};

class Lifecycle {
public:
    using Clock = std::chrono::steady_clock;

    /// Loading progress: bytes while LOADING, then layers or steps.
    void progress(proto::ReplicaState state, std::uint64_t done, std::uint64_t total);
    void ready();
    void drain();
    /// The device is lost; nothing is admitted any more.
    void fail();

    proto::ReplicaState state() const { return state_; }
    bool is_ready() const { return state_ == proto::ReplicaState::kReady && !is_failed_; }
    bool is_draining() const { return state_ == proto::ReplicaState::kDraining; }
    /// Expected seconds until READY; 0 = unknown or ready.
    double eta_s(Clock::time_point now) const;

    /// The body of /ready's 503: loading, warming, draining or wedged; none when admitting.
    std::optional<std::string_view> obstacle(bool is_wedged) const;
    /// The refusal of a request that arrives now; none when it may come in.
    std::optional<proto::ApiError> refusal(bool is_wedged) const;

private:
    proto::ReplicaState state_ = proto::ReplicaState::kLoading;
    bool is_failed_ = false;
    std::uint64_t done_ = 0, total_ = 0;
    Clock::time_point phase_begin_ = Clock::now();
};

/// Notices an engine that has requests and makes no step. Wants to be asked once a second; idle
/// time does not count, which is why a single status cannot tell.
class WedgeWatch {
public:
    /// True when requests have been running for kWedgedAfter without a step ending.
    bool observe(const EngineStatus& status, Lifecycle::Clock::time_point now);

private:
    std::uint64_t steps_ = 0;
    Lifecycle::Clock::time_point since_{};
};

}  // namespace replica::server

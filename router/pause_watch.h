// Notices that this process was stopped (SIGSTOP, a suspended machine), so that nobody is blamed
// for time in which nobody could be heard.
//
//   expect(due) ─▶ ... stop ... ─▶ stopped() by any timer that ran out meanwhile ─▶ on_tick()
//
// A tick that comes more than a second late means a stop. Timers that ran out during it may fire
// before the late tick, so stopped() looks at what is due and not only at what the tick has found.
// Pure: time comes in as an argument. Decision thread only. Source: spec of the router, section 8.
#pragma once

#include <chrono>
#include <optional>

#include "proto/deadline.h"

namespace router {

class PauseWatch {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr auto kLateMax = proto::Deadline::kLateMax;

    /// The next tick is to come then.
    void expect(Clock::time_point due) { due_ = due; }

    /// It is here. How long the stop was that it ends, where there was one.
    std::optional<Clock::duration> on_tick(Clock::time_point now) {
        const Clock::duration late = lateness(now);
        due_ = Clock::time_point::max();
        total_ += late;
        if (late == Clock::duration::zero()) return std::nullopt;
        return late;
    }

    /// For how long this process has been stopped since its start. Never falls.
    [[nodiscard]] Clock::duration stopped(Clock::time_point now) const {
        return total_ + lateness(now);
    }
    /// A clock that stands still meanwhile.
    [[nodiscard]] Clock::time_point awake(Clock::time_point now) const {
        return now - stopped(now);
    }

private:
    [[nodiscard]] Clock::duration lateness(Clock::time_point now) const {
        const bool is_late = now > due_ && now - due_ > kLateMax;
        return is_late ? now - due_ : Clock::duration::zero();
    }

    Clock::time_point due_ = Clock::time_point::max();
    Clock::duration total_{};
};

}  // namespace router

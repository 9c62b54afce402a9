// A time by which a peer must have done something, that is fair when this process itself was away.
//
// A timer that fires more than a second late means that the process was stopped (SIGSTOP, a
// suspended machine), and the peer's bytes may be about to be read: such a deadline begins anew,
// once. Steady clock only.
#pragma once

#include <chrono>

namespace proto {

class Deadline {
public:
    using Clock = std::chrono::steady_clock;
    /// A loaded machine is late too, but not by so much.
    static constexpr std::chrono::seconds kLateMax{1};

    /// `length` after `now`.
    explicit Deadline(Clock::duration length, Clock::time_point now = Clock::now())
        : length_(length), at_(now + length) {}
    /// One that never passes.
    [[nodiscard]] static Deadline never() {
        Deadline deadline{Clock::duration::zero()};
        deadline.at_ = Clock::time_point::max();
        return deadline;
    }

    /// When to look again.
    [[nodiscard]] Clock::time_point at() const { return at_; }
    /// Whether it is over at `now`; may move it once.
    [[nodiscard]] bool has_passed(Clock::time_point now) {
        if (now < at_) return false;
        if (was_moved_ || now - at_ <= kLateMax) return true;
        was_moved_ = true;
        at_ = now + length_;
        return false;
    }

private:
    Clock::duration length_;
    Clock::time_point at_;
    bool was_moved_ = false;
};

}  // namespace proto

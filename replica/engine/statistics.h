// What the engine tells about its speed. Time enters as an argument, so tests need no clock.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "replica/engine/engine.h"

namespace replica {

/// Not synchronised; the engine guards it with its status lock.
class Statistics {
public:
    using Clock = std::chrono::steady_clock;

    /// After idleness: from here on "no step has ended" means trouble.
    void work_begins(Clock::time_point now) { last_step_end_ = now; }
    void record_step(const StepStats& step, Clock::time_point end);
    /// Fills steps, last_step_end, the rates and the longest step.
    void fill(EngineStatus& status, Clock::time_point now) const;

private:
    /// Tokens per second while there was such work: both sums forget with kRateWindow of the time
    /// that counts, so an idle hour changes nothing and a burst does not look like a trend.
    class BusyRate {
    public:
        void record(std::int32_t tokens, std::chrono::duration<double> busy);
        double tokens_per_s() const { return seconds_ > 0 ? tokens_ / seconds_ : 0.0; }

    private:
        double tokens_ = 0;
        double seconds_ = 0;
    };

    /// The longest step that ended in one second; a ring over the last kLongestWindow.
    struct Second {
        std::int64_t second = -1;
        std::chrono::duration<double> longest{};
    };
    static constexpr std::int64_t kLongestWindow = 60;

    std::uint64_t steps_ = 0;
    Clock::time_point last_step_end_{};
    BusyRate prefill_;
    BusyRate decode_;
    std::array<Second, kLongestWindow> seconds_{};
};

}  // namespace replica

#include "replica/engine/statistics.h"

#include <algorithm>
#include <cmath>

namespace replica {
namespace {

constexpr std::chrono::duration<double> kRateWindow{10.0};

std::int64_t second_of(Statistics::Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace

void Statistics::BusyRate::record(std::int32_t tokens, std::chrono::duration<double> busy) {
    const double kept = std::exp(-(busy / kRateWindow));
    tokens_ = tokens_ * kept + tokens;
    seconds_ = seconds_ * kept + busy.count();
}

void Statistics::record_step(const StepStats& step, Clock::time_point end) {
    ++steps_;
    last_step_end_ = end;
    // A mixed step counts in full for both: a rate is what one kind of work gets, others included.
    if (step.decode_rows > 0) decode_.record(step.generated_tokens, step.duration);
    if (step.prefill_rows > 0) prefill_.record(step.prefill_rows, step.duration);
    const std::int64_t second = second_of(end);
    Second& entry = seconds_[static_cast<std::size_t>(second % kLongestWindow)];
    if (entry.second != second) entry = {.second = second, .longest = {}};
    entry.longest = std::max(entry.longest, step.duration);
}

void Statistics::fill(EngineStatus& status, Clock::time_point now) const {
    status.steps = steps_;
    status.last_step_end = last_step_end_;
    status.prefill_tokens_per_s = prefill_.tokens_per_s();
    status.decode_tokens_per_s = decode_.tokens_per_s();
    status.longest_step = {};
    for (const Second& entry : seconds_) {
        if (entry.second < 0 || second_of(now) - entry.second >= kLongestWindow) continue;
        status.longest_step = std::max(status.longest_step, entry.longest);
    }
}

}  // namespace replica

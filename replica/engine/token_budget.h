// How many rows the next step may have, so that those who decode hear a token in time.
//
//   step time = time of the decode rows alone + prompt rows x time of one
//
// Both are measured. Without a target, without decoding sequences or before the first measurement
// the budget is the largest there is.
#pragma once

#include <chrono>
#include <cstdint>

#include "replica/engine/row_times.h"

namespace replica {

/// A prompt moves at least so far in a step: below, the fixed cost of a step eats the gain.
inline constexpr std::int32_t kChunkRowsMin = 16;

/// Engine thread only.
class TokenBudget {
public:
    using Seconds = std::chrono::duration<double>;
    struct Bounds {
        std::int32_t rows_min = 0;  // what decoding may need
        std::int32_t rows_max = 0;
        Seconds step_time_target{};  // 0 = none
    };
    explicit TokenBudget(Bounds bounds) : bounds_(bounds), row_time_(1) {}

    /// A step with prompt rows; `decode_time` is what its decode rows alone would have taken.
    void record(std::int32_t prefill_rows, Seconds step_time, Seconds decode_time);
    /// For a step with decode rows that alone take `decode_time`.
    std::int32_t rows(std::int32_t decode_rows, Seconds decode_time) const;

private:
    Bounds bounds_;
    RowTimes row_time_;  // of one prompt row, at index 1
};

}  // namespace replica

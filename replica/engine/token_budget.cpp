#include "replica/engine/token_budget.h"

#include <algorithm>

namespace replica {

void TokenBudget::record(std::int32_t prefill_rows, Seconds step_time, Seconds decode_time) {
    // A handful of rows tells the fixed cost of a step, not that of a row.
    if (prefill_rows < kChunkRowsMin || step_time <= decode_time) return;
    row_time_.record(1, (step_time - decode_time) / prefill_rows);
}

std::int32_t TokenBudget::rows(std::int32_t decode_rows, Seconds decode_time) const {
    const auto row_time = row_time_.estimate(1);
    if (bounds_.step_time_target <= Seconds::zero() || decode_rows == 0 || !row_time) {
        return bounds_.rows_max;
    }
    const double prefill_rows = (bounds_.step_time_target - decode_time) / *row_time;
    const double most = bounds_.rows_max;
    const auto rows = decode_rows + static_cast<std::int32_t>(
                                        std::clamp<double>(prefill_rows, kChunkRowsMin, most));
    return std::clamp(rows, bounds_.rows_min, bounds_.rows_max);
}

}  // namespace replica

#include "replica/engine/row_times.h"

#include <algorithm>
#include <cassert>

namespace replica {

RowTimes::RowTimes(std::int32_t rows_max) : entries_(static_cast<std::size_t>(rows_max) + 1) {}

void RowTimes::record(std::int32_t rows, Seconds time) {
    assert(rows >= 0);
    if (static_cast<std::size_t>(rows) >= entries_.size()) return;
    Entry& entry = entries_[static_cast<std::size_t>(rows)];
    entry.latest[entry.count++ % kLatest] = static_cast<float>(time.count());
}

std::int32_t RowTimes::measured(std::int32_t rows) const {
    if (static_cast<std::size_t>(rows) >= entries_.size()) return 0;
    return static_cast<std::int32_t>(
        std::min<std::size_t>(entries_[static_cast<std::size_t>(rows)].count, kLatest));
}

std::optional<RowTimes::Seconds> RowTimes::estimate(std::int32_t rows) const {
    const auto last = static_cast<std::int32_t>(entries_.size()) - 1;
    std::int32_t below = std::min(rows, last);
    while (below >= 0 && entries_[static_cast<std::size_t>(below)].count == 0)
        --below;
    std::int32_t above = std::max(rows, 0);
    while (above <= last && entries_[static_cast<std::size_t>(above)].count == 0)
        ++above;
    const auto median = [this](std::int32_t at) {
        return entries_[static_cast<std::size_t>(at)].median();
    };
    if (below < 0 && above > last) return std::nullopt;
    if (below < 0) return median(above);
    if (above > last || above == below) return median(below);
    const double share = static_cast<double>(rows - below) / static_cast<double>(above - below);
    return median(below) + (median(above) - median(below)) * share;
}

RowTimes::Seconds RowTimes::Entry::median() const {
    auto sorted = latest;
    const auto known = static_cast<std::ptrdiff_t>(std::min<std::size_t>(count, kLatest));
    std::sort(sorted.begin(), sorted.begin() + known);
    return Seconds(sorted[static_cast<std::size_t>(known / 2)]);
}

}  // namespace replica

// How long a step of so many rows takes: the median of the latest measurements for each row count.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace replica {

/// Engine thread only. Time enters as an argument.
class RowTimes {
public:
    using Seconds = std::chrono::duration<double>;
    /// Rows beyond `rows_max` are not kept.
    explicit RowTimes(std::int32_t rows_max);

    void record(std::int32_t rows, Seconds time);
    /// Measurements of exactly this row count, at most kLatest.
    std::int32_t measured(std::int32_t rows) const;
    /// Between measured row counts a straight line, beyond them the nearest. Nothing when nothing
    /// was measured.
    std::optional<Seconds> estimate(std::int32_t rows) const;

    /// One slow step out of so many is an accident, three a change.
    static constexpr std::size_t kLatest = 5;

private:
    struct Entry {
        std::array<float, kLatest> latest{};
        std::uint32_t count = 0;  // all so far
        Seconds median() const;
    };
    std::vector<Entry> entries_;  // [rows_max + 1]
};

}  // namespace replica

// A duration that is measured once and read twice: as a series by scrapes, and in fine buckets by
// the dashboard, which takes what has come since its last look. Decision thread only.
#pragma once

#include <utility>

#include <prometheus/histogram.h>

#include "router/fine_histogram.h"

namespace router {

class Timing {
public:
    explicit Timing(prometheus::Histogram& series) : series_(&series) {}

    /// Named as in the series, so that either may stand where a duration is measured.
    void Observe(double seconds) {
        series_->Observe(seconds);
        recent_.add(seconds);
    }

    [[nodiscard]] FineHistogram take_recent() { return std::exchange(recent_, {}); }

private:
    prometheus::Histogram* series_;
    FineHistogram recent_;
};

}  // namespace router

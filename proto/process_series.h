// process_series: what every process says of itself beside its own series, under the names that
// Prometheus clients share (`process_resident_memory_bytes`, …), so that one alert about memory
// that grows sees launcher, router and replicas alike.
//
// Read anew at each call, from /proc/self; what the system does not say is absent. Any thread.
#pragma once

#include <string_view>
#include <vector>

namespace proto {

struct ProcessSeries {
    std::string_view name;  // lives for ever, as `help` does
    std::string_view help;
    bool is_counter = false;  // else a gauge
    double value = 0;
};
[[nodiscard]] std::vector<ProcessSeries> process_series();

}  // namespace proto

// The part of a scrape that is read, not counted: state, gauges of the engine, the process itself.
// For metrics.cpp only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "replica/server/metrics.h"

namespace replica::server {

void append_snapshot(const MetricsSnapshot& snapshot,
                     const std::map<std::string, std::string>& constant_labels,
                     std::vector<prometheus::MetricFamily>& families);

}  // namespace replica::server

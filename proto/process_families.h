// process_families: process_series for whoever keeps its metrics with prometheus-cpp, which its
// user links and this library does not.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>

#include "proto/process_series.h"

namespace proto {

/// Each gets `labels`.
inline void append_process_families(std::vector<prometheus::MetricFamily>& families,
                                    const std::map<std::string, std::string>& labels = {}) {
    for (const ProcessSeries& series : process_series()) {
        prometheus::MetricFamily& family = families.emplace_back();
        family.name = series.name;
        family.help = series.help;
        prometheus::ClientMetric& metric = family.metric.emplace_back();
        for (const auto& [name, content] : labels)
            metric.label.push_back({name, content});
        if (series.is_counter) {
            family.type = prometheus::MetricType::Counter;
            metric.counter.value = series.value;
        } else {
            family.type = prometheus::MetricType::Gauge;
            metric.gauge.value = series.value;
        }
    }
}

}  // namespace proto

// A decision as JSON, for the log and for whoever asks why: the choice, its expectation, and of
// every replica the cost terms in seconds or what excluded it. No prompt text, no key.
#pragma once

#include <string>

#include "router/json_line.h"
#include "router/policy.h"

namespace router {

/// One line, for example
/// {"replica":2,"reason":"prefix","matched":12032,"uncached":88,"expected_ttft_ms":430,
///  "candidates":[{"replica":0,"cost_s":1.2,"queue_s":…,"prefill_s":…,…},
///                {"replica":1,"obstacle":"not_ready"},…]}
[[nodiscard]] std::string decision_json(const Decision& decision);
/// The same as a value of `line`.
void write_decision(JsonLine& line, const Decision& decision);

}  // namespace router

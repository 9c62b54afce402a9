// From runs to numbers, and from numbers to a verdict.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tests/support/router_sim/simulation.h"

namespace sim {

/// One policy over one trace, all seeds together.
struct Numbers {
    double ttft_mean_s = 0;
    double ttft_p99_s = 0;
    double document_mean_s = 0;  // 0: there are none
    double document_p99_s = 0;
    double short_mean_s = 0;  // of the others, where there are documents
    double short_p99_s = 0;
    double worst_user_s = 0;  // largest mean over the sessions that have documents
    double tokens_per_s = 0;
    double hit_share = 0;  // cached / prompt tokens
    double busy_share = 0;
    int suspensions = 0;  // runs in which affinity was switched off
};

struct Row {
    std::string trace;
    bool has_room = false;
    std::array<Numbers, kPolicyCount> numbers;  // by Policy
};

[[nodiscard]] Numbers summarise(const std::vector<RunResult>& runs);

/// The table for people and the same for programs.
[[nodiscard]] std::string table(const std::vector<Row>& rows);
[[nodiscard]] std::string json(const std::vector<Row>& rows);

/// One line for each bound that does not hold.
[[nodiscard]] std::vector<std::string> broken_bounds(const std::vector<Row>& rows);

}  // namespace sim

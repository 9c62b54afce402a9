// Following a golden greedy text token by token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/support/golden/model_session.h"
#include "tests/support/golden/report.h"

namespace golden {

struct GreedyCounts {
    std::size_t tokens = 0, near_ties = 0;
};

/// From `logits` (those after the prompt in sequence 0) on: our best token must be the expected one
/// wherever its margin is no near tie. The expected token is fed in any case, so the text behind a
/// near tie is compared too. A miss goes into the report and ends the comparison.
void follow_greedy(ModelSession& session, std::span<const std::int32_t> expected,
                   std::vector<float> logits, const std::string& where, GreedyCounts& counts,
                   Report& report);

}  // namespace golden

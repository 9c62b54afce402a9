#include "tests/support/golden/greedy.h"

#include "tests/support/golden/logits.h"

namespace golden {

void follow_greedy(ModelSession& session, std::span<const std::int32_t> expected,
                   std::vector<float> logits, const std::string& where, GreedyCounts& counts,
                   Report& report) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const TopTwo top = top_two(logits);
        if (top.margin < kNearTie) {
            ++counts.near_ties;
        } else if (top.best != expected[i]) {
            report.miss(where + ", greedy token " + std::to_string(i) + ": " +
                        std::to_string(top.best) + ", expected " + std::to_string(expected[i]));
            return;
        }
        ++counts.tokens;
        const std::span<const float> next = session.step({.tokens = expected.subspan(i, 1)});
        logits.assign(next.begin(), next.end());
    }
}

}  // namespace golden

// What the pseudo-model answers to a request that runs alone: the yardstick for every batch,
// chunking and preemption.
#pragma once

#include <optional>
#include <vector>

#include "tests/unit/engine/fake_step_runner.h"

namespace replica {

/// All `max_tokens` tokens, as if nothing stopped the answer. Stops and bans are not applied.
inline std::vector<TokenId> expected_text(const EngineRequest& request) {
    std::vector<TokenId> tokens = request.prompt;
    for (std::int32_t i = 0; i < request.max_tokens.value_or(0); ++i) {
        kernels::SamplingRow sampling{.seed = request.sampling.seed};
        sampling.draw_index = (static_cast<std::uint64_t>(request.choice_index) << 32) |
                              static_cast<std::uint64_t>(tokens.size());
        tokens.push_back(pseudo_next(tokens, sampling, FakeModel{}.vocabulary));
    }
    return {tokens.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), tokens.end()};
}

}  // namespace replica

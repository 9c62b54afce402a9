// How often each token occurred in one sequence: what the penalties read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace replica {

/// Sorted by token; kept up to date token by token, and only for sequences with a penalty.
class TokenCounts {
public:
    /// Room for that many distinct tokens, so that counting them does not allocate.
    void reserve(std::size_t tokens) { counts_.reserve(tokens); }
    void add_prompt(std::span<const std::int32_t> prompt);
    /// O(distinct tokens) for a new token, O(log) for a known one.
    void add_generated(std::int32_t token);
    std::span<const kernels::TokenCount> view() const { return counts_; }

private:
    std::vector<kernels::TokenCount> counts_;
};

}  // namespace replica

#include "replica/engine/token_counts.h"

#include <algorithm>
#include <cassert>

namespace replica {

void TokenCounts::add_prompt(std::span<const std::int32_t> prompt) {
    assert(counts_.empty() && "the prompt comes first");
    std::vector<std::int32_t> sorted(prompt.begin(), prompt.end());
    std::sort(sorted.begin(), sorted.end());
    for (const std::int32_t token : sorted) {
        if (counts_.empty() || counts_.back().token != token) {
            counts_.push_back({.token = token, .generated = 0, .in_prompt = 0});
        }
        ++counts_.back().in_prompt;
    }
}

void TokenCounts::add_generated(std::int32_t token) {
    auto entry = std::lower_bound(
        counts_.begin(), counts_.end(), token,
        [](const kernels::TokenCount& count, std::int32_t value) { return count.token < value; });
    if (entry == counts_.end() || entry->token != token) {
        entry = counts_.insert(entry, {.token = token, .generated = 0, .in_prompt = 0});
    }
    ++entry->generated;
}

}  // namespace replica

// Small questions about a row of logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace golden {

/// Below this gap between our two best logits another right implementation may choose differently.
inline constexpr float kNearTie = 0.05F;

struct TopTwo {
    std::int32_t best = -1;
    float margin = 0.0F;  // best minus second
};

/// Lowest id wins ties; NaN never wins.
inline TopTwo top_two(std::span<const float> logits) {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    TopTwo result;
    float first = kLowest;
    float second = kLowest;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] > first) {
            second = first;
            first = logits[i];
            result.best = static_cast<std::int32_t>(i);
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    result.margin = first - second;
    return result;
}

inline double log_sum_exp(std::span<const float> logits) {
    const double top = static_cast<double>(*std::ranges::max_element(logits));
    double sum = 0.0;
    for (const float logit : logits)
        sum += std::exp(static_cast<double>(logit) - top);
    return top + std::log(sum);
}

inline std::span<const float> row_of(std::span<const float> logits, std::size_t row,
                                     std::int32_t vocabulary) {
    const auto width = static_cast<std::size_t>(vocabulary);
    return logits.subspan(row * width, width);
}

}  // namespace golden

// How two results of a kernel are compared. A result that is no number never passes for a good one.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace kernels::test {

/// norm(out - reference) / norm(reference); infinite when anything is not finite, the reference is
/// zero or the sizes differ, so that a comparison `error <= limit` can be trusted.
template <class Reference>
double relative_error(const std::vector<float>& out, const std::vector<Reference>& reference) {
    const double infinite = std::numeric_limits<double>::infinity();
    if (out.size() != reference.size()) return infinite;
    double error = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (!std::isfinite(out[i]) || !std::isfinite(reference[i])) return infinite;
        const double expected{reference[i]};
        const double difference = out[i] - expected;
        error += difference * difference;
        norm += expected * expected;
    }
    return norm > 0.0 ? std::sqrt(error / norm) : infinite;
}

/// The first place where two results differ in a bit, as text; empty when they are the same.
inline std::string first_difference(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return "sizes differ";
    for (std::size_t i = 0; i < a.size(); ++i)
        if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
            return "at " + std::to_string(i) + ": " + std::to_string(a[i]) + " and " +
                   std::to_string(b[i]);
    return {};
}

}  // namespace kernels::test

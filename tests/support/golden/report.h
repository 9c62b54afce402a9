// One line per golden file: what was compared, the largest error, and what missed.
#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace golden {

struct Report {
    std::string file;
    std::string summary;              // "8 prompts, 587 positions"
    double error_max = 0.0;           // of the quantity with a tolerance; 0 for exact comparisons
    double tolerance = 0.0;           // 0 = exact
    std::vector<std::string> misses;  // empty = passed
    bool passed() const { return misses.empty(); }

    void miss(std::string text) { misses.push_back(std::move(text)); }
    /// Counts an error against the tolerance. NaN is a miss.
    void compare(double ours, double expected, const std::string& where) {
        const double error = std::fabs(ours - expected);
        if (!(error <= error_max)) error_max = error;
        if (!(error <= tolerance)) {
            miss(where + ": " + std::to_string(ours) + ", expected " + std::to_string(expected));
        }
    }
};

}  // namespace golden

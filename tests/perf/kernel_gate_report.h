// What a case found, and the table and JSON of all of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tests/kernel/comparison.h"

namespace kernels::gate {

/// One row of the table: one operation on one shape, over several row counts or sequences.
struct CaseResult {
    std::string op;
    std::string shape;
    double error = 0.0;         // the worst norm(out - ref) / norm(ref)
    double limit = 0.0;         // derived where the case is made
    bool may_be_exact = false;  // equal arithmetic, or too few outputs to expect a difference
    std::vector<std::string> complaints;

    /// NaN counts as a miss.
    void see_error(double value) {
        if (!(value <= error)) error = value;
    }
    void complain(std::string what) { complaints.push_back(std::move(what)); }
    bool passed() const {
        return error <= limit && (error > 0.0 || may_be_exact) && complaints.empty();
    }
    /// Why it did not pass; empty when it did.
    std::string verdict() const;
};

using test::first_difference;
using test::relative_error;

void print_table(const std::vector<CaseResult>& results);
nlohmann::json to_json(const std::vector<CaseResult>& results);

}  // namespace kernels::gate

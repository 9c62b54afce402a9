#include "tests/perf/kernel_gate_report.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include <nlohmann/json.hpp>

namespace kernels::gate {

std::string CaseResult::verdict() const {
    std::string text;
    const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
    if (!(error <= limit)) add("error above its limit");
    if (error == 0.0 && !may_be_exact) add("error is zero: compared with itself?");
    for (const std::string& complaint : complaints)
        add(complaint);
    return text;
}

double relative_error(const std::vector<float>& out, const std::vector<float>& reference) {
    const double infinite = std::numeric_limits<double>::infinity();
    if (out.size() != reference.size()) return infinite;
    double error = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (!std::isfinite(out[i]) || !std::isfinite(reference[i])) return infinite;
        const double difference = double{out[i]} - double{reference[i]};
        error += difference * difference;
        norm += double{reference[i]} * double{reference[i]};
    }
    return norm > 0.0 ? std::sqrt(error / norm) : infinite;
}

std::string first_difference(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return "sizes differ";
    for (std::size_t i = 0; i < a.size(); ++i)
        if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
            return "at " + std::to_string(i) + ": " + std::to_string(a[i]) + " and " +
                   std::to_string(b[i]);
    return {};
}

void print_table(const std::vector<CaseResult>& results) {
    std::printf("%-10s %-44s %10s %10s  %s\n", "op", "case", "error", "limit", "verdict");
    for (const CaseResult& result : results)
        std::printf("%-10s %-44s %10.2e %10.1e  %s\n", result.op.c_str(), result.shape.c_str(),
                    result.error, result.limit,
                    result.passed() ? "ok" : ("MISS " + result.verdict()).c_str());
}

nlohmann::json to_json(const std::vector<CaseResult>& results) {
    nlohmann::json rows = nlohmann::json::array();
    for (const CaseResult& result : results) {
        // JSON has no infinity; a string says it.
        nlohmann::json error = result.error;
        if (!std::isfinite(result.error)) error = "not finite";
        rows.push_back({{"op", result.op},
                        {"case", result.shape},
                        {"error", error},
                        {"limit", result.limit},
                        {"passed", result.passed()},
                        {"verdict", result.verdict()}});
    }
    return rows;
}

}  // namespace kernels::gate

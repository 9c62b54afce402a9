#include "tests/perf/kernel_gate_report.h"

#include <cstdio>

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

// router-sim: the policy over recorded-shape traffic in virtual time, beside least-loaded and an
// oracle. Prints a table (or JSON) and fails when a bound of the specification does not hold.
//
//   router-sim [--seeds N] [--seed S] [--trace NAME] [--json FILE] [--no-check]
#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>
#include <spdlog/spdlog.h>

#include "tests/support/router_sim/sim_report.h"

int main(int argc, char** argv) {
    int seeds = 20;
    std::uint64_t first_seed = 1;
    std::string only;
    std::string json_file;
    bool has_no_check = false;
    CLI::App app("The router's policy in virtual time", "router-sim");
    app.add_option("--seeds", seeds, "Traces of each shape")->check(CLI::Range(1, 1000));
    app.add_option("--seed", first_seed, "The first seed");
    app.add_option("--trace", only, "Only traces whose name contains this");
    app.add_option("--json", json_file, "File for the numbers");
    app.add_flag("--no-check", has_no_check, "Only print");
    CLI11_PARSE(app, argc, argv);
    spdlog::set_level(spdlog::level::warn);

    std::vector<sim::Row> rows;
    std::vector<std::array<std::vector<sim::RunResult>, sim::kPolicyCount>> runs;
    for (int i = 0; i < seeds; ++i) {
        const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(i);
        const std::vector<sim::Trace> traces = sim::make_traces(seed);
        rows.resize(traces.size());
        runs.resize(traces.size());
        for (std::size_t at = 0; at < traces.size(); ++at) {
            const sim::Trace& trace = traces[at];
            rows[at].trace = trace.name;
            rows[at].has_room = trace.has_room;
            if (trace.name.find(only) == std::string::npos) continue;
            for (const sim::Policy policy : {sim::Policy::kOurs, sim::Policy::kLeastLoaded,
                                             sim::Policy::kOracle, sim::Policy::kPlain}) {
                runs[at]
                    .at(static_cast<std::size_t>(policy))
                    .push_back(sim::simulate(trace, policy, seed));
            }
        }
    }
    for (std::size_t at = 0; at < rows.size(); ++at) {
        for (std::size_t policy = 0; policy < sim::kPolicyCount; ++policy)
            rows[at].numbers.at(policy) = sim::summarise(runs[at].at(policy));
    }
    std::erase_if(rows,
                  [&](const sim::Row& row) { return row.trace.find(only) == std::string::npos; });
    std::cout << sim::table(rows);
    if (!json_file.empty()) std::ofstream(json_file) << sim::json(rows) << "\n";
    if (has_no_check) return 0;
    const std::vector<std::string> broken = sim::broken_bounds(rows);
    for (const std::string& line : broken)
        std::cout << "BROKEN  " << line << "\n";
    return broken.empty() ? 0 : 1;
}

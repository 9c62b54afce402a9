#include "tests/support/router_sim/sim_report.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <spdlog/fmt/fmt.h>

#include "proto/json.h"

namespace sim {
namespace {

// The bounds of the specification: never worse than least-loaded.
constexpr double kTtftRatioMax = 1.02;
constexpr double kTokensRatioMin = 0.98;
constexpr double kHitsOfOracleMin = 0.98;
/// Documents are not starved: what the rules for long prompts take from them, beside a router
/// without these rules, stays within this, on average over all and over the worst user's own.
constexpr double kDocumentsMax = 1.25;
constexpr double kDocumentUserMax = 2;

double mean(const std::vector<double>& values) {
    if (values.empty()) return 0;
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double p99(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto at = static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return values[static_cast<std::size_t>(at)];
}

const Numbers& of(const Row& row, Policy policy) {
    return row.numbers.at(static_cast<std::size_t>(policy));
}

}  // namespace

Numbers summarise(const std::vector<RunResult>& runs) {
    Numbers numbers;
    std::vector<double> all;
    std::vector<double> documents;
    std::vector<double> others;
    double length_s = 0;
    double tokens = 0;
    double prompt = 0;
    double cached = 0;
    for (const RunResult& run : runs) {
        std::map<std::size_t, std::vector<double>> users;
        for (const RequestOutcome& request : run.requests) {
            all.push_back(request.ttft_s);
            if (!request.is_document) {
                others.push_back(request.ttft_s);
                continue;
            }
            documents.push_back(request.ttft_s);
            users[request.session].push_back(request.ttft_s);
        }
        for (const auto& [session, times] : users)
            numbers.worst_user_s = std::max(numbers.worst_user_s, mean(times));
        length_s += run.length_s;
        tokens += static_cast<double>(run.output_tokens);
        prompt += static_cast<double>(run.prompt_tokens);
        cached += static_cast<double>(run.cached_tokens);
        numbers.busy_share += run.busy_share / static_cast<double>(runs.size());
        numbers.suspensions += run.was_suspended ? 1 : 0;
    }
    numbers.ttft_mean_s = mean(all);
    numbers.ttft_p99_s = p99(std::move(all));
    if (!documents.empty()) {
        numbers.short_mean_s = mean(others);
        numbers.short_p99_s = p99(std::move(others));
    }
    numbers.document_mean_s = mean(documents);
    numbers.document_p99_s = p99(std::move(documents));
    numbers.tokens_per_s = tokens / length_s;
    numbers.hit_share = cached / prompt;
    return numbers;
}

std::string table(const std::vector<Row>& rows) {
    std::string text = fmt::format(
        "{:<26}|{:^26}|{:^26}|{:^20}|{:^20}|{:>5}\n{:<26}|{:>8}{:>9}{:>9}|{:>8}{:>9}{:>9}|"
        "{:>6}{:>7}{:>7}|{:>6}{:>7}{:>7}|\n",
        "", "mean TTFT, ms", "p99 TTFT, ms", "tokens/s", "prefix hits, %", "busy", "trace", "ours",
        "least", "oracle", "ours", "least", "oracle", "ours", "least", "oracle", "ours", "least",
        "oracle");
    for (const Row& row : rows) {
        const Numbers& ours = of(row, Policy::kOurs);
        const Numbers& least = of(row, Policy::kLeastLoaded);
        const Numbers& oracle = of(row, Policy::kOracle);
        text += fmt::format(
            "{:<26}|{:>8.0f}{:>9.0f}{:>9.0f}|{:>8.0f}{:>9.0f}{:>9.0f}|{:>6.0f}{:>7.0f}{:>7.0f}|"
            "{:>6.1f}{:>7.1f}{:>7.1f}|{:>5.2f}\n",
            row.trace, 1e3 * ours.ttft_mean_s, 1e3 * least.ttft_mean_s, 1e3 * oracle.ttft_mean_s,
            1e3 * ours.ttft_p99_s, 1e3 * least.ttft_p99_s, 1e3 * oracle.ttft_p99_s,
            ours.tokens_per_s, least.tokens_per_s, oracle.tokens_per_s, 100 * ours.hit_share,
            100 * least.hit_share, 100 * oracle.hit_share, least.busy_share);
        if (ours.document_mean_s == 0) continue;
        const Numbers& plain = of(row, Policy::kPlain);
        const auto line = [&](const std::string& what, double own, double bare) {
            text += fmt::format("{:<26}  {:<38} ours {:>6.0f}  plain {:>6.0f}\n", "", what,
                                1e3 * own, 1e3 * bare);
        };
        line("documents, mean", ours.document_mean_s, plain.document_mean_s);
        line("documents, p99", ours.document_p99_s, plain.document_p99_s);
        line("documents, worst user's mean", ours.worst_user_s, plain.worst_user_s);
        line("others, mean", ours.short_mean_s, plain.short_mean_s);
        line("others, p99", ours.short_p99_s, plain.short_p99_s);
    }
    return text;
}

std::string json(const std::vector<Row>& rows) {
    proto::Json all = proto::Json::array();
    for (const Row& row : rows) {
        proto::Json one{{"trace", row.trace}, {"has_room", row.has_room}};
        for (const Policy policy :
             {Policy::kOurs, Policy::kLeastLoaded, Policy::kOracle, Policy::kPlain}) {
            const Numbers& numbers = of(row, policy);
            one[std::string(name_of(policy))] = {{"ttft_mean_s", numbers.ttft_mean_s},
                                                 {"ttft_p99_s", numbers.ttft_p99_s},
                                                 {"document_mean_s", numbers.document_mean_s},
                                                 {"document_p99_s", numbers.document_p99_s},
                                                 {"worst_document_user_s", numbers.worst_user_s},
                                                 {"short_mean_s", numbers.short_mean_s},
                                                 {"short_p99_s", numbers.short_p99_s},
                                                 {"tokens_per_s", numbers.tokens_per_s},
                                                 {"hit_share", numbers.hit_share},
                                                 {"busy_share", numbers.busy_share},
                                                 {"suspended_runs", numbers.suspensions}};
        }
        all.push_back(std::move(one));
    }
    return proto::json_text(all);
}

std::vector<std::string> broken_bounds(const std::vector<Row>& rows) {
    std::vector<std::string> broken;
    for (const Row& row : rows) {
        const Numbers& ours = of(row, Policy::kOurs);
        const Numbers& least = of(row, Policy::kLeastLoaded);
        const auto expect = [&](bool holds, const std::string& what, double is, double bound) {
            if (!holds) {
                broken.push_back(
                    fmt::format("{}: {} is {:.4f}, bound {:.4f}", row.trace, what, is, bound));
            }
        };
        const double mean_ratio = ours.ttft_mean_s / least.ttft_mean_s;
        expect(mean_ratio <= kTtftRatioMax, "mean TTFT / least-loaded", mean_ratio, kTtftRatioMax);
        const double p99_ratio = ours.ttft_p99_s / least.ttft_p99_s;
        expect(p99_ratio <= kTtftRatioMax, "p99 TTFT / least-loaded", p99_ratio, kTtftRatioMax);
        const double rate_ratio = ours.tokens_per_s / least.tokens_per_s;
        expect(rate_ratio >= kTokensRatioMin, "tokens/s / least-loaded", rate_ratio,
               kTokensRatioMin);
        if (row.has_room) {
            const double hits = ours.hit_share / of(row, Policy::kOracle).hit_share;
            expect(hits >= kHitsOfOracleMin, "prefix hits / oracle", hits, kHitsOfOracleMin);
        }
        if (ours.document_mean_s > 0) {
            const double bare = of(row, Policy::kPlain).document_mean_s;
            const double all = ours.document_mean_s / bare;
            expect(all <= kDocumentsMax, "documents / without the rules", all, kDocumentsMax);
            const double worst = ours.worst_user_s / bare;
            expect(worst <= kDocumentUserMax, "worst document user / without the rules", worst,
                   kDocumentUserMax);
        }
    }
    return broken;
}

}  // namespace sim

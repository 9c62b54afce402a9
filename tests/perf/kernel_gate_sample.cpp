// sample: drawn tokens against the rules written down once more, with a full sort and sums in
// double. Device and reference sum in different orders, so a draw may fall on the neighbour when it
// lies within kSlack of a border between ids.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>

#include "kernels/philox.h"
#include "kernels/sampling.h"
#include "tests/kernel/kernel_support.h"
#include "tests/perf/kernel_gate_cases.h"

namespace kernels::gate {
namespace {

using test::Random;
using test::Step;

constexpr double kSlack = 1e-6;
constexpr std::int32_t kPadding = 3;  // ids at the end that may not be drawn
constexpr int kRowsDrawn = 12;

struct Mode {
    const char* name;
    SamplingRow rules;
    bool edits = false;
    float spread = 3.0F;  // of the logits; 0 = all equal
};

std::vector<Mode> modes() {
    const auto rules = [](float temperature, std::int32_t top_k, float top_p, float min_p) {
        SamplingRow row;
        row.temperature = temperature;
        row.top_k = top_k;
        row.top_p = top_p;
        row.min_p = min_p;
        return row;
    };
    return {{"greedy", rules(0.0F, 0, 1.0F, 0.0F)},
            {"greedy, all equal", rules(0.0F, 0, 1.0F, 0.0F), false, 0.0F},
            {"temperature", rules(1.0F, 0, 1.0F, 0.0F)},
            {"temperature, all equal", rules(1.0F, 0, 1.0F, 0.0F), false, 0.0F},
            {"min_p", rules(1.3F, 0, 1.0F, 0.05F)},
            {"top_k 20", rules(0.8F, 20, 1.0F, 0.0F)},
            {"top_k 1", rules(0.8F, 1, 1.0F, 0.0F)},
            {"top_k 20, top_p, min_p", rules(0.6F, 20, 0.95F, 0.02F)},
            {"top_k 20, all equal", rules(0.8F, 20, 1.0F, 0.0F), false, 0.0F},
            {"top_k 6000", rules(1.0F, 6000, 1.0F, 0.0F)},
            {"top_k 6000, top_p", rules(1.0F, 6000, 0.6F, 0.0F)},
            {"top_p", rules(0.7F, 0, 0.9F, 0.0F)},
            {"top_p 0", rules(0.7F, 0, 0.0F, 0.0F)},
            {"top_p, flat", rules(1.5F, 0, 0.97F, 0.0F), false, 1.0F},
            {"edits", rules(0.9F, 40, 0.95F, 0.0F), true},
            {"edits, greedy", rules(0.0F, 0, 1.0F, 0.0F), true}};
}

/// The row's logits as the rules change them.
std::vector<double> edited(std::span<const float> logits, const SamplingRow& row) {
    std::vector<double> values(logits.begin(), logits.end());
    for (const LogitBias& bias : row.bias)
        values[static_cast<std::size_t>(bias.token)] += static_cast<double>(bias.bias);
    for (const TokenCount& count : row.counts) {
        double& value = values[static_cast<std::size_t>(count.token)];
        const auto penalty = static_cast<double>(row.repetition_penalty);
        value = value > 0 ? value / penalty : value * penalty;
        if (count.generated > 0)
            value -= static_cast<double>(row.frequency_penalty) * count.generated +
                     static_cast<double>(row.presence_penalty);
    }
    for (const std::int32_t token : row.banned)
        values[static_cast<std::size_t>(token)] = -std::numeric_limits<double>::infinity();
    return values;
}

/// Empty when `token` is what the rules draw from the row.
std::string fault(std::span<const float> logits, const SamplingRow& row, std::int32_t token) {
    const std::vector<double> values = edited(logits, row);
    std::vector<std::int32_t> ids;
    for (std::size_t id = 0; id < values.size(); ++id)
        if (std::isfinite(values[id])) ids.push_back(static_cast<std::int32_t>(id));
    const auto value = [&](std::int32_t id) { return values[static_cast<std::size_t>(id)]; };
    std::ranges::sort(ids, [&](std::int32_t a, std::int32_t b) {
        return value(a) != value(b) ? value(a) > value(b) : a < b;
    });
    if (row.temperature < kGreedyTemperature)
        return token == ids.front() ? "" : "is not the best, " + std::to_string(ids.front());
    const auto weight = [&](std::int32_t id) {
        return std::exp((value(id) - value(ids.front())) / static_cast<double>(row.temperature));
    };
    if (row.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(row.top_k)));
    double whole = 0;
    for (const std::int32_t id : ids)
        whole += weight(id);
    if (row.top_p < 1.0F) {
        double sum = 0;
        std::size_t kept = 0;
        while (kept < ids.size() && (kept == 0 || sum < static_cast<double>(row.top_p) * whole))
            sum += weight(ids[kept++]);
        ids.resize(kept);
    }
    std::erase_if(ids,
                  [&](std::int32_t id) { return weight(id) < static_cast<double>(row.min_p); });
    std::ranges::sort(ids);
    whole = 0;
    for (const std::int32_t id : ids)
        whole += weight(id);
    const double uniform = draw_uniform(row.seed, row.draw_index);
    double before = 0;
    for (const std::int32_t id : ids) {
        const double until = before + weight(id);
        if (id == token)
            return uniform >= before / whole - kSlack && uniform <= until / whole + kSlack
                       ? ""
                       : "lies beside the draw";
        before = until;
    }
    return "is not among the kept";
}

CaseResult run_mode(Pair& pair, const Mode& mode, std::int32_t vocabulary) {
    CaseResult result{.op = "sample",
                      .shape = std::to_string(vocabulary) + " " + mode.name,
                      .limit = 0.0,
                      .may_be_exact = true};
    Random random(static_cast<std::uint64_t>(vocabulary) + 7);
    Step step = Step::of_rows(kRowsDrawn);
    std::vector<float> logits = random.normals(std::int64_t{kRowsDrawn} * vocabulary);
    for (float& logit : logits)
        logit = mode.spread == 0.0F ? 1.5F : mode.spread * logit;
    const auto width = static_cast<std::size_t>(vocabulary);
    if (mode.spread != 0.0F) {
        logits[5] = std::numeric_limits<float>::infinity();
        logits[6] = std::numeric_limits<float>::quiet_NaN();
    }
    for (int m = 0; m < kPadding; ++m)  // the best ones must not be drawn
        logits[width - 1 - static_cast<std::size_t>(m)] = 1000.0F;
    const std::vector<LogitBias> bias = {{11, 40.0F}, {12, -100.0F}, {13, 2.0F}};
    const std::vector<TokenCount> counts = {{11, 3, 1}, {20, 1, 0}, {21, 0, 2}};
    const std::vector<std::int32_t> banned = {30, vocabulary - kPadding - 1};
    for (int m = 0; m < kRowsDrawn; ++m) {
        SamplingRow row = mode.rules;
        row.seed = 1234;
        row.draw_index = static_cast<std::uint64_t>(m) * 77 + 1;
        if (mode.edits) {
            row.bias = bias;
            row.counts = counts;
            row.banned = banned;
            row.repetition_penalty = 1.2F;
            row.presence_penalty = 0.4F;
            row.frequency_penalty = 0.3F;
        }
        step.logit_row.push_back(m);
        step.sampling.push_back(row);
    }
    step.link();
    pair.reset();
    const TensorView device =
        pair.place(host_view(DType::kF32, {kRowsDrawn, vocabulary}, logits.data()));
    std::vector<std::int32_t> first;
    for (int run = 0; run < 3; ++run) {  // launched, captured, replayed
        pair.cuda().begin_step(step.descriptor);
        pair.cuda().sample({.logits = device, .vocabulary_used = vocabulary - kPadding});
        const StepOutputs& outputs = pair.cuda().finish_step();
        if (run == 0) first.assign(outputs.sampled.begin(), outputs.sampled.end());
        if (!std::ranges::equal(first, outputs.sampled)) result.complain("drew others again");
        if (std::ranges::count(outputs.error, 0) != kRowsDrawn) result.complain("saw no logit");
    }
    for (std::size_t m = 0; m < first.size(); ++m) {
        const std::string text =
            fault({logits.data() + m * width, width - kPadding}, step.sampling[m], first[m]);
        if (!text.empty())
            result.complain("row " + std::to_string(m) + ": " + std::to_string(first[m]) + " " +
                            text);
    }
    return result;
}

CaseResult run_no_logit(Pair& pair, std::int32_t vocabulary) {
    CaseResult result{.op = "sample",
                      .shape = std::to_string(vocabulary) + " one row without a finite logit",
                      .limit = 0.0,
                      .may_be_exact = true};
    Random random(9);
    Step step = Step::of_rows(2);
    std::vector<float> logits = random.normals(2 * std::int64_t{vocabulary});
    std::fill_n(logits.begin(), vocabulary, std::numeric_limits<float>::quiet_NaN());
    for (int m = 0; m < 2; ++m) {
        step.logit_row.push_back(m);
        step.sampling.emplace_back();
    }
    step.link();
    pair.reset();
    const TensorView device = pair.place(host_view(DType::kF32, {2, vocabulary}, logits.data()));
    pair.cuda().begin_step(step.descriptor);
    pair.cuda().sample({.logits = device, .vocabulary_used = vocabulary});
    const StepOutputs& outputs = pair.cuda().finish_step();
    if (outputs.error[0] != 1 || outputs.error[1] != 0) result.complain("blamed another row");
    return result;
}

}  // namespace

std::vector<Case> sample_cases(Pair& pair, const CaseOptions& options) {
    std::vector<Case> cases;
    std::vector<std::int32_t> sizes = {33, 4099};
    if (!options.small) sizes.push_back(kLimits.vocabulary);
    for (const std::int32_t vocabulary : sizes) {
        for (const Mode& mode : modes())
            if (!mode.edits || vocabulary > 64)
                cases.push_back(
                    [&pair, mode, vocabulary] { return run_mode(pair, mode, vocabulary); });
        cases.push_back([&pair, vocabulary] { return run_no_logit(pair, vocabulary); });
    }
    return cases;
}

}  // namespace kernels::gate

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/golden/checks.h"
#include "tests/support/golden/greedy.h"
#include "tests/support/golden/logits.h"
#include "tests/support/golden/mtp_entries.h"

namespace golden {
namespace {

using Ids = std::vector<std::int32_t>;

/// Every split point of short prompts, this many of long ones.
constexpr std::size_t kSplitPointsMax = 24;

struct Counts {
    GreedyCounts greedy;
    std::size_t positions = 0, mtp = 0, splits = 0;
    std::size_t mtp_all_visible =
        0;  // texts whose MTP entries the file holds without a causal mask
};

class PromptCheck {
public:
    PromptCheck(ModelSession& session, Report& report)
        : session_(session), report_(report), mtp_entries_(session) {}

    /// Everything of one prompt. Returns the logits of its last position.
    std::vector<float> run(const Json& prompt, std::size_t index) {
        where_ = "prompt " + std::to_string(index);
        const Ids tokens = prompt.at("tokens").get<Ids>();
        const bool has_mtp = prompt.contains("mtp_argmax");
        session_.reset(0);
        std::vector<float> last;
        std::vector<TopTwo> mtp;
        for (std::size_t begin = 0; begin < tokens.size();) {
            const std::size_t count = std::min(tokens.size() - begin, rows_max());
            const Chunk chunk{.tokens = std::span(tokens).subspan(begin, count),
                              .logits = Rows::kAll};
            const std::span<const float> logits = session_.step(chunk);
            for (std::size_t i = 0; i < count; ++i) {
                compare_position(prompt, begin + i, row_of(logits, i, session_.vocabulary()));
            }
            const auto final_row = row_of(logits, count - 1, session_.vocabulary());
            last.assign(final_row.begin(), final_row.end());
            if (has_mtp) run_mtp(prompt, tokens, {.begin = begin, .count = count}, mtp);
            begin += count;
        }
        if (has_mtp) compare_mtp(prompt.at("mtp_argmax").get<Ids>(), tokens, mtp);
        compare_row(prompt.at("last_logits"), last, "last logits");
        if (prompt.contains("greedy")) {
            follow_greedy(session_, prompt.at("greedy").get<Ids>(), last, where_, counts_.greedy,
                          report_);
        }
        compare_splits(tokens, last);
        return last;
    }

    /// All prompts at once, each in two unequal pieces, against what each gave alone.
    void run_batch(const Json& prompts, const std::vector<std::vector<float>>& alone) {
        where_ = "batch";
        std::vector<Ids> tokens;
        const auto count =
            std::min(prompts.size(), static_cast<std::size_t>(session_.options().sequences));
        std::vector<Chunk> first, second;
        std::size_t rows = 0;
        for (std::size_t i = 0; i < count; ++i) {
            tokens.push_back(prompts[i].at("tokens").get<Ids>());
            rows += tokens.back().size();
        }
        if (rows > rows_max()) return;
        std::vector<std::size_t> owner;
        for (std::size_t i = 0; i < count; ++i) {
            const auto sequence = static_cast<std::int32_t>(i);
            session_.reset(sequence);
            const std::size_t cut = tokens[i].size() * (i + 1) / (count + 1);
            const std::span<const std::int32_t> all = tokens[i];
            if (cut > 0) first.push_back({.sequence = sequence, .tokens = all.first(cut)});
            second.push_back({.sequence = sequence, .tokens = all.subspan(cut)});
        }
        if (!first.empty()) session_.step(first);
        const std::span<const float> logits = session_.step(second);
        for (std::size_t i = 0; i < count; ++i) {
            compare_same(alone[i], row_of(logits, i, session_.vocabulary()),
                         "prompt " + std::to_string(i) + " in a batch");
        }
    }

    const Counts& counts() const { return counts_; }
    double split_error_max() const { return split_error_max_; }

private:
    std::size_t rows_max() const { return static_cast<std::size_t>(session_.options().rows_max); }

    void compare_argmax(std::int32_t expected, std::span<const float> logits,
                        const std::string& what) {
        const TopTwo top = top_two(logits);
        if (top.best != expected && !(static_cast<double>(top.margin) <= 2.0 * report_.tolerance)) {
            report_.miss(where_ + ", " + what + ": argmax " + std::to_string(top.best) +
                         ", expected " + std::to_string(expected));
        }
    }

    void compare_position(const Json& prompt, std::size_t position, std::span<const float> logits) {
        const std::string what = "position " + std::to_string(position);
        const auto expected = prompt.at("argmax")[position].get<std::int32_t>();
        report_.compare(static_cast<double>(logits[static_cast<std::size_t>(expected)]),
                        prompt.at("argmax_logit")[position].get<double>(),
                        where_ + ", " + what + ", best logit");
        report_.compare(log_sum_exp(logits), prompt.at("logsumexp")[position].get<double>(),
                        where_ + ", " + what + ", logsumexp");
        compare_argmax(expected, logits, what);
        ++counts_.positions;
    }

    void compare_row(const Json& expected, std::span<const float> logits, const std::string& what) {
        if (expected.size() != logits.size()) {
            report_.miss(where_ + ", " + what + ": another vocabulary size");
            return;
        }
        for (std::size_t i = 0; i < logits.size(); ++i) {
            report_.compare(static_cast<double>(logits[i]), expected[i].get<double>(),
                            where_ + ", " + what + " [" + std::to_string(i) + "]");
        }
    }

    struct Piece {
        std::size_t begin, count;
    };
    /// Entry p takes the hidden state of position p and token p + 1. Appends the best of each to
    /// `tops`.
    void run_mtp(const Json& prompt, const Ids& tokens, Piece piece, std::vector<TopTwo>& tops) {
        const std::size_t entries = std::min(piece.count, tokens.size() - 1 - piece.begin);
        if (entries == 0) return;
        const std::span<const float> logits =
            session_.step_mtp(0, std::span(tokens).subspan(piece.begin + 1, entries));
        for (std::size_t i = 0; i < entries; ++i) {
            tops.push_back(top_two(row_of(logits, i, session_.vocabulary())));
        }
        if (tops.size() + 1 == tokens.size()) {
            compare_row(prompt.at("mtp_last_logits"),
                        row_of(logits, entries - 1, session_.vocabulary()), "MTP last logits");
        }
    }

    bool agree(const Ids& expected, const std::vector<TopTwo>& tops) const {
        if (expected.size() != tops.size()) return false;
        for (std::size_t i = 0; i < tops.size(); ++i) {
            if (tops[i].best != expected[i] &&
                !(static_cast<double>(tops[i].margin) <= 2.0 * report_.tolerance)) {
                return false;
            }
        }
        return true;
    }

    void compare_mtp(const Ids& expected, const Ids& tokens, const std::vector<TopTwo>& causal) {
        counts_.mtp += expected.size();
        if (agree(expected, causal)) return;
        const auto all_visible = mtp_entries_.all_visible(tokens);
        if (!all_visible) {
            report_.miss(where_ + ", MTP: " + all_visible.error());
        } else if (!agree(expected, *all_visible)) {
            report_.miss(where_ +
                         ", MTP: the argmaxes agree neither with a causal pass nor with one "
                         "that sees all entries");
        } else {
            ++counts_.mtp_all_visible;
        }
    }

    void compare_splits(const Ids& tokens, const std::vector<float>& whole) {
        if (tokens.size() < 2) return;
        const std::size_t points = std::min(tokens.size() - 1, kSplitPointsMax);
        for (std::size_t i = 0; i < points; ++i) {
            const std::size_t cut = 1 + i * (tokens.size() - 1) / points;
            session_.reset(0);
            std::span<const float> logits;
            for (const auto& part :
                 {std::span(tokens).first(cut), std::span(tokens).subspan(cut)}) {
                for (std::size_t begin = 0; begin < part.size(); begin += rows_max()) {
                    logits = session_.step(
                        {.tokens = part.subspan(begin, std::min(rows_max(), part.size() - begin))});
                }
            }
            compare_same(whole, logits, "split after " + std::to_string(cut) + " tokens");
            ++counts_.splits;
        }
    }

    void compare_same(const std::vector<float>& expected, std::span<const float> logits,
                      const std::string& what) {
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const double error =
                std::fabs(static_cast<double>(expected[i]) - static_cast<double>(logits[i]));
            if (!(error <= split_error_max_)) split_error_max_ = error;
            if (!(error <= report_.tolerance)) {
                report_.miss(where_ + ", " + what + ": logit " + std::to_string(i) + " off by " +
                             std::to_string(error));
                return;
            }
        }
    }

    ModelSession& session_;
    Report& report_;
    MtpEntries mtp_entries_;
    std::string where_;
    Counts counts_;
    double split_error_max_ = 0.0;
};

}  // namespace

void check_prompts(const Json& document, ModelSession& session, Report& report) {
    report.tolerance = tolerance_for(session);
    PromptCheck check(session, report);
    const Json& prompts = document.at("prompts");
    std::vector<std::vector<float>> last;
    for (std::size_t i = 0; i < prompts.size(); ++i)
        last.push_back(check.run(prompts[i], i));
    check.run_batch(prompts, last);
    const Counts& counts = check.counts();
    char split_error[32];
    std::snprintf(split_error, sizeof split_error, "%.3g", check.split_error_max());
    report.summary =
        std::to_string(prompts.size()) + " prompts, " + std::to_string(counts.positions) +
        " positions, " + std::to_string(counts.greedy.tokens) + " greedy (" +
        std::to_string(counts.greedy.near_ties) + " near ties), " + std::to_string(counts.mtp) +
        " MTP (" + std::to_string(counts.mtp_all_visible) + " texts without causal mask), " +
        std::to_string(counts.splits) + " splits and a batch (largest difference " + split_error +
        ")";
}

}  // namespace golden

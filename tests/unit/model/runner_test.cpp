// What the runner offers to speculation and caches, on a small model with both kinds of layers and
// an MTP block: verify steps, kept hidden rows, copied pages and saved states all lead to the bits
// of a sequence that was simply decoded.
#include "replica/model/runner.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "replica/gguf/reader.h"

namespace replica {
namespace {

using Logits = std::vector<std::vector<float>>;  // [rows, vocabulary]

constexpr std::int32_t kBlocksPerSeq = 8;
constexpr std::int32_t kBlockTokens = 16;

/// A sequence's rows of a step; all of them give logits.
struct Part {
    std::vector<std::int32_t> tokens;
    std::int32_t kv_len_before = 0;
    std::int32_t slot = 1;  // its pages: kBlocksPerSeq of them from (slot - 1) * kBlocksPerSeq on
    std::int32_t replay_rows = 0;
    bool commits = true;
    std::vector<std::int32_t> hidden_row;  // MTP passes
};

class Model {
public:
    Model() {
        auto file =
            GgufFile::open(std::string(QUADRIGA_SOURCE_DIR) + "/tests/golden/qwen35-odd.gguf");
        EXPECT_TRUE(file.has_value());
        file_ = std::make_unique<GgufFile>(*std::move(file));
        backend_ = kernels::make_cpu_backend({.threads = 2, .cores = {}});
        auto loaded = ModelRunner::load(*file_, *backend_,
                                        {.context = kBlocksPerSeq * kBlockTokens,
                                         .sequences_max = 4,
                                         .step_rows_max = 64,
                                         .logit_rows_max = 64,
                                         .block_tokens = kBlockTokens,
                                         .draft_tokens_max = 3,
                                         .snapshot_memory_bytes = 64 << 20},
                                        {});
        EXPECT_TRUE(loaded.has_value());
        runner = *std::move(loaded);
    }

    Logits run(const std::vector<Part>& parts) { return pass(parts, nullptr); }
    Logits draft(const Part& part, HiddenSource source) { return pass({part}, &source); }

    /// A whole text decoded token by token in `slot`.
    Logits decode(const std::vector<std::int32_t>& text, std::int32_t slot) {
        Logits all;
        for (std::size_t t = 0; t < text.size(); ++t)
            all.push_back(run({{.tokens = {text[t]},
                                .kv_len_before = static_cast<std::int32_t>(t),
                                .slot = slot}})[0]);
        return all;
    }

    void copy_pages(std::int32_t from_slot, std::int32_t to_slot) {
        for (std::int32_t b = 0; b < kBlocksPerSeq; ++b)
            runner->copy_block((from_slot - 1) * kBlocksPerSeq + b,
                               (to_slot - 1) * kBlocksPerSeq + b);
    }

    std::unique_ptr<ModelRunner> runner;

private:
    Logits pass(const std::vector<Part>& parts, const HiddenSource* source) {
        std::vector<std::int32_t> token, position, seq_of_row, row_begin{0}, before, after, slots,
            replays, hidden_row, block_table, logit_row;
        std::vector<std::uint8_t> commit;
        for (const Part& part : parts) {
            before.push_back(part.kv_len_before);
            for (const std::int32_t id : part.tokens) {
                position.push_back(part.kv_len_before + static_cast<std::int32_t>(token.size()) -
                                   row_begin.back());
                seq_of_row.push_back(static_cast<std::int32_t>(before.size()) - 1);
                token.push_back(id);
            }
            row_begin.push_back(static_cast<std::int32_t>(token.size()));
            after.push_back(part.kv_len_before + static_cast<std::int32_t>(part.tokens.size()));
            slots.push_back(part.slot);
            replays.push_back(part.replay_rows);
            commit.push_back(part.commits ? 1 : 0);
            hidden_row.insert(hidden_row.end(), part.hidden_row.begin(), part.hidden_row.end());
            for (std::int32_t b = 0; b < kBlocksPerSeq; ++b)
                block_table.push_back((part.slot - 1) * kBlocksPerSeq + b);
        }
        logit_row.resize(token.size());
        std::iota(logit_row.begin(), logit_row.end(), 0);
        kernels::StepDescriptor step;
        step.rows = step.logit_rows = static_cast<std::int32_t>(token.size());
        step.seqs = static_cast<std::int32_t>(parts.size());
        step.token = token;
        step.position = position;
        step.seq_of_row = seq_of_row;
        step.row_begin = row_begin;
        step.kv_len_before = before;
        step.kv_len = after;
        step.state_slot = slots;
        step.replay_rows = replays;
        step.commit = commit;
        step.block_table = block_table;
        step.blocks_per_seq_max = kBlocksPerSeq;
        step.logit_row = logit_row;
        step.wants_logits = true;
        step.hidden_row = hidden_row;
        const kernels::StepOutputs& out =
            source == nullptr ? runner->run(step) : runner->run_draft(step, *source);
        const auto width = out.logits.size() / token.size();
        Logits rows;
        for (std::size_t i = 0; i < token.size(); ++i)
            rows.emplace_back(out.logits.begin() + static_cast<std::ptrdiff_t>(i * width),
                              out.logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
        return rows;
    }

    std::unique_ptr<GgufFile> file_;
    std::unique_ptr<kernels::Backend> backend_;
};

std::vector<std::int32_t> text_of(std::size_t tokens, std::uint32_t seed) {
    std::vector<std::int32_t> text;
    for (std::size_t i = 0; i < tokens; ++i) {
        seed = seed * 1664525U + 1013904223U;
        text.push_back(static_cast<std::int32_t>((seed >> 16) % 300));
    }
    return text;
}

std::vector<std::int32_t> slice(const std::vector<std::int32_t>& text, std::size_t begin,
                                std::size_t end) {
    return {text.begin() + static_cast<std::ptrdiff_t>(begin),
            text.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::vector<std::int32_t> counting_from(std::int32_t first, std::size_t count) {
    std::vector<std::int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), first);
    return rows;
}

TEST(ModelRunnerTest, ReportsWhatDraftsAndSavedStatesNeed) {
    const Model model;
    const RunnerLimits& limits = model.runner->limits();
    EXPECT_EQ(limits.draft_tokens_max, 3);
    EXPECT_GE(limits.kept_rows, 2 * (1 + limits.draft_tokens_max));
    EXPECT_GE(limits.snapshots, 4);
    EXPECT_EQ(limits.step.logit_rows, 64);
    EXPECT_EQ(limits.blocks_total, 4 * kBlocksPerSeq);
}

TEST(ModelRunnerTest, VerifyRoundsGiveTheLogitsOfPlainDecoding) {
    const std::vector<std::int32_t> text = text_of(100, 1);
    const Logits plain = Model().decode(text, 2);
    Model model;
    model.run({{.tokens = slice(text, 0, 9)}});
    std::size_t done = 9;
    std::int32_t replays = 0;
    for (std::size_t round = 0; done + 4 <= text.size(); ++round) {
        const std::size_t right = round % 4;  // of three drafts
        Part part{.tokens = slice(text, done, done + 4),
                  .kv_len_before = static_cast<std::int32_t>(done),
                  .replay_rows = replays,
                  .commits = false};
        for (std::size_t i = 1 + right; i < 4; ++i)
            part.tokens[i] = (part.tokens[i] + 7) % 300;
        const Logits logits = model.run({part});
        for (std::size_t i = 0; i <= right; ++i)
            ASSERT_EQ(logits[i], plain[done + i]) << "position " << done + i;
        if (right < 3) {
            EXPECT_NE(logits[right + 1], plain[done + right + 1]);
        }
        replays = 1 + static_cast<std::int32_t>(right);
        done += 1 + right;
        if (round % 5 == 4) {  // brought up to date between steps
            model.runner->replay(1, replays, static_cast<std::int32_t>(done));
            replays = 0;
        }
    }
}

TEST(ModelRunnerTest, ADraftPassFromKeptRowsEqualsOneFromTheTrunksRows) {
    const std::vector<std::int32_t> text = text_of(21, 2);
    Model whole;
    whole.run({{.tokens = slice(text, 0, 20)}});
    const Logits expected = whole.draft(
        {.tokens = slice(text, 1, 21), .hidden_row = counting_from(0, 20)}, HiddenSource::kTrunk);

    Model pieces;
    pieces.run({{.tokens = slice(text, 0, 12)}});
    const ModelRunner& runner = *pieces.runner;
    pieces.draft({.tokens = slice(text, 1, 12), .hidden_row = counting_from(0, 11)},
                 HiddenSource::kTrunk);
    pieces.runner->keep_hidden(11, 1, 3);
    pieces.runner->keep_hidden(4, 4, runner.limits().kept_rows - 1);  // another slot's
    pieces.run({{.tokens = slice(text, 12, 20), .kv_len_before = 12},
                {.tokens = text_of(30, 8), .slot = 3}});
    std::vector<std::int32_t> rows = counting_from(-1, 9);
    rows[0] = runner.kept_row(1, 3);
    const Logits rest =
        pieces.draft({.tokens = slice(text, 12, 21), .kv_len_before = 11, .hidden_row = rows},
                     HiddenSource::kTrunk);
    for (std::size_t i = 0; i < rest.size(); ++i)
        EXPECT_EQ(rest[i], expected[11 + i]) << "entry " << 11 + i;
}

TEST(ModelRunnerTest, AChainedDraftReadsTheBlocksOwnHiddenRows) {
    const std::vector<std::int32_t> text = text_of(9, 3);
    const auto chain = [&](std::int32_t from_row) {
        Model model;
        model.run({{.tokens = slice(text, 0, 8)}});
        model.draft({.tokens = slice(text, 1, 9), .hidden_row = counting_from(0, 8)},
                    HiddenSource::kTrunk);
        return model.draft({.tokens = {5}, .kv_len_before = 8, .hidden_row = {from_row}},
                           HiddenSource::kDraft)[0];
    };
    EXPECT_EQ(chain(7), chain(7));
    EXPECT_NE(chain(7), chain(6)) << "the row matters";
    Model trunk;
    trunk.run({{.tokens = slice(text, 0, 8)}});
    trunk.draft({.tokens = slice(text, 1, 9), .hidden_row = counting_from(0, 8)},
                HiddenSource::kTrunk);
    EXPECT_NE(chain(7), trunk.draft({.tokens = {5}, .kv_len_before = 8, .hidden_row = {7}},
                                    HiddenSource::kTrunk)[0])
        << "and whose it is";
}

TEST(ModelRunnerTest, ADraftPassLeavesTheTrunksHiddenRows) {
    const std::vector<std::int32_t> text = text_of(9, 3);
    Model model;
    model.run({{.tokens = slice(text, 0, 8)}});
    const Part part{.tokens = slice(text, 1, 9), .hidden_row = counting_from(0, 8)};
    const Logits first = model.draft(part, HiddenSource::kTrunk);
    model.draft({.tokens = {5}, .kv_len_before = 8, .hidden_row = {7}}, HiddenSource::kDraft);
    EXPECT_EQ(model.draft(part, HiddenSource::kTrunk), first);
}

TEST(ModelRunnerTest, ASavedStateAndCopiedPagesGoOnLikeTheOriginal) {
    const std::vector<std::int32_t> text = text_of(70, 4);
    const Logits plain = Model().decode(text, 1);
    Model model;
    model.run({{.tokens = slice(text, 0, 40)}});
    // The last rows come from a verify step whose state is not up to date.
    model.run({{.tokens = slice(text, 40, 44), .kv_len_before = 40, .commits = false}});
    model.runner->replay(1, 2, 42);
    model.runner->save_state(1, 3);
    model.copy_pages(1, 4);
    model.run({{.tokens = text_of(20, 9), .kv_len_before = 42}});  // the original goes elsewhere
    model.runner->load_state(3, 4);
    const Logits rest =
        model.run({{.tokens = slice(text, 42, 70), .kv_len_before = 42, .slot = 4}});
    for (std::size_t i = 0; i < rest.size(); ++i)
        EXPECT_EQ(rest[i], plain[42 + i]) << "position " << 42 + i;
    // A snapshot is read as often as one likes.
    model.copy_pages(4, 2);
    model.runner->load_state(3, 2);
    EXPECT_EQ(model.run({{.tokens = {text[42]}, .kv_len_before = 42, .slot = 2}})[0], plain[42]);
}

TEST(ModelRunnerTest, CopiedPagesHoldTheMtpBlocksEntriesToo) {
    const std::vector<std::int32_t> text = text_of(21, 5);
    Model model;
    model.run({{.tokens = slice(text, 0, 20)}});
    model.draft({.tokens = slice(text, 1, 20), .hidden_row = counting_from(0, 19)},
                HiddenSource::kTrunk);
    model.copy_pages(1, 3);
    const auto next = [&](std::int32_t slot) {
        return model.draft(
            {.tokens = {text[20]}, .kv_len_before = 19, .slot = slot, .hidden_row = {19}},
            HiddenSource::kTrunk)[0];
    };
    EXPECT_EQ(next(3), next(1));
}

}  // namespace
}  // namespace replica

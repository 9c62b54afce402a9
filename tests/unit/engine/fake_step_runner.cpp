#include "tests/unit/engine/fake_step_runner.h"

#include <algorithm>
#include <cstddef>

#include <gtest/gtest.h>

namespace replica {
namespace {

constexpr std::uint64_t kEmptyText = 0x9E3779B97F4A7C15U;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {  // splitmix64's finaliser
    hash = (hash ^ value) * 0xBF58476D1CE4E5B9U;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBU;
    return hash ^ (hash >> 31);
}

std::size_t at(std::int32_t index) {
    return static_cast<std::size_t>(index);
}

}  // namespace

TokenId pseudo_next(std::span<const TokenId> tokens, const kernels::SamplingRow& sampling,
                    std::int32_t vocabulary) {
    std::uint64_t hash = kEmptyText;
    for (const TokenId token : tokens)
        hash = mix(hash, static_cast<std::uint64_t>(token));
    hash = mix(mix(hash, sampling.seed), sampling.draw_index);
    const auto is_banned = [&](TokenId token) {
        return std::find(sampling.banned.begin(), sampling.banned.end(), token) !=
               sampling.banned.end();
    };
    auto token = static_cast<TokenId>(hash % static_cast<std::uint64_t>(vocabulary));
    while (is_banned(token))
        token = (token + 1) % vocabulary;
    return token;
}

FakeStepRunner::FakeStepRunner(FakeModel model)
    : model_(model),
      limits_{
          .step = {.rows = model.rows,
                   .seqs = model.seqs,
                   .logit_rows = model.logit_rows > 0 ? model.logit_rows
                                                      : model.seqs * (1 + model.draft_tokens_max),
                   .blocks_per_seq = model.blocks_total,
                   .vocabulary = model.vocabulary},
          .blocks_total = model.blocks_total,
          .block_tokens = model.block_tokens,
          .state_slots = model.seqs,
          .has_recurrent_state = model.has_recurrent_state,
          .max_model_len = model.max_model_len,
          .draft_tokens_max = model.draft_tokens_max,
          .kept_rows = model.kept_rows,
          .snapshots = model.snapshots,
          .snapshot_bytes = 100} {
    pages_.resize(at(model.blocks_total) * at(model.block_tokens));
    draft_entries_.resize(pages_.size());
    slots_.resize(at(model.seqs) + 1);
    snapshots_.resize(at(model.snapshots));
    hidden_.resize(at(model.rows) + slots_.size() * at(model.kept_rows));
    draft_hidden_.resize(at(model.rows));
    text_.reserve(at(model.max_model_len));
    sampled_.reserve(at(limits_.step.logit_rows));
    error_.reserve(at(limits_.step.logit_rows));
}

const kernels::StepOutputs& FakeStepRunner::run(const kernels::StepDescriptor& step) {
    if (on_run) on_run(step);
    check(step);
    sampled_.clear();
    error_.clear();
    rows_run += step.rows;
    for (std::int32_t s = 0; s < step.seqs; ++s)
        store(step, s);
    for (std::int32_t row = 0; row < step.rows; ++row) {
        const auto text = read_back(step, row);
        hidden_[at(row)].assign(text.begin(), text.end());
    }
    for (std::int32_t k = 0; k < step.logit_rows; ++k) {
        const Text& text = hidden_[at(step.logit_row[at(k)])];
        sampled_.push_back(pseudo_next(text, step.sampling[at(k)], limits_.step.vocabulary));
        error_.push_back(poison && text.front() == *poison ? 1 : 0);
    }
    outputs_ = {.sampled = sampled_, .error = error_};
    return outputs_;
}

const kernels::StepOutputs& FakeStepRunner::run_draft(const kernels::StepDescriptor& step,
                                                      HiddenSource source) {
    EXPECT_GT(step.rows, 0);
    EXPECT_LE(step.rows, limits_.step.rows);
    EXPECT_LE(step.seqs, limits_.step.seqs);
    ++draft_passes;
    draft_rows_run += step.rows;
    sampled_.clear();
    error_.clear();
    std::vector<Text> seen(at(step.rows));
    for (std::int32_t row = 0; row < step.rows; ++row) {
        const std::int32_t sequence = step.seq_of_row[at(row)];
        const std::int32_t position = step.position[at(row)];
        EXPECT_EQ(position, step.kv_len_before[at(sequence)] + row - step.row_begin[at(sequence)]);
        const auto& from = source == HiddenSource::kTrunk ? hidden_ : draft_hidden_;
        Text& text = seen[at(row)];
        text = from[at(step.hidden_row[at(row)])];
        EXPECT_EQ(text.size(), at(position) + 1) << "another position's hidden row";
        text.push_back(step.token[at(row)]);
        std::uint64_t hash = mix(kEmptyText, static_cast<std::uint64_t>(text.front()));
        for (std::int32_t entry = 0; entry < position; ++entry) {
            hash = mix(hash, static_cast<std::uint64_t>(text[at(entry) + 1]));
            if (draft_entries_[place(step, sequence, entry)] != hash) ++draft_entries_wrong;
        }
        draft_entries_[place(step, sequence, position)] =
            mix(hash, static_cast<std::uint64_t>(text.back()));
    }
    for (std::int32_t k = 0; k < step.logit_rows; ++k) {
        const Text& text = seen[at(step.logit_row[at(k)])];
        const kernels::SamplingRow sampling{.draw_index = text.size()};
        TokenId token = pseudo_next(text, sampling, limits_.step.vocabulary);
        if (model_.draft_error_one_in > 0 && token % model_.draft_error_one_in == 0) ++token;
        sampled_.push_back(token % limits_.step.vocabulary);
        error_.push_back(0);
    }
    for (std::int32_t row = 0; row < step.rows; ++row)
        draft_hidden_[at(row)] = seen[at(row)];
    outputs_ = {.sampled = sampled_, .error = error_};
    return outputs_;
}

void FakeStepRunner::keep_hidden(std::int32_t row, std::int32_t slot, std::int32_t index) {
    EXPECT_LT(index, limits_.kept_rows);
    hidden_[at(kept_row(slot, index))] = hidden_[at(row)];
}

void FakeStepRunner::replay(std::int32_t slot, std::int32_t rows, std::int32_t) {
    Slot& of = slots_[at(slot)];
    outputs_ = {};  // as a real runner, which steps for this
    ASSERT_LE(at(rows), of.replay.size());
    for (std::int32_t i = 0; i < rows; ++i)
        of.state = mix(of.state, static_cast<std::uint64_t>(of.replay[at(i)]));
    of.replay.clear();
}

void FakeStepRunner::copy_block(std::int32_t from, std::int32_t to) {
    for (std::int32_t i = 0; i < limits_.block_tokens; ++i) {
        pages_[at(to * limits_.block_tokens + i)] = pages_[at(from * limits_.block_tokens + i)];
        draft_entries_[at(to * limits_.block_tokens + i)] =
            draft_entries_[at(from * limits_.block_tokens + i)];
    }
}

void FakeStepRunner::save_state(std::int32_t slot, std::int32_t snapshot) {
    EXPECT_TRUE(limits_.has_recurrent_state);
    snapshots_[at(snapshot)] = {.state = slots_[at(slot)].state, .replay = {}};
}

void FakeStepRunner::load_state(std::int32_t snapshot, std::int32_t slot) {
    slots_[at(slot)] = snapshots_[at(snapshot)];
}

void FakeStepRunner::check(const kernels::StepDescriptor& step) const {
    ASSERT_GT(step.rows, 0);
    ASSERT_LE(step.rows, limits_.step.rows);
    ASSERT_LE(step.seqs, limits_.step.seqs);
    ASSERT_LE(step.logit_rows, limits_.step.logit_rows);
    ASSERT_EQ(step.row_begin[0], 0);
    ASSERT_EQ(step.row_begin[at(step.seqs)], step.rows);
    ASSERT_EQ(step.sampling.size(), at(step.logit_rows));
    std::vector<std::int32_t> holders(at(limits_.blocks_total));
    std::vector<std::int32_t> writers(at(limits_.blocks_total));
    std::vector<bool> slot_used(slots_.size());
    for (std::int32_t s = 0; s < step.seqs; ++s) {
        const std::int32_t first = step.row_begin[at(s)];
        const std::int32_t last = step.row_begin[at(s) + 1];
        ASSERT_LT(first, last) << "a sequence without rows";
        ASSERT_EQ(step.kv_len[at(s)], step.kv_len_before[at(s)] + last - first);
        ASSERT_LE(step.kv_len[at(s)], limits_.max_model_len);
        for (std::int32_t row = first; row < last; ++row) {
            ASSERT_EQ(step.seq_of_row[at(row)], s);
            ASSERT_EQ(step.position[at(row)], step.kv_len_before[at(s)] + row - first);
        }
        const std::int32_t slot = step.state_slot[at(s)];
        ASSERT_TRUE(slot > 0 && at(slot) < slots_.size()) << "scratch belongs to nobody";
        ASSERT_FALSE(slot_used[at(slot)]) << "two sequences in one slot";
        slot_used[at(slot)] = true;
        const auto table = step.block_table.subspan(at(s) * at(step.blocks_per_seq_max),
                                                    at(step.blocks_per_seq_max));
        const std::int32_t used =
            (step.kv_len[at(s)] + limits_.block_tokens - 1) / limits_.block_tokens;
        for (std::int32_t b = 0; b < step.blocks_per_seq_max; ++b) {
            if (b >= used && table[at(b)] == -1) continue;
            ASSERT_TRUE(table[at(b)] >= 0 && table[at(b)] < limits_.blocks_total);
            ++holders[at(table[at(b)])];
            if (b >= step.kv_len_before[at(s)] / limits_.block_tokens) ++writers[at(table[at(b)])];
        }
    }
    for (std::size_t block = 0; block < holders.size(); ++block)
        ASSERT_TRUE(writers[block] == 0 || holders[block] == 1)
            << "block " << block << " is written by one and read by another";
}

/// Writes the step's rows of one sequence into its pages, and into its state or replay buffer.
void FakeStepRunner::store(const kernels::StepDescriptor& step, std::int32_t sequence) {
    Slot& slot = slots_[at(step.state_slot[at(sequence)])];
    const std::int32_t replayed = step.replay_rows.empty() ? 0 : step.replay_rows[at(sequence)];
    if (step.kv_len_before[at(sequence)] == 0) slot = {.state = kEmptyText, .replay = {}};
    replay(step.state_slot[at(sequence)], replayed, step.kv_len_before[at(sequence)]);
    slot.replay.clear();
    const bool commits = step.commit.empty() || step.commit[at(sequence)] != 0;
    for (std::int32_t row = step.row_begin[at(sequence)]; row < step.row_begin[at(sequence) + 1];
         ++row) {
        const TokenId token = step.token[at(row)];
        pages_[place(step, sequence, step.position[at(row)])] = token;
        if (commits) {
            slot.state = mix(slot.state, static_cast<std::uint64_t>(token));
        } else {
            slot.replay.push_back(token);
        }
    }
    EXPECT_LE(slot.replay.size(), at(1 + limits_.draft_tokens_max));
}

/// The text up to a row from its sequence's pages, which its recurrent state must agree with.
std::span<const TokenId> FakeStepRunner::read_back(const kernels::StepDescriptor& step,
                                                   std::int32_t row) {
    const std::int32_t sequence = step.seq_of_row[at(row)];
    const Slot& slot = slots_[at(step.state_slot[at(sequence)])];
    const bool is_last = row + 1 == step.row_begin[at(sequence) + 1];
    text_.clear();
    std::uint64_t hash = kEmptyText;
    for (std::int32_t position = 0; position <= step.position[at(row)]; ++position) {
        text_.push_back(pages_[place(step, sequence, position)]);
        hash = mix(hash, static_cast<std::uint64_t>(text_.back()));
    }
    if (!is_last) return text_;
    std::uint64_t state = slot.state;
    for (const TokenId token : slot.replay)
        state = mix(state, static_cast<std::uint64_t>(token));
    if (limits_.has_recurrent_state) {
        EXPECT_EQ(hash, state) << "pages and state disagree";
    }
    return text_;
}

std::size_t FakeStepRunner::place(const kernels::StepDescriptor& step, std::int32_t sequence,
                                  std::int32_t position) const {
    const std::int32_t block =
        step.block_table[at(sequence * step.blocks_per_seq_max + position / limits_.block_tokens)];
    EXPECT_GE(block, 0) << "no page for position " << position;
    return at(block * limits_.block_tokens + position % limits_.block_tokens);
}

void StepGate::enter() {
    std::unique_lock lock(mutex_);
    is_step_waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_ || allowed_ > 0; });
    is_step_waiting_ = false;
    if (!is_open_) --allowed_;
}

void StepGate::wait_for_step() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_step_waiting_ && allowed_ == 0; });
}

void StepGate::let_pass(int steps) {
    const std::lock_guard lock(mutex_);
    allowed_ += steps;
    changed_.notify_all();
}

void StepGate::open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
}

}  // namespace replica

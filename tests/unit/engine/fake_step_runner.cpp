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
    : limits_{.step = {.rows = model.rows,
                       .seqs = model.seqs,
                       .logit_rows = model.seqs,
                       .blocks_per_seq = model.blocks_total,
                       .vocabulary = model.vocabulary},
              .blocks_total = model.blocks_total,
              .block_tokens = model.block_tokens,
              .state_slots = model.seqs,
              .has_recurrent_state = model.has_recurrent_state,
              .max_model_len = model.max_model_len} {
    pages_.resize(at(model.blocks_total) * at(model.block_tokens));
    states_.resize(at(model.seqs) + 1);
    text_.reserve(at(model.max_model_len));
    sampled_.reserve(at(model.seqs));
    error_.reserve(at(model.seqs));
}

const kernels::StepOutputs& FakeStepRunner::run(const kernels::StepDescriptor& step) {
    if (on_run) on_run(step);
    check(step);
    sampled_.clear();
    error_.clear();
    for (std::int32_t s = 0; s < step.seqs; ++s)
        store(step, s);
    for (std::int32_t k = 0; k < step.logit_rows; ++k) {
        const std::int32_t sequence = step.seq_of_row[at(step.logit_row[at(k)])];
        const std::span<const TokenId> text = read_back(step, sequence);
        sampled_.push_back(pseudo_next(text, step.sampling[at(k)], limits_.step.vocabulary));
        error_.push_back(poison && text.front() == *poison ? 1 : 0);
    }
    outputs_ = {.sampled = sampled_, .error = error_};
    return outputs_;
}

void FakeStepRunner::check(const kernels::StepDescriptor& step) const {
    ASSERT_GT(step.rows, 0);
    ASSERT_LE(step.rows, limits_.step.rows);
    ASSERT_LE(step.seqs, limits_.step.seqs);
    ASSERT_EQ(step.row_begin[0], 0);
    ASSERT_EQ(step.row_begin[at(step.seqs)], step.rows);
    ASSERT_EQ(step.sampling.size(), at(step.logit_rows));
    std::vector<bool> block_used(at(limits_.blocks_total));
    std::vector<bool> slot_used(states_.size());
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
        ASSERT_TRUE(slot > 0 && at(slot) < states_.size()) << "scratch belongs to nobody";
        ASSERT_FALSE(slot_used[at(slot)]) << "two sequences in one slot";
        slot_used[at(slot)] = true;
        const auto table = step.block_table.subspan(at(s) * at(step.blocks_per_seq_max),
                                                    at(step.blocks_per_seq_max));
        const std::int32_t used =
            (step.kv_len[at(s)] + limits_.block_tokens - 1) / limits_.block_tokens;
        for (std::int32_t b = 0; b < step.blocks_per_seq_max; ++b) {
            if (b >= used) {
                ASSERT_EQ(table[at(b)], -1) << "stale entry behind the table";
                continue;
            }
            ASSERT_TRUE(table[at(b)] >= 0 && table[at(b)] < limits_.blocks_total);
            ASSERT_FALSE(block_used[at(table[at(b)])]) << "one block, two places";
            block_used[at(table[at(b)])] = true;
        }
    }
}

/// Writes the step's rows of one sequence into its pages and its state.
void FakeStepRunner::store(const kernels::StepDescriptor& step, std::int32_t sequence) {
    std::uint64_t& state = states_[at(step.state_slot[at(sequence)])];
    if (step.kv_len_before[at(sequence)] == 0) state = kEmptyText;
    for (std::int32_t row = step.row_begin[at(sequence)]; row < step.row_begin[at(sequence) + 1];
         ++row) {
        const std::int32_t position = step.position[at(row)];
        const std::int32_t block = step.block_table[at(sequence * step.blocks_per_seq_max +
                                                       position / limits_.block_tokens)];
        pages_[at(block * limits_.block_tokens + position % limits_.block_tokens)] =
            step.token[at(row)];
        state = mix(state, static_cast<std::uint64_t>(step.token[at(row)]));
    }
}

/// The whole text of a sequence from its pages, which its recurrent state must agree with.
std::span<const TokenId> FakeStepRunner::read_back(const kernels::StepDescriptor& step,
                                                   std::int32_t sequence) {
    text_.clear();
    std::uint64_t hash = kEmptyText;
    for (std::int32_t position = 0; position < step.kv_len[at(sequence)]; ++position) {
        const std::int32_t block = step.block_table[at(sequence * step.blocks_per_seq_max +
                                                       position / limits_.block_tokens)];
        text_.push_back(pages_[at(block * limits_.block_tokens + position % limits_.block_tokens)]);
        hash = mix(hash, static_cast<std::uint64_t>(text_.back()));
    }
    EXPECT_EQ(hash, states_[at(step.state_slot[at(sequence)])]) << "pages and state disagree";
    return text_;
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

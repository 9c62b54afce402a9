#include "replica/engine/step_builder.h"

#include <algorithm>
#include <cassert>

namespace replica {

StepBuilder::StepBuilder(const kernels::StepLimits& limits) : limits_(limits) {
    assert(limits.rows > 0 && limits.seqs > 0 && limits.logit_rows > 0);
    assert(limits.blocks_per_seq > 0);
    const auto rows = static_cast<std::size_t>(limits.rows);
    const auto seqs = static_cast<std::size_t>(limits.seqs);
    for (std::vector<std::int32_t>* per_row : {&token_, &position_, &seq_of_row_})
        per_row->reserve(rows);
    for (std::vector<std::int32_t>* per_seq :
         {&row_begin_, &kv_len_before_, &kv_len_, &state_slot_, &replay_rows_})
        per_seq->reserve(seqs + 1);
    commit_.reserve(seqs);
    block_table_.assign(seqs * static_cast<std::size_t>(limits.blocks_per_seq), kNoBlock);
    blocks_written_.assign(seqs, 0);
    logit_row_.reserve(static_cast<std::size_t>(limits.logit_rows));
    sampling_.reserve(static_cast<std::size_t>(limits.logit_rows));
    entries_.reserve(seqs);
    clear();
}

void StepBuilder::clear() {
    entries_.clear();
    for (std::vector<std::int32_t>* array :
         {&token_, &position_, &seq_of_row_, &row_begin_, &kv_len_before_, &kv_len_, &state_slot_,
          &replay_rows_, &logit_row_})
        array->clear();
    commit_.clear();
    sampling_.clear();
    row_begin_.push_back(0);
}

void StepBuilder::add(Sequence& sequence, std::int32_t rows) {
    const std::int32_t before = sequence.computed();
    const std::int32_t known = std::min(rows, sequence.token_count() - before);
    const std::int32_t drafts = rows - known;
    const std::size_t index = entries_.size();
    assert(known > 0 && drafts <= static_cast<std::int32_t>(sequence.drafts.size()));
    assert(index < static_cast<std::size_t>(limits_.seqs));
    assert(row_begin_.back() + rows <= limits_.rows);
    sequence.drafts.resize(static_cast<std::size_t>(drafts));

    const auto tokens = sequence.tokens().subspan(static_cast<std::size_t>(before),
                                                  static_cast<std::size_t>(known));
    token_.insert(token_.end(), tokens.begin(), tokens.end());
    token_.insert(token_.end(), sequence.drafts.begin(), sequence.drafts.end());
    for (std::int32_t position = before; position < before + rows; ++position)
        position_.push_back(position);
    seq_of_row_.insert(seq_of_row_.end(), static_cast<std::size_t>(rows),
                       static_cast<std::int32_t>(index));
    row_begin_.push_back(row_begin_.back() + rows);
    kv_len_before_.push_back(before);
    kv_len_.push_back(before + rows);
    state_slot_.push_back(sequence.state_slot);
    replay_rows_.push_back(sequence.replay_rows);
    commit_.push_back(drafts == 0 ? 1 : 0);
    add_blocks(sequence);

    // Row k of these draws the token behind the known ones and k drafts.
    const bool is_whole = before + known == sequence.token_count();
    const std::int32_t logit_rows = is_whole ? 1 + drafts : 0;
    for (std::int32_t draft = 0; draft < logit_rows; ++draft) {
        assert(logit_row_.size() < static_cast<std::size_t>(limits_.logit_rows));
        logit_row_.push_back(row_begin_.back() - logit_rows + draft);
        sampling_.push_back(sequence.sampling_row(draft));
    }
    entries_.push_back({.sequence = &sequence,
                        .first_row = row_begin_.back() - rows,
                        .rows = rows,
                        .logit_rows = logit_rows});
}

/// Fills the table row of the entry that is being added; what an earlier step left there goes.
void StepBuilder::add_blocks(const Sequence& sequence) {
    const std::size_t index = entries_.size();
    const std::span<const BlockId> blocks = sequence.blocks.blocks();
    assert(blocks.size() <= static_cast<std::size_t>(limits_.blocks_per_seq));
    const auto table =
        block_table_.begin() + static_cast<std::ptrdiff_t>(index) * limits_.blocks_per_seq;
    std::copy(blocks.begin(), blocks.end(), table);
    std::int32_t& written = blocks_written_[index];
    if (written > sequence.blocks.size()) {
        std::fill(table + sequence.blocks.size(), table + written, kNoBlock);
    }
    written = sequence.blocks.size();
}

const kernels::StepDescriptor& StepBuilder::finish() {
    step_ = {.rows = row_begin_.back(),
             .seqs = static_cast<std::int32_t>(entries_.size()),
             .logit_rows = static_cast<std::int32_t>(logit_row_.size()),
             .token = token_,
             .position = position_,
             .seq_of_row = seq_of_row_,
             .row_begin = row_begin_,
             .kv_len_before = kv_len_before_,
             .kv_len = kv_len_,
             .state_slot = state_slot_,
             .replay_rows = replay_rows_,
             .commit = commit_,
             .blocks_per_seq_max = limits_.blocks_per_seq,
             .logit_row = logit_row_,
             .sampling = sampling_};
    step_.block_table =
        std::span<const std::int32_t>(block_table_)
            .first(entries_.size() * static_cast<std::size_t>(limits_.blocks_per_seq));
    return step_;
}

}  // namespace replica

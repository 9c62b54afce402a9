#include "replica/engine/draft_pass.h"

#include <algorithm>
#include <cassert>

namespace replica {

DraftPass::DraftPass(const kernels::StepLimits& limits) : limits_(limits) {
    const auto rows = static_cast<std::size_t>(limits.rows);
    const auto seqs = static_cast<std::size_t>(limits.seqs);
    for (std::vector<std::int32_t>* per_row : {&token_, &position_, &seq_of_row_, &hidden_row_})
        per_row->reserve(rows);
    for (std::vector<std::int32_t>* per_seq :
         {&row_begin_, &kv_len_before_, &kv_len_, &state_slot_})
        per_seq->reserve(seqs + 1);
    block_table_.reserve(seqs * static_cast<std::size_t>(limits.blocks_per_seq));
    logit_row_.reserve(seqs);
    sampling_.reserve(seqs);
    clear();
}

void DraftPass::clear() {
    for (std::vector<std::int32_t>* array :
         {&token_, &position_, &seq_of_row_, &hidden_row_, &row_begin_, &kv_len_before_, &kv_len_,
          &state_slot_, &block_table_, &logit_row_})
        array->clear();
    sampling_.clear();
    row_begin_.push_back(0);
}

void DraftPass::begin_sequence(const Sequence& sequence, std::int32_t position) {
    assert(sequences() < limits_.seqs);
    kv_len_before_.push_back(position);
    kv_len_.push_back(position);
    state_slot_.push_back(sequence.state_slot);
    row_begin_.push_back(row_begin_.back());
    const auto blocks = sequence.blocks.blocks();
    block_table_.insert(block_table_.end(), blocks.begin(), blocks.end());
    block_table_.resize(kv_len_.size() * static_cast<std::size_t>(limits_.blocks_per_seq),
                        kNoBlock);
}

void DraftPass::add_row(TokenId token, std::int32_t hidden_row) {
    assert(rows() < limits_.rows && sequences() > 0);
    position_.push_back(kv_len_.back());
    token_.push_back(token);
    hidden_row_.push_back(hidden_row);
    seq_of_row_.push_back(sequences() - 1);
    ++kv_len_.back();
    ++row_begin_.back();
}

void DraftPass::predict() {
    logit_row_.push_back(rows() - 1);
    sampling_.push_back({.temperature = 0.0F});
}

const kernels::StepDescriptor& DraftPass::finish() {
    step_ = {.rows = rows(),
             .seqs = sequences(),
             .logit_rows = static_cast<std::int32_t>(logit_row_.size()),
             .token = token_,
             .position = position_,
             .seq_of_row = seq_of_row_,
             .row_begin = row_begin_,
             .kv_len_before = kv_len_before_,
             .kv_len = kv_len_,
             .state_slot = state_slot_,
             .block_table = block_table_,
             .blocks_per_seq_max = limits_.blocks_per_seq,
             .logit_row = logit_row_,
             .sampling = sampling_,
             .hidden_row = hidden_row_};
    return step_;
}

}  // namespace replica

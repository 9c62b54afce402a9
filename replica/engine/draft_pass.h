// One pass of the draft block, laid out for the backend: what StepBuilder is for the trunk.
//
// The block's entry at position p joins the trunk's hidden row of p with the token of p + 1 and
// predicts the token of p + 2. Its keys and values lie in the sequence's own pages.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "replica/engine/sequence.h"

namespace replica {

/// Engine thread only. Sized once for the largest step.
class DraftPass {
public:
    explicit DraftPass(const kernels::StepLimits& limits);

    void clear();
    std::int32_t rows() const { return static_cast<std::int32_t>(token_.size()); }
    std::int32_t sequences() const { return static_cast<std::int32_t>(kv_len_.size()); }

    /// A sequence's rows begin at entry `position`; they follow one by one.
    void begin_sequence(const Sequence& sequence, std::int32_t position);
    void add_row(TokenId token, std::int32_t hidden_row);
    /// The row just added predicts a token.
    void predict();

    /// Valid until `clear`.
    const kernels::StepDescriptor& finish();

private:
    kernels::StepLimits limits_;
    kernels::StepDescriptor step_;
    std::vector<std::int32_t> token_, position_, seq_of_row_, hidden_row_;  // [rows]
    std::vector<std::int32_t> row_begin_;                                   // [seqs + 1]
    std::vector<std::int32_t> kv_len_before_, kv_len_, state_slot_,
        block_table_;  // [seqs], [seqs, blocks]
    std::vector<std::int32_t> logit_row_;
    std::vector<kernels::SamplingRow> sampling_;
};

}  // namespace replica

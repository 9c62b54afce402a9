// From a plan to the descriptor that a backend reads. All arrays are sized once for the largest
// step; a step only fills them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "replica/engine/sequence.h"

namespace replica {

/// Engine thread only.
class StepBuilder {
public:
    explicit StepBuilder(const kernels::StepLimits& limits);

    void clear();
    /// Appends the next `rows` known tokens of `sequence`, whose block table already holds them.
    /// The last row yields a logit row when it is the last known token. Keeps the pointer.
    void add(Sequence& sequence, std::int32_t rows);
    /// Valid until `clear`; the sequences must stay as they are for as long.
    const kernels::StepDescriptor& finish();

    struct Entry {
        Sequence* sequence;
        std::int32_t rows;
        bool yields_token;  // in order, the k-th of these owns logit row k
    };
    const std::vector<Entry>& entries() const { return entries_; }

private:
    kernels::StepLimits limits_;
    kernels::StepDescriptor step_;
    std::vector<Entry> entries_;
    std::vector<std::int32_t> token_, position_, seq_of_row_;        // [rows]
    std::vector<std::int32_t> row_begin_;                            // [seqs + 1]
    std::vector<std::int32_t> kv_len_before_, kv_len_, state_slot_;  // [seqs]
    std::vector<std::int32_t> block_table_;                          // [seqs, blocks_per_seq]
    std::vector<std::int32_t> blocks_written_;  // [seqs] entries of each table row that are not -1
    std::vector<std::int32_t> logit_row_;       // [logit_rows]
    std::vector<kernels::SamplingRow> sampling_;  // [logit_rows]
};

}  // namespace replica

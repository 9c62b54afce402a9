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
    /// Appends the next `rows` tokens of `sequence`, known ones and then drafts; its block table
    /// already holds them. The last known token and every draft yield a logit row. Drafts beyond
    /// `rows` are forgotten. Keeps the pointer.
    void add(Sequence& sequence, std::int32_t rows);
    /// Valid until `clear`; the sequences must stay as they are for as long.
    const kernels::StepDescriptor& finish();

    struct Entry {
        Sequence* sequence;
        std::int32_t first_row;
        std::int32_t rows;
        std::int32_t logit_rows;  // the last so many rows; in order of entries, then of rows
    };
    const std::vector<Entry>& entries() const { return entries_; }

private:
    void add_blocks(const Sequence& sequence);

    kernels::StepLimits limits_;
    kernels::StepDescriptor step_;
    std::vector<Entry> entries_;
    std::vector<std::int32_t> token_, position_, seq_of_row_;                      // [rows]
    std::vector<std::int32_t> row_begin_;                                          // [seqs + 1]
    std::vector<std::int32_t> kv_len_before_, kv_len_, state_slot_, replay_rows_;  // [seqs]
    std::vector<std::uint8_t> commit_;                                             // [seqs]
    std::vector<std::int32_t> block_table_;     // [seqs, blocks_per_seq]
    std::vector<std::int32_t> blocks_written_;  // [seqs] entries of each table row that are not -1
    std::vector<std::int32_t> logit_row_;       // [logit_rows]
    std::vector<kernels::SamplingRow> sampling_;  // [logit_rows]
};

}  // namespace replica

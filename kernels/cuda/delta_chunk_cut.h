// How a step's long sequences are cut: into chunks of rows, and chunks into launches. Host and
// device; tested without a GPU.
//
//     sequence a   │chunk│chunk│chunk│chunk│     64 rows each, the last may be shorter
//     sequence b   │chunk│chunk│
//     launches     └ kChunkSlots chunks ┘└ the next ┘..
//
// Chunks count from a sequence's first row in the step, so a prompt has the same bits however it is
// cut into steps, as long as it is cut at multiples of 64 rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace kernels::cuda {

inline constexpr int kChunkRows = 64;
inline constexpr int kChunkSlots = 16;  // chunks of a launch

/// Chunks of one sequence that follow each other, in slots that do.
struct ChunkPiece {
    std::int32_t seq;
    std::int32_t first_row;  // of the sequence in the step
    std::int32_t first_slot;
    std::int32_t chunks;
    std::int32_t is_last;  // 1: the sequence ends with it
};

/// What a launch works on. A sequence has one piece at most.
struct ChunkBatch {
    std::int32_t slots = 0;
    std::int32_t pieces = 0;
    ChunkPiece piece[kChunkSlots] = {};
};

/// Walks over the sequences of more than `rows_above` rows.
class ChunkWalk {
public:
    /// `row_begin` has an entry more than there are sequences; `slots` of a launch, 1 to
    /// kChunkSlots.
    ChunkWalk(std::span<const std::int32_t> row_begin, std::int32_t rows_above, std::int32_t slots)
        : row_begin_(row_begin), rows_above_(rows_above), slots_(slots) {}

    /// The next launch; false when nothing is left.
    bool next(ChunkBatch& batch) {
        batch = {};
        for (; seq_ + 1 < static_cast<std::int32_t>(row_begin_.size()); ++seq_, row_ = 0) {
            const auto s = static_cast<std::size_t>(seq_);
            const std::int32_t rows = row_begin_[s + 1] - row_begin_[s];
            if (rows <= rows_above_) continue;
            if (batch.slots == slots_) return true;
            const std::int32_t left = (rows - row_ + kChunkRows - 1) / kChunkRows;
            const std::int32_t taken = std::min(left, slots_ - batch.slots);
            batch.piece[batch.pieces++] = {.seq = seq_,
                                           .first_row = row_,
                                           .first_slot = batch.slots,
                                           .chunks = taken,
                                           .is_last = taken == left ? 1 : 0};
            batch.slots += taken;
            if (taken < left) {
                row_ += taken * kChunkRows;
                return true;
            }
        }
        return batch.slots > 0;
    }

private:
    std::span<const std::int32_t> row_begin_;
    std::int32_t rows_above_, slots_;
    std::int32_t seq_ = 0;
    std::int32_t row_ = 0;  // of the sequence: what is in front has been given out
};

}  // namespace kernels::cuda

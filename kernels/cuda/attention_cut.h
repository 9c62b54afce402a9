// How attention over few rows is cut over blocks; host and device.
//
//     tokens of a sequence   │unit 0│unit 1│ ... │unit 15│unit 16│ ...      128 tokens each, by
//                            └───────── group 0 ─────────┘└─ group 1 ..      position alone
//     all units in order     sequence, KV head, chunk of columns, unit
//     blocks                 └ block 0 ┘└ block 1 ┘└ block 2 ┘ ...           equal runs, to one
//     unit
//
// A unit is attended to by itself; units of a group are folded from left to right, then groups.
// That order hangs on positions only, never on the cut, so a row has the same bits alone, in any
// batch, as a single step and among the rows of a verify step.
#pragma once

#include <cstdint>

namespace kernels::cuda {

inline constexpr int kAttentionUnitTokens = 128;
inline constexpr int kAttentionGroupUnits = 16;
inline constexpr int kAttentionColumnsMax = 32;                   // of a chunk: query heads x rows
inline constexpr int kAttentionStepRowsMax = 16;                  // longer sequences are prefill
inline constexpr int kAttentionHeadGroupMax = 16;                 // query heads of a KV head
inline constexpr int kAttentionUnitSlots = kAttentionGroupUnits;  // of a block, see below

/// Does a sequence with so many rows in the step take the decode path?
constexpr bool is_attention_step(std::int32_t rows) {
    return rows >= 1 && rows <= kAttentionStepRowsMax;
}

/// What one sequence asks of one KV head.
struct AttentionWork {
    std::int32_t units = 0;   // of each chunk
    std::int32_t groups = 0;  // of each chunk
    std::int32_t chunks = 0;  // of columns; the keys are read once for each
};
constexpr AttentionWork attention_work(std::int32_t rows, std::int32_t kv_len,
                                       std::int32_t heads_of_group) {
    if (!is_attention_step(rows)) return {};
    const std::int32_t units = (kv_len + kAttentionUnitTokens - 1) / kAttentionUnitTokens;
    return {.units = units,
            .groups = (units + kAttentionGroupUnits - 1) / kAttentionGroupUnits,
            .chunks = (rows * heads_of_group + kAttentionColumnsMax - 1) / kAttentionColumnsMax};
}

/// Columns are padded to 8, 16 or 32, each with its own code.
constexpr std::int32_t attention_column_tiles(std::int32_t columns) {
    if (columns <= 8) return 1;
    return columns <= 16 ? 2 : 4;
}

/// Runs of units. No block of the cut is empty.
///
/// What a block leaves for others: from a group that it enters in the middle each of its units, at
/// most 15, in its slots 0..14; of a group whose start it has and whose end it has not, the fold so
/// far, in its slot 15. The last block to arrive at a group folds these, in order.
struct AttentionCut {
    std::int32_t units;
    std::int32_t blocks;  // at most `units`

    constexpr std::int32_t begin(std::int32_t block) const {
        return static_cast<std::int32_t>(std::int64_t{block} * units / blocks);
    }
    constexpr std::int32_t block_of(std::int32_t unit) const {
        return static_cast<std::int32_t>(((std::int64_t{unit} + 1) * blocks - 1) / units);
    }
};
constexpr AttentionCut attention_cut(std::int32_t units, std::int32_t grid) {
    return {.units = units, .blocks = units < grid ? units : grid};
}

// -- memory --

/// Shared memory of a block: halves of units in a ring, queries, probabilities, maxima and sums of
/// the warps, a head for each warp.
constexpr std::int32_t attention_ring_halves(std::int32_t head_dim) {
    return head_dim > 128 ? 3 : 6;
}
constexpr std::int32_t attention_shared_bytes(std::int32_t head_dim) {
    constexpr std::int32_t kColumns = kAttentionColumnsMax;
    return attention_ring_halves(head_dim) * kAttentionUnitTokens * 2 * head_dim +
           kColumns * 2 * head_dim + kColumns / 8 * kAttentionUnitTokens * 16 +
           2 * 8 * kColumns * 4 + 8 * head_dim * 4;
}

/// A slot: f32 outputs and, per column, maximum and sum, in the order of the kernel's registers.
constexpr std::int64_t attention_slot_floats(std::int32_t head_dim, std::int32_t column_tiles) {
    const std::int64_t row_tiles = head_dim > 128 ? 2 : 1;
    return row_tiles * column_tiles * 1024 + std::int64_t{column_tiles} * 128;
}
/// Reserved once: every block's slots at their largest, and as much again for results of groups.
constexpr std::int64_t attention_parts_floats(std::int32_t blocks) {
    return 2 * std::int64_t{blocks} * kAttentionUnitSlots * attention_slot_floats(256, 4);
}
/// Results of groups that find room in `floats` beside the blocks' slots. A step with more groups
/// gives whole (sequence, KV head) pairs to blocks: the bits are the same, the balance is worse.
constexpr std::int64_t attention_group_slots(std::int64_t floats, std::int32_t blocks,
                                             std::int64_t slot_floats) {
    constexpr std::int64_t kMost = 1 << 14;  // arrivals are counted for so many
    const std::int64_t fit = floats / slot_floats - std::int64_t{blocks} * kAttentionUnitSlots;
    return fit < kMost ? fit : kMost;
}
// -- longer sequences: attention_prefill --

inline constexpr int kPrefillColumns = 128;  // of a block: query heads of a KV head x rows
inline constexpr int kPrefillTokens = 64;    // of K or V at a time
inline constexpr int kPrefillRing = 4;       // of those under way

/// Blocks that a sequence asks of one KV head.
constexpr std::int32_t attention_prefill_tiles(std::int32_t rows, std::int32_t heads_of_group) {
    if (rows <= kAttentionStepRowsMax) return 0;
    return static_cast<std::int32_t>((std::int64_t{rows} * heads_of_group + kPrefillColumns - 1) /
                                     kPrefillColumns);
}
/// Queries, ring, a head in f32 for each of 8 warps, barriers; what aligning to 1024 may cost.
constexpr std::int32_t attention_prefill_shared_bytes(std::int32_t head_dim) {
    return kPrefillColumns * 2 * head_dim + kPrefillRing * kPrefillTokens * 2 * head_dim +
           8 * 4 * head_dim + 2 * 8 * kPrefillRing + 1024;
}

inline constexpr std::int64_t kAttentionArrivals = 2 * 8 * (1 << 14);  // groups, sequences; warps

}  // namespace kernels::cuda

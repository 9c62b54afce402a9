// How attention over few rows is cut over blocks; host and device.
//
//     tokens of a sequence   │unit│unit│unit│unit│ ...     128 tokens each, by position alone
//                            └────── quad ───────┘ ...     16 quads are a group
//     items of a step        sequence, KV head, chunk of columns, unit or quad
//     blocks                 └ block 0 ┘└ block 1 ┘ ...     equal runs, to one item
//
// A unit is attended to by itself; units of a quad are folded from left to right, then quads of a
// group, then groups. That order hangs on positions only, never on the cut, so a row has the same
// bits alone, in any batch, as a single step and among the rows of a verify step.
//
// Items are quads where these balance, since a block then leaves one part for four units; with
// little work they are units, so that more blocks have some.
#pragma once

#include <cstdint>

namespace kernels::cuda {

inline constexpr int kAttentionUnitTokens = 128;
inline constexpr int kAttentionQuadUnits = 4;
inline constexpr int kAttentionGroupQuads = 16;
inline constexpr int kAttentionGroupUnits = kAttentionGroupQuads * kAttentionQuadUnits;
inline constexpr int kAttentionColumnsMax = 32;    // of a chunk: query heads x rows
inline constexpr int kAttentionStepRowsMax = 16;   // longer sequences are prefill
inline constexpr int kAttentionHeadGroupMax = 16;  // query heads of a KV head

/// Does a sequence with so many rows in the step take the decode path?
constexpr bool is_attention_step(std::int32_t rows) {
    return rows >= 1 && rows <= kAttentionStepRowsMax;
}

/// What one sequence asks of one KV head.
struct AttentionWork {
    std::int32_t units = 0;   // of each chunk
    std::int32_t chunks = 0;  // of columns; the keys are read once for each

    constexpr std::int32_t items(std::int32_t grain) const { return (units + grain - 1) / grain; }
    constexpr std::int32_t groups() const { return items(kAttentionGroupUnits); }
};
constexpr AttentionWork attention_work(std::int32_t rows, std::int32_t kv_len,
                                       std::int32_t heads_of_group) {
    if (!is_attention_step(rows)) return {};
    return {.units = (kv_len + kAttentionUnitTokens - 1) / kAttentionUnitTokens,
            .chunks = (rows * heads_of_group + kAttentionColumnsMax - 1) / kAttentionColumnsMax};
}

/// Columns are padded to 8, 16 or 32, each with its own code.
constexpr std::int32_t attention_column_tiles(std::int32_t columns) {
    if (columns <= 8) return 1;
    return columns <= 16 ? 2 : 4;
}

/// Parts that a block can leave of one group, by the widest sequence of the step.
constexpr std::int32_t attention_region_slots(std::int32_t column_tiles) {
    return column_tiles == 4 ? kAttentionGroupQuads : 2 * kAttentionGroupQuads;
}

/// Units of an item: those of a quad, unless single ones make the longest run shorter by more than
/// the one unit that their many parts cost.
constexpr std::int32_t attention_grain(std::int32_t units, std::int32_t quads, std::int32_t grid,
                                       std::int32_t region_slots) {
    const std::int32_t run_of_units = (units + grid - 1) / grid;
    const std::int32_t run_of_quads = kAttentionQuadUnits * ((quads + grid - 1) / grid);
    const bool takes_quads = run_of_units > region_slots || run_of_quads <= run_of_units + 1;
    return takes_quads ? kAttentionQuadUnits : 1;
}

/// Runs of items. No block of the cut is empty. Without 64-bit division: every block computes this.
struct AttentionCut {
    std::int32_t blocks;  // at most the items
    std::int32_t each;    // items of a block
    std::int32_t longer;  // the first blocks, which have one more

    constexpr std::int32_t begin(std::int32_t block) const {
        return block * each + (block < longer ? block : longer);
    }
    constexpr std::int32_t block_of(std::int32_t item) const {
        const std::int32_t edge = longer * (each + 1);
        return item < edge ? item / (each + 1) : longer + (item - edge) / each;
    }
};
constexpr AttentionCut attention_cut(std::int32_t items, std::int32_t grid) {
    const std::int32_t blocks = items < grid ? items : grid;
    if (blocks == 0) return {};
    return {.blocks = blocks, .each = items / blocks, .longer = items % blocks};
}

/// Items of a group, whose parts the last block to arrive folds.
struct AttentionItems {
    std::int32_t begin, end;
};

/// Where a part lies among its block's slots. Of a group that the block enters in the middle in
/// the first region, of others in the second: those are over before the next begins, all but the
/// last.
struct AttentionPartPlace {
    std::int32_t block, slot;
};
constexpr AttentionPartPlace attention_part_place(std::int32_t item, std::int32_t block,
                                                  std::int32_t run_begin, AttentionItems group,
                                                  std::int32_t region_slots) {
    if (group.begin < run_begin) return {block, item - run_begin};
    return {block, region_slots + item - group.begin};
}

// -- memory --

/// A row of binary16 in shared memory: eight of them begin in different banks.
constexpr std::int32_t attention_row_bytes(std::int32_t head_dim) {
    return 2 * head_dim + 16;
}
inline constexpr std::int32_t kAttentionRunBytes = 384;
/// Shared memory of a block: halves of units in a ring, queries, probabilities (before them a head
/// in f32 for each warp), maxima and sums of the warps, barriers, what the block knows of its run.
constexpr std::int32_t attention_ring_halves(std::int32_t head_dim) {
    return head_dim > 128 ? 3 : 6;
}
constexpr std::int32_t attention_shared_bytes(std::int32_t head_dim) {
    constexpr std::int32_t kColumns = kAttentionColumnsMax;
    return (attention_ring_halves(head_dim) * kAttentionUnitTokens + kColumns) *
               attention_row_bytes(head_dim) +
           kColumns / 8 * kAttentionUnitTokens * 16 + 2 * 8 * kColumns * 4 +
           8 * attention_ring_halves(head_dim) + kAttentionRunBytes;
}

/// A slot: f32 outputs and, per column, maximum and sum, in the order of the kernel's registers.
constexpr std::int64_t attention_slot_floats(std::int32_t head_dim, std::int32_t column_tiles) {
    const std::int64_t row_tiles = head_dim > 128 ? 2 : 1;
    return row_tiles * column_tiles * 1024 + std::int64_t{column_tiles} * 128;
}
/// Slots of a block: two regions.
constexpr std::int32_t attention_block_slots(std::int32_t column_tiles) {
    return 2 * attention_region_slots(column_tiles);
}
/// Reserved once: every block's slots at their largest, and a quarter of that for results of
/// groups.
constexpr std::int64_t attention_parts_floats(std::int32_t blocks) {
    const std::int64_t floats = blocks * attention_block_slots(4) * attention_slot_floats(256, 4);
    return floats + floats / 4;
}
/// Results of groups that find room in `floats` beside the blocks' slots. A step with more groups
/// gives whole (sequence, KV head, chunk) to blocks: the bits are the same, the balance is worse.
constexpr std::int64_t attention_group_slots(std::int64_t floats, std::int32_t blocks,
                                             std::int32_t head_dim, std::int32_t column_tiles) {
    constexpr std::int64_t kMost = 1 << 14;  // arrivals are counted for so many
    const std::int64_t fit = floats / attention_slot_floats(head_dim, column_tiles) -
                             std::int64_t{blocks} * attention_block_slots(column_tiles);
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

// How attention over few rows is cut: every unit once, no block without work, slots that suffice,
// and an order of folding that hangs on positions alone.
#include "kernels/cuda/attention_cut.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace kernels::cuda {
namespace {

TEST(AttentionCutTest, EveryUnitBelongsToOneBlockAndNoBlockIsEmpty) {
    for (const std::int32_t units : {1, 2, 31, 131, 132, 133, 264, 1000, 4096, 1'048'576})
        for (const std::int32_t grid : {1, 7, 132}) {
            const AttentionCut cut = attention_cut(units, grid);
            ASSERT_EQ(cut.begin(0), 0);
            ASSERT_EQ(cut.begin(cut.blocks), units);
            for (std::int32_t block = 0; block < cut.blocks; ++block) {
                ASSERT_LT(cut.begin(block), cut.begin(block + 1)) << units << " over " << grid;
                ASSERT_EQ(cut.block_of(cut.begin(block)), block);
                ASSERT_EQ(cut.block_of(cut.begin(block + 1) - 1), block);
            }
        }
}

TEST(AttentionCutTest, RunsDifferByAtMostOneUnit) {
    const AttentionCut cut = attention_cut(1000, 132);
    std::int32_t least = 1000;
    std::int32_t most = 0;
    for (std::int32_t block = 0; block < cut.blocks; ++block) {
        const std::int32_t run = cut.begin(block + 1) - cut.begin(block);
        least = std::min(least, run);
        most = std::max(most, run);
    }
    EXPECT_LE(most - least, 1);
}

TEST(AttentionCutTest, ItemsAreQuadsWhereTheseBalanceAndUnitsElse) {
    const auto grain = [](std::int32_t units_of_a_head) {
        return attention_grain(4 * units_of_a_head, 4 * ((units_of_a_head + 3) / 4), 132, 32);
    };
    EXPECT_EQ(grain(8), 1) << "1K tokens: 32 blocks have work instead of 8";
    EXPECT_EQ(grain(64), 1) << "8K: runs of 2 units instead of 4";
    EXPECT_EQ(grain(128), 4) << "16K: runs of 4 units either way";
    EXPECT_EQ(grain(160), 1) << "20K: runs of 5 units instead of 8";
    EXPECT_EQ(grain(1024), 4) << "128K";
    EXPECT_EQ(grain(2047), 4) << "single units would not find room";
}

TEST(AttentionCutTest, PartsOfARunLieApartFromEachOther) {
    for (const std::int32_t tiles : {1, 4})
        for (const std::int32_t units : {5, 64, 65, 128, 200, 1000, 2047})
            for (const std::int32_t heads : {1, 4, 32}) {
                const std::int32_t region = attention_region_slots(tiles);
                const std::int32_t quads = (units + 3) / 4;
                const std::int32_t grain =
                    attention_grain(units * heads, quads * heads, 132, region);
                const std::int32_t items = grain == 1 ? units : quads;
                const AttentionCut cut = attention_cut(items * heads, 132);
                const std::int32_t size = kAttentionGroupUnits / grain;
                for (std::int32_t block = 0; block < cut.blocks; ++block) {
                    std::vector<AttentionItems> group_in_slot(
                        static_cast<std::size_t>(attention_block_slots(tiles)),
                        AttentionItems{-1, -1});
                    for (std::int32_t i = cut.begin(block); i < cut.begin(block + 1); ++i) {
                        const std::int32_t first = i / items * items;
                        const std::int32_t begin = first + (i - first) / size * size;
                        const AttentionItems group{begin, std::min(begin + size, first + items)};
                        const AttentionPartPlace place =
                            attention_part_place(i, block, cut.begin(block), group, region);
                        ASSERT_LT(place.slot, attention_block_slots(tiles));
                        AttentionItems& held = group_in_slot[static_cast<std::size_t>(place.slot)];
                        // Only a group that lies in the run may be written over, once it is over.
                        ASSERT_TRUE(held.begin < 0 ||
                                    (held.begin >= cut.begin(block) && held.end <= group.begin))
                            << units << " x " << heads << ", item " << i;
                        held = group;
                    }
                }
            }
}

TEST(AttentionCutTest, WorkFollowsFromTheSequenceAlone) {
    const AttentionWork one = attention_work(1, 129, 6);
    EXPECT_EQ(one.units, 2);
    EXPECT_EQ(one.groups(), 1);
    EXPECT_EQ(one.items(kAttentionQuadUnits), 1);
    EXPECT_EQ(one.chunks, 1);
    const AttentionWork verify = attention_work(5, 8193, 6);
    EXPECT_EQ(verify.units, 65);
    EXPECT_EQ(verify.groups(), 2);
    EXPECT_EQ(verify.chunks, 1) << "30 columns share one reading of the keys";
    EXPECT_EQ(attention_work(16, 100, 16).chunks, 8);
    EXPECT_EQ(attention_work(0, 100, 6).units, 0) << "a sequence that only replays";
    EXPECT_EQ(attention_work(17, 100, 6).units, 0) << "a prefill chunk takes the other path";
}

TEST(AttentionCutTest, LongerSequencesAreCutByColumns) {
    EXPECT_EQ(attention_prefill_tiles(16, 6), 0) << "the step's path";
    EXPECT_EQ(attention_prefill_tiles(17, 6), 1);
    EXPECT_EQ(attention_prefill_tiles(22, 6), 2);
    EXPECT_EQ(attention_prefill_tiles(4096, 6), 192);
    EXPECT_EQ(attention_prefill_tiles(128, 1), 1);
}

TEST(AttentionCutTest, ColumnsArePaddedToTheirCode) {
    EXPECT_EQ(attention_column_tiles(1), 1);
    EXPECT_EQ(attention_column_tiles(8), 1);
    EXPECT_EQ(attention_column_tiles(9), 2);
    EXPECT_EQ(attention_column_tiles(17), 4);
    EXPECT_EQ(attention_column_tiles(32), 4);
}

TEST(AttentionCutTest, ScratchHoldsAllSlotsOfAllBlocksAtEverySize) {
    for (const std::int32_t blocks : {1, 80, 132})
        for (const std::int32_t head_dim : {64, 128, 256})
            for (const std::int32_t tiles : {1, 2, 4}) {
                const std::int64_t slot = attention_slot_floats(head_dim, tiles);
                const std::int64_t groups =
                    attention_group_slots(attention_parts_floats(blocks), blocks, head_dim, tiles);
                EXPECT_GT(groups, 0);
                EXPECT_LE((std::int64_t{blocks} * attention_block_slots(tiles) + groups) * slot,
                          attention_parts_floats(blocks));
                EXPECT_LE(2 * 8 * groups, kAttentionArrivals);
                EXPECT_EQ(slot % 4, 0) << "slots are read by 16 bytes";
            }
}

TEST(AttentionCutTest, SharedMemoryOfABlockFitsTheCard) {
    constexpr std::int32_t kSharedBytesH200 = 227 * 1024;
    for (const std::int32_t head_dim : {64, 128, 256}) {
        EXPECT_LE(attention_shared_bytes(head_dim), kSharedBytesH200);
        EXPECT_LE(attention_prefill_shared_bytes(head_dim), kSharedBytesH200);
    }
}

}  // namespace
}  // namespace kernels::cuda

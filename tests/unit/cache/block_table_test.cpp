// BlockTable: growing is all or nothing, and whatever many tables do, each block has one owner.
#include "replica/cache/block_table.h"

#include <array>
#include <random>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace replica {
namespace {

using testing::ElementsAre;

TEST(BlockTableTest, GrowsByTheBlocksItLacks) {
    BlockPool pool({.block_count = 4, .block_tokens = 16});
    BlockTable table;
    EXPECT_TRUE(table.grow_to(16, pool));
    EXPECT_THAT(table.blocks(), ElementsAre(0));
    EXPECT_TRUE(table.grow_to(10, pool));
    EXPECT_THAT(table.blocks(), ElementsAre(0));
    EXPECT_TRUE(table.grow_to(33, pool));
    EXPECT_THAT(table.blocks(), ElementsAre(0, 1, 2));
    table.release_all(pool);
    EXPECT_EQ(pool.free_count(), 4);
}

TEST(BlockTableTest, TakesNothingWhenNotAllBlocksAreThere) {
    BlockPool pool({.block_count = 2, .block_tokens = 16});
    BlockTable table;
    EXPECT_FALSE(table.grow_to(33, pool));
    EXPECT_EQ(table.size(), 0);
    EXPECT_EQ(pool.free_count(), 2);
}

TEST(BlockTableTest, AMovedFromTableHoldsNothing) {
    BlockPool pool({.block_count = 2, .block_tokens = 16});
    BlockTable table;
    ASSERT_TRUE(table.grow_to(32, pool));
    BlockTable moved(std::move(table));
    EXPECT_EQ(table.size(), 0);  // NOLINT(bugprone-use-after-move): that is the claim
    EXPECT_EQ(moved.size(), 2);
    moved.release_all(pool);
}

TEST(BlockTableTest, NoBlockHasTwoOwnersOverRandomOperations) {
    for (const std::uint32_t seed : {4U, 5U}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        std::mt19937 random(seed);
        BlockPool pool({.block_count = 30, .block_tokens = 8});
        std::array<BlockTable, 6> tables;
        for (int i = 0; i < 5000; ++i) {
            BlockTable& table = tables[random() % tables.size()];
            if (random() % 4 == 0) {
                table.release_all(pool);
            } else {
                const auto tokens = static_cast<std::int32_t>(random() % 120);
                const bool fits = blocks_for(tokens, 8) - table.size() <= pool.free_count();
                ASSERT_EQ(table.grow_to(tokens, pool), fits);
            }
            std::set<BlockId> owned;
            std::size_t held = 0;
            for (const BlockTable& each : tables) {
                owned.insert(each.blocks().begin(), each.blocks().end());
                held += each.blocks().size();
            }
            ASSERT_EQ(owned.size(), held);
            ASSERT_EQ(held + static_cast<std::size_t>(pool.free_count()), 30U);
        }
        for (BlockTable& table : tables)
            table.release_all(pool);
    }
}

TEST(BlockTableDeathTest, DyingWithBlocksIsOurMistake) {
    EXPECT_DEATH(
        {
            BlockPool pool({.block_count = 2, .block_tokens = 16});
            BlockTable table;
            (void)table.grow_to(1, pool);
        },
        "released before");
}

}  // namespace
}  // namespace replica

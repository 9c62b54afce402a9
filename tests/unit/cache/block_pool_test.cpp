// BlockPool: one taken block, and long random sequences of operations against a plain model.
#include "replica/cache/block_pool.h"

#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace replica {
namespace {

TEST(BlockPoolTest, HandsOutEachBlockOnceAndThenNothing) {
    BlockPool pool({.block_count = 3, .block_tokens = 16});
    std::set<BlockId> taken;
    while (const auto block = pool.take())
        taken.insert(*block);
    EXPECT_EQ(taken, (std::set<BlockId>{0, 1, 2}));
    EXPECT_EQ(pool.free_count(), 0);
}

TEST(BlockPoolTest, AReleasedBlockIsTakenNext) {
    BlockPool pool({.block_count = 3, .block_tokens = 16});
    const BlockId first = pool.take().value();
    (void)pool.take();
    pool.release(first);
    EXPECT_EQ(pool.take(), first);
}

TEST(BlockPoolTest, ASharedBlockIsFreeAfterItsLastReference) {
    BlockPool pool({.block_count = 1, .block_tokens = 16});
    const BlockId block = pool.take().value();
    pool.share(block);
    pool.release(block);
    EXPECT_EQ(pool.free_count(), 0);
    EXPECT_EQ(pool.references(block), 1);
    pool.release(block);
    EXPECT_EQ(pool.free_count(), 1);
}

TEST(BlockPoolTest, CountsTheBlocksThatTokensFill) {
    EXPECT_EQ(blocks_for(0, 16), 0);
    EXPECT_EQ(blocks_for(1, 16), 1);
    EXPECT_EQ(blocks_for(16, 16), 1);
    EXPECT_EQ(blocks_for(17, 16), 2);
}

TEST(BlockPoolTest, StaysConsistentOverRandomOperations) {
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        std::mt19937 random(seed);
        BlockPool pool({.block_count = 20, .block_tokens = 4});
        std::map<BlockId, int> model;  // references of taken blocks
        const auto any_taken = [&] {
            auto entry = model.begin();
            std::advance(entry, random() % model.size());
            return entry;
        };
        for (int i = 0; i < 20000; ++i) {
            const auto action = random() % 3;
            if (action == 0) {
                const auto block = pool.take();
                ASSERT_EQ(block.has_value(), model.size() < 20);
                if (block) {
                    ASSERT_TRUE(model.emplace(*block, 1).second) << "given out twice";
                }
            } else if (!model.empty() && action == 1) {
                const auto entry = any_taken();
                pool.share(entry->first);
                ++entry->second;
            } else if (!model.empty()) {
                const auto entry = any_taken();
                pool.release(entry->first);
                if (--entry->second == 0) model.erase(entry);
            }
            ASSERT_EQ(static_cast<std::size_t>(pool.free_count()), 20 - model.size());
        }
    }
}

TEST(BlockPoolDeathTest, ReleasingAFreeBlockIsOurMistake) {
    BlockPool pool({.block_count = 2, .block_tokens = 16});
    const BlockId block = pool.take().value();
    pool.release(block);
    EXPECT_DEATH(pool.release(block), "once per reference");
}

TEST(BlockPoolDeathTest, SharingAFreeBlockIsOurMistake) {
    BlockPool pool({.block_count = 2, .block_tokens = 16});
    EXPECT_DEATH(pool.share(0), "taken block");
}

TEST(BlockPoolDeathTest, ABlockOutsideThePoolIsOurMistake) {
    BlockPool pool({.block_count = 2, .block_tokens = 16});
    EXPECT_DEATH(pool.release(2), "inside the pool");
    EXPECT_DEATH(pool.release(-1), "inside the pool");
}

TEST(BlockPoolTest, ABlockThatOnlyTheCacheHoldsIsEvictableUntilItIsDropped) {
    BlockPool pool({.block_count = 2, .block_tokens = 4});
    const BlockId block = pool.take().value();
    pool.hold(block);
    pool.hold(block);
    EXPECT_EQ(pool.evictable_count(), 0);
    pool.release(block);
    EXPECT_EQ(pool.evictable_count(), 1);
    EXPECT_EQ(pool.free_count(), 1);
    EXPECT_EQ(pool.available_count(), 2);
    pool.share(block);
    EXPECT_EQ(pool.evictable_count(), 0);
    pool.drop(block);
    pool.release(block);
    EXPECT_EQ(pool.evictable_count(), 1);
    pool.drop(block);
    EXPECT_EQ(pool.evictable_count(), 0);
    EXPECT_EQ(pool.free_count(), 2);
}

}  // namespace
}  // namespace replica

// The prefix cache as a data structure: what is found again, what is given up, and that no block is
// lost or doubled on the way.
#include "replica/cache/prefix_cache.h"

#include <map>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/cache/block_table.h"

namespace replica {
namespace {

using testing::ElementsAre;
using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kPage = 4;

Tokens tokens_from(std::int32_t first, std::int32_t count) {
    Tokens tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

Tokens join(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// A pool with a cache on it, and sequences that come, compute and go.
class PrefixCacheTest : public testing::Test {
protected:
    void make(PrefixCacheShape shape, std::int32_t blocks = 32) {
        pool_.emplace(BlockPoolShape{.block_count = blocks, .block_tokens = kPage});
        cache_.emplace(*pool_, shape);
    }
    void TearDown() override {
        cache_.reset();
        if (!pool_) return;
        EXPECT_EQ(pool_->free_count(), pool_->block_count()) << "a block is lost";
    }

    /// A sequence computes `tokens`, leaves a checkpoint (or its pages), and ends.
    std::optional<SnapshotId> leave(const Tokens& tokens, const std::string& salt = "") {
        BlockTable table;
        const auto count = static_cast<std::int32_t>(tokens.size());
        EXPECT_TRUE(cache_->make_room(blocks_for(count, kPage)));
        EXPECT_TRUE(table.grow_to(count, *pool_));
        const CachedText text{.salt = salt, .tokens = tokens, .blocks = table.blocks()};
        std::optional<SnapshotId> snapshot;
        if (is_recurrent_) {
            snapshot = cache_->insert_checkpoint(text);
        } else {
            cache_->insert(text);
        }
        table.release_all(*pool_);
        return snapshot;
    }
    PrefixCache::Match find(const Tokens& tokens, const std::string& salt = "") const {
        return cache_->find(salt, tokens, static_cast<std::int32_t>(tokens.size()));
    }

    bool is_recurrent_ = true;
    std::optional<BlockPool> pool_;
    std::optional<PrefixCache> cache_;
};

TEST_F(PrefixCacheTest, FindsNothingInTheBeginning) {
    make({.has_recurrent_state = true, .snapshots = 4});
    EXPECT_EQ(find(tokens_from(0, 20)).tokens, 0);
}

TEST_F(PrefixCacheTest, ResumesAtTheCheckpointAndNowhereElse) {
    make({.has_recurrent_state = true, .snapshots = 4});
    const auto snapshot = leave(tokens_from(0, 10));
    ASSERT_TRUE(snapshot.has_value());
    EXPECT_EQ(find(tokens_from(0, 20)).tokens, 10);
    EXPECT_EQ(find(tokens_from(0, 20)).snapshot, *snapshot);
    EXPECT_NE(find(tokens_from(0, 20)).tail, kNoBlock) << "two tokens lie on a page in part";
    EXPECT_EQ(find(tokens_from(0, 9)).tokens, 0);
    EXPECT_EQ(find(join(tokens_from(0, 9), {77, 78})).tokens, 0);
    EXPECT_EQ(find(tokens_from(1, 20)).tokens, 0);
}

TEST_F(PrefixCacheTest, TheLimitBoundsWhatIsFound) {
    make({.has_recurrent_state = true, .snapshots = 4});
    leave(tokens_from(0, 8));
    leave(tokens_from(0, 10));
    const Tokens text = tokens_from(0, 10);
    EXPECT_EQ(cache_->find("", text, 10).tokens, 10);
    EXPECT_EQ(cache_->find("", text, 9).tokens, 8);
    EXPECT_EQ(cache_->find("", text, 7).tokens, 0);
    EXPECT_EQ(cache_->find("", text, 0).tokens, 0);
}

TEST_F(PrefixCacheTest, TheDeepestOfSeveralCheckpointsWins) {
    make({.has_recurrent_state = true, .snapshots = 8});
    leave(tokens_from(0, 5));
    leave(tokens_from(0, 7));
    leave(tokens_from(0, 8));
    leave(tokens_from(0, 15));
    EXPECT_EQ(find(tokens_from(0, 6)).tokens, 5);
    EXPECT_EQ(find(tokens_from(0, 7)).tokens, 7);
    EXPECT_EQ(find(tokens_from(0, 12)).tokens, 8);
    EXPECT_EQ(find(tokens_from(0, 12)).tail, kNoBlock) << "whole pages are shared as they are";
    EXPECT_EQ(find(tokens_from(0, 40)).tokens, 15);
}

TEST_F(PrefixCacheTest, UseGivesTheWholePagesInOrder) {
    make({.has_recurrent_state = true, .snapshots = 4});
    BlockTable table;
    ASSERT_TRUE(table.grow_to(11, *pool_));
    const Tokens tokens = tokens_from(0, 11);
    cache_->insert_checkpoint({.salt = "", .tokens = tokens, .blocks = table.blocks()});
    std::vector<BlockId> blocks;
    const PrefixCache::Match match = find(tokens_from(0, 30));
    cache_->use(match, blocks);
    EXPECT_THAT(blocks, ElementsAre(table.blocks()[0], table.blocks()[1]));
    EXPECT_EQ(match.tail, table.blocks()[2]);
    EXPECT_EQ(match.blocks_in_use, 2);
    table.release_all(*pool_);
    EXPECT_EQ(find(tokens_from(0, 30)).blocks_in_use, 0);
}

TEST_F(PrefixCacheTest, SaltsShareNothing) {
    make({.has_recurrent_state = true, .snapshots = 4});
    leave(tokens_from(0, 10), "a");
    EXPECT_EQ(find(tokens_from(0, 20), "a").tokens, 10);
    EXPECT_EQ(find(tokens_from(0, 20), "b").tokens, 0);
    EXPECT_EQ(find(tokens_from(0, 20)).tokens, 0);
}

TEST_F(PrefixCacheTest, ACheckpointThatIsThereIsNotMadeAgain) {
    make({.has_recurrent_state = true, .snapshots = 4});
    EXPECT_TRUE(leave(tokens_from(0, 10)).has_value());
    EXPECT_FALSE(leave(tokens_from(0, 10)).has_value());
    EXPECT_EQ(cache_->checkpoints(), 1);
    EXPECT_EQ(cache_->created_total(), 1U);
}

TEST_F(PrefixCacheTest, WithoutAPlaceForStatesNothingIsKept) {
    make({.has_recurrent_state = true, .snapshots = 0});
    EXPECT_FALSE(leave(tokens_from(0, 10)).has_value());
    EXPECT_EQ(cache_->entries(), 0);
}

TEST_F(PrefixCacheTest, TheCheckpointUnusedForLongestGivesItsPlace) {
    make({.has_recurrent_state = true, .snapshots = 2});
    leave(tokens_from(0, 8));
    leave(tokens_from(100, 8));
    std::vector<BlockId> blocks;
    cache_->use(find(tokens_from(0, 8)), blocks);
    leave(tokens_from(200, 8));
    EXPECT_EQ(find(tokens_from(0, 8)).tokens, 8);
    EXPECT_EQ(find(tokens_from(100, 8)).tokens, 0);
    EXPECT_EQ(find(tokens_from(200, 8)).tokens, 8);
    EXPECT_EQ(cache_->evicted_total(), 1U);
    EXPECT_EQ(cache_->entries(), 4) << "pages below which no checkpoint is left are given up";
}

TEST_F(PrefixCacheTest, ACheckpointOnTheWayStaysWhenADeeperOneIsUsed) {
    make({.has_recurrent_state = true, .snapshots = 2});
    leave(tokens_from(0, 8));
    leave(tokens_from(0, 16));
    leave(tokens_from(200, 8));  // takes the place of the leaf: it is older than its parent
    EXPECT_EQ(find(tokens_from(0, 16)).tokens, 8);
}

TEST_F(PrefixCacheTest, APureAttentionModelResumesAtAnyPage) {
    is_recurrent_ = false;
    make({});
    leave(tokens_from(0, 14));
    EXPECT_EQ(find(tokens_from(0, 20)).tokens, 14);
    EXPECT_EQ(find(tokens_from(0, 13)).tokens, 12);
    EXPECT_EQ(find(tokens_from(0, 7)).tokens, 4);
    EXPECT_EQ(find(join(tokens_from(0, 9), {99, 98, 97})).tokens, 8);
}

TEST_F(PrefixCacheTest, TailsAreBounded) {
    is_recurrent_ = false;
    make({.tails_max = 2});
    for (std::int32_t i = 0; i < 5; ++i)
        leave(tokens_from(100 * i, 3));
    EXPECT_EQ(cache_->entries(), 2);
    EXPECT_EQ(find(tokens_from(400, 3)).tokens, 3);
    EXPECT_EQ(find(tokens_from(0, 3)).tokens, 0);
}

TEST_F(PrefixCacheTest, MakesRoomFromTheOldestLeafOn) {
    is_recurrent_ = false;
    make({}, 6);
    leave(tokens_from(0, 8));
    leave(tokens_from(100, 8));
    EXPECT_EQ(pool_->free_count(), 2);
    EXPECT_EQ(pool_->available_count(), 6);
    EXPECT_TRUE(cache_->make_room(3));
    EXPECT_EQ(find(tokens_from(0, 8)).tokens, 4) << "the leaf goes first";
    EXPECT_TRUE(cache_->make_room(6));
    EXPECT_EQ(cache_->entries(), 0);
    EXPECT_FALSE(cache_->make_room(7));
}

TEST_F(PrefixCacheTest, NeverEvictsWhatASequenceReads) {
    is_recurrent_ = false;
    make({}, 4);
    leave(tokens_from(0, 8));
    std::vector<BlockId> blocks;
    cache_->use(find(tokens_from(0, 8)), blocks);
    BlockTable reader;
    for (const BlockId block : blocks)
        reader.share(block, *pool_);
    EXPECT_EQ(pool_->available_count(), 2);
    EXPECT_FALSE(cache_->make_room(3));
    EXPECT_TRUE(cache_->make_room(2));
    EXPECT_EQ(find(tokens_from(0, 8)).tokens, 8);
    reader.release_all(*pool_);
}

TEST_F(PrefixCacheTest, APageBelowAnotherSequencesPagesDoesNotKeepThem) {
    // Two sequences compute one text at once. The first one's page is kept; the second one goes on
    // and keeps its next page below it, held by the second sequence alone.
    is_recurrent_ = false;
    make({}, 4);
    const Tokens text = tokens_from(0, 8);
    BlockTable first, second;
    ASSERT_TRUE(first.grow_to(4, *pool_));
    ASSERT_TRUE(second.grow_to(8, *pool_));
    cache_->insert({.salt = "", .tokens = tokens_from(0, 4), .blocks = first.blocks()});
    cache_->insert({.salt = "", .tokens = text, .blocks = second.blocks()});
    first.release_all(*pool_);
    EXPECT_EQ(pool_->available_count(), 2);
    EXPECT_TRUE(cache_->make_room(2));
    EXPECT_EQ(pool_->free_count(), 2);
    second.release_all(*pool_);
}

/// Random texts over few tokens, so that they share beginnings; a plain list is the yardstick.
TEST_F(PrefixCacheTest, AgreesWithAListOfTextsUntilSomethingIsEvicted) {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        make({.has_recurrent_state = true, .snapshots = 1000}, 4000);
        std::mt19937 random(seed);
        const auto random_text = [&] {
            Tokens text(1 + random() % 30);
            for (std::int32_t& token : text)
                token = static_cast<std::int32_t>(random() % 2);
            return text;
        };
        std::vector<Tokens> kept;
        for (int i = 0; i < 60; ++i) {
            const Tokens wanted = random_text();
            std::size_t best = 0;
            for (const Tokens& text : kept)
                if (text.size() <= wanted.size() &&
                    std::equal(text.begin(), text.end(), wanted.begin()))
                    best = std::max(best, text.size());
            EXPECT_EQ(find(wanted).tokens, static_cast<std::int32_t>(best));
            kept.push_back(random_text());
            leave(kept.back());
        }
        cache_.reset();
        EXPECT_EQ(pool_->free_count(), pool_->block_count());
    }
}

/// Sequences that resume, write, leave and are evicted under, in a pool that is always too small.
TEST_F(PrefixCacheTest, LosesNoBlockUnderEviction) {
    for (const bool is_recurrent : {true, false}) {
        is_recurrent_ = is_recurrent;
        for (std::uint32_t seed = 1; seed <= 20; ++seed) {
            SCOPED_TRACE(testing::Message() << "seed " << seed << " recurrent " << is_recurrent);
            make({.has_recurrent_state = is_recurrent, .snapshots = 3, .tails_max = 3}, 24);
            std::mt19937 random(seed);
            std::vector<BlockTable> running(3);
            for (int i = 0; i < 300; ++i) {
                Tokens text(1 + random() % 28);
                for (std::int32_t& token : text)
                    token = static_cast<std::int32_t>(random() % 2);
                const auto count = static_cast<std::int32_t>(text.size());
                BlockTable& table = running[random() % running.size()];
                table.release_all(*pool_);
                const PrefixCache::Match match = find(text);
                std::vector<BlockId> blocks;
                if (match.tokens > 0) cache_->use(match, blocks);
                for (const BlockId block : blocks)
                    table.share(block, *pool_);
                if (match.tail != kNoBlock) pool_->share(match.tail);
                const bool has_room = cache_->make_room(blocks_for(count, kPage) - table.size()) &&
                                      table.grow_to(count, *pool_);
                if (match.tail != kNoBlock) pool_->release(match.tail);
                if (!has_room) continue;
                const CachedText left{.salt = "", .tokens = text, .blocks = table.blocks()};
                if (is_recurrent) {
                    cache_->insert_checkpoint(left);
                    EXPECT_LE(cache_->checkpoints(), 3);
                } else {
                    cache_->insert(left);
                }
                EXPECT_EQ(find(text).tokens, count);
            }
            for (BlockTable& table : running)
                table.release_all(*pool_);
            EXPECT_EQ(pool_->available_count(), pool_->block_count());
            cache_.reset();
            EXPECT_EQ(pool_->free_count(), pool_->block_count());
        }
    }
}

}  // namespace
}  // namespace replica

// How long sequences are cut into chunks and launches: every row once, in order, short sequences
// left out, no slot twice, and a sequence's pieces one a launch.
#include "kernels/cuda/delta_chunk_cut.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace kernels::cuda {
namespace {

constexpr std::int32_t kShort = 16;

std::vector<std::int32_t> begins_of(const std::vector<std::int32_t>& lengths) {
    std::vector<std::int32_t> begins = {0};
    for (const std::int32_t length : lengths)
        begins.push_back(begins.back() + length);
    return begins;
}

std::vector<ChunkBatch> batches_of(const std::vector<std::int32_t>& lengths, std::int32_t slots) {
    const std::vector<std::int32_t> begins = begins_of(lengths);
    std::vector<ChunkBatch> batches;
    ChunkWalk walk(begins, kShort, slots);
    ChunkBatch batch;
    while (walk.next(batch))
        batches.push_back(batch);
    return batches;
}

TEST(ChunkWalkTest, AStepWithoutLongSequencesAsksForNoLaunch) {
    EXPECT_TRUE(batches_of({}, 16).empty());
    EXPECT_TRUE(batches_of({1, 16, 0, 5}, 16).empty());
}

TEST(ChunkWalkTest, ALongSequenceSpreadsOverLaunchesAndEndsOnce) {
    const std::vector<ChunkBatch> batches = batches_of({3, 1000}, 6);  // 16 chunks
    ASSERT_EQ(batches.size(), 3U);
    EXPECT_EQ(batches[0].slots, 6);
    EXPECT_EQ(batches[1].piece[0].first_row, 6 * kChunkRows);
    EXPECT_EQ(batches[1].piece[0].is_last, 0);
    EXPECT_EQ(batches[2].slots, 4);
    EXPECT_EQ(batches[2].piece[0].seq, 1);
    EXPECT_EQ(batches[2].piece[0].is_last, 1);
}

TEST(ChunkWalkTest, ALaunchTakesSeveralSequencesAndLeavesTheRestToTheNext) {
    const std::vector<ChunkBatch> batches = batches_of({17, 1, 65, 64, 200}, 4);
    ASSERT_EQ(batches.size(), 2U);
    EXPECT_EQ(batches[0].pieces, 3);
    EXPECT_EQ(batches[0].piece[1].seq, 2);
    EXPECT_EQ(batches[0].piece[1].first_slot, 1);
    EXPECT_EQ(batches[0].piece[1].chunks, 2);
    EXPECT_EQ(batches[1].piece[0].seq, 4);
    EXPECT_EQ(batches[1].piece[0].first_slot, 0);
}

TEST(ChunkWalkTest, EveryRowOfALongSequenceIsInOneChunkAndInOrder) {
    const std::vector<std::int32_t> lengths = {17, 63, 1, 64, 65, 16, 127, 128, 129, 1000, 2, 4096};
    for (std::int32_t slots = 1; slots <= kChunkSlots; ++slots) {
        std::vector<std::int32_t> done(lengths.size(), 0);
        for (const ChunkBatch& batch : batches_of(lengths, slots)) {
            ASSERT_GT(batch.slots, 0);
            ASSERT_LE(batch.slots, slots);
            std::int32_t used = 0;
            std::int32_t seq = -1;
            for (std::int32_t i = 0; i < batch.pieces; ++i) {
                const ChunkPiece& piece = batch.piece[i];
                ASSERT_GT(piece.seq, seq) << "one piece of a sequence";
                seq = piece.seq;
                ASSERT_EQ(piece.first_slot, used);
                used += piece.chunks;
                std::int32_t& rows = done[static_cast<std::size_t>(seq)];
                ASSERT_EQ(piece.first_row, rows);
                rows += piece.chunks * kChunkRows;
                ASSERT_EQ(piece.is_last == 1, rows >= lengths[static_cast<std::size_t>(seq)]);
            }
            ASSERT_EQ(used, batch.slots);
        }
        for (std::size_t s = 0; s < lengths.size(); ++s) {
            const std::int32_t chunks = (lengths[s] + kChunkRows - 1) / kChunkRows;
            ASSERT_EQ(done[s], lengths[s] > kShort ? chunks * kChunkRows : 0) << slots << " slots";
        }
    }
}

}  // namespace
}  // namespace kernels::cuda

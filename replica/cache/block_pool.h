// Numbering of KV pages. A page ("block") holds the keys and values of block_tokens tokens of one
// sequence in every attention layer; the backend owns the memory, this module only who has which
// number.
//
//   pool   0 1 2 3 4 5 ...            free list: 5 4 3 ...   (last in, first out: warm memory)
//   table of A: [2, 0]   tokens 0..15 live in block 2, 16..31 in block 0
//   table of B: [1]
//
// Blocks are counted, not just owned, so that sequences with one prompt can share its blocks. The
// prefix cache counts apart: a block that only the cache holds is *evictable*, still readable and
// as good as free.
//
//            take                 last release, cache holds it
//   free ──────────▶ used ──────────────────────────▶ evictable ──▶ used again (share)
//     ▲               │ last release                     │ last drop
//     └───────────────┴──────────────────────────────────┘
//
// Paging as in Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving",
// section 4.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace replica {

using BlockId = std::int32_t;
inline constexpr BlockId kNoBlock = -1;

struct BlockPoolShape {
    std::int32_t block_count = 0;
    std::int32_t block_tokens = 0;
};

/// Engine thread only. Every operation is O(1) and allocates nothing.
class BlockPool {
public:
    explicit BlockPool(BlockPoolShape shape);

    /// A block with one reference, or nothing when all are taken.
    [[nodiscard]] std::optional<BlockId> take();
    /// One more reference to a block that is not free.
    void share(BlockId block);
    /// Gives one reference back. A block without references may not be released.
    void release(BlockId block);

    /// The cache's references, for the prefix cache alone: as share and release.
    void hold(BlockId block);
    void drop(BlockId block);

    /// Of sequences; the cache's are not counted.
    std::int32_t references(BlockId block) const;
    std::span<const std::int32_t> references() const { return references_; }
    std::int32_t free_count() const { return static_cast<std::int32_t>(free_.size()); }
    std::int32_t evictable_count() const { return evictable_count_; }
    /// What sequences may take, if the cache gives up all it can.
    std::int32_t available_count() const { return free_count() + evictable_count_; }
    std::int32_t block_count() const { return shape_.block_count; }
    std::int32_t block_tokens() const { return shape_.block_tokens; }

private:
    std::size_t checked(BlockId block) const;

    BlockPoolShape shape_;
    std::vector<BlockId> free_;
    std::vector<std::int32_t> references_;  // [block_count] of sequences
    std::vector<std::int32_t> holds_;       // [block_count] of the cache; both 0 = free
    std::int32_t evictable_count_ = 0;
};

/// Blocks that `tokens` tokens fill.
constexpr std::int32_t blocks_for(std::int32_t tokens, std::int32_t block_tokens) {
    return (tokens + block_tokens - 1) / block_tokens;
}

}  // namespace replica

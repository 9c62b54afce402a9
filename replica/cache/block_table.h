// The blocks of one sequence, in order of its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replica/cache/block_pool.h"

namespace replica {

/// Holds one reference per block. It does not know its pool's lifetime, so the owner calls
/// `release_all` before it goes; the destructor checks that. Engine thread only.
class BlockTable {
public:
    BlockTable() = default;
    ~BlockTable();
    BlockTable(BlockTable&& other) noexcept;
    BlockTable& operator=(BlockTable&&) = delete;
    BlockTable(const BlockTable&) = delete;
    BlockTable& operator=(const BlockTable&) = delete;

    /// Room for `blocks` entries, so that growing does not allocate.
    void reserve(std::int32_t blocks) { blocks_.reserve(static_cast<std::size_t>(blocks)); }
    /// Takes blocks until `tokens` fit. All or nothing: false, and no change, when the pool has too
    /// few.
    [[nodiscard]] bool grow_to(std::int32_t tokens, BlockPool& pool);
    /// Appends a block that is in use elsewhere; it is read, never written.
    void share(BlockId block, BlockPool& pool);
    void release_all(BlockPool& pool);

    std::span<const BlockId> blocks() const { return blocks_; }
    std::int32_t size() const { return static_cast<std::int32_t>(blocks_.size()); }

private:
    std::vector<BlockId> blocks_;
};

}  // namespace replica

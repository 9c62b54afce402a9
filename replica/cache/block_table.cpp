#include "replica/cache/block_table.h"

#include <cassert>
#include <utility>

namespace replica {

BlockTable::~BlockTable() {
    assert(blocks_.empty() && "blocks are released before their table");
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : blocks_(std::exchange(other.blocks_, std::vector<BlockId>{})) {}

bool BlockTable::grow_to(std::int32_t tokens, BlockPool& pool) {
    assert(tokens >= 0);
    const std::int32_t wanted = blocks_for(tokens, pool.block_tokens());
    if (wanted - size() > pool.free_count()) return false;
    while (size() < wanted)
        blocks_.push_back(pool.take().value());
    return true;
}

void BlockTable::share(BlockId block, BlockPool& pool) {
    pool.share(block);
    blocks_.push_back(block);
}

void BlockTable::release_all(BlockPool& pool) {
    // Backwards, so that the next table takes them in the same order again.
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block)
        pool.release(*block);
    blocks_.clear();
}

}  // namespace replica

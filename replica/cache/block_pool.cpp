#include "replica/cache/block_pool.h"

#include <cassert>

namespace replica {

BlockPool::BlockPool(BlockPoolShape shape) : shape_(shape) {
    assert(shape.block_count > 0 && shape.block_tokens > 0);
    const auto count = static_cast<std::size_t>(shape.block_count);
    references_.assign(count, 0);
    holds_.assign(count, 0);
    free_.reserve(count);
    for (BlockId block = shape.block_count; block-- > 0;)  // so that block 0 is taken first
        free_.push_back(block);
}

std::optional<BlockId> BlockPool::take() {
    if (free_.empty()) return std::nullopt;
    const BlockId block = free_.back();
    free_.pop_back();
    std::int32_t& references = references_[checked(block)];
    assert(references == 0 && "a block on the free list belongs to nobody");
    references = 1;
    return block;
}

void BlockPool::share(BlockId block) {
    std::int32_t& references = references_[checked(block)];
    assert((references > 0 || holds_[checked(block)] > 0) &&
           "a taken block can be shared, a free one not");
    if (references++ == 0) --evictable_count_;
}

void BlockPool::release(BlockId block) {
    std::int32_t& references = references_[checked(block)];
    assert(references > 0 && "a block is released once per reference");
    if (--references > 0) return;
    if (holds_[checked(block)] > 0) {
        ++evictable_count_;
    } else {
        free_.push_back(block);
    }
}

void BlockPool::hold(BlockId block) {
    assert((references_[checked(block)] > 0 || holds_[checked(block)] > 0) && "a free block");
    ++holds_[checked(block)];
}

void BlockPool::drop(BlockId block) {
    std::int32_t& holds = holds_[checked(block)];
    assert(holds > 0 && "a block is dropped once per hold");
    if (--holds > 0 || references_[checked(block)] > 0) return;
    --evictable_count_;
    free_.push_back(block);
}

std::int32_t BlockPool::references(BlockId block) const {
    return references_[checked(block)];
}

std::size_t BlockPool::checked(BlockId block) const {
    assert(block >= 0 && block < shape_.block_count && "block index inside the pool");
    return static_cast<std::size_t>(block);
}

}  // namespace replica

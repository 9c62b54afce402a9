#include "replica/cache/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <functional>

namespace replica {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {  // splitmix64's finaliser
    hash = (hash ^ value) * 0xBF58476D1CE4E5B9U;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBU;
    return hash ^ (hash >> 31);
}

std::uint64_t extend(std::uint64_t hash, std::span<const std::int32_t> tokens) {
    for (const std::int32_t token : tokens)
        hash = mix(hash, static_cast<std::uint64_t>(token) + 1);
    return hash;
}

std::span<const std::int32_t> part(std::span<const std::int32_t> tokens, std::int32_t begin,
                                   std::int32_t count) {
    return tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, PrefixCacheShape shape) : pool_(pool), shape_(shape) {
    assert(shape.snapshots >= 0 && shape.tails_max >= 0);
    for (SnapshotId id = shape.snapshots; id-- > 0;)
        free_snapshots_.push_back(id);
}

PrefixCache::~PrefixCache() {
    clear();
}

// ---------------------------------------------------------------------------------------------
// Finding

bool PrefixCache::can_resume(const Node& node) const {
    return !shape_.has_recurrent_state || node.snapshot != kNoSnapshot;
}

PrefixCache::NodeId PrefixCache::find_page(NodeId parent, std::uint64_t parent_hash,
                                           std::span<const std::int32_t> tokens) const {
    const auto found = pages_.find(extend(parent_hash, tokens));
    if (found == pages_.end()) return kNone;
    const Node& node = at(found->second);
    const bool is_same = node.parent == parent && std::ranges::equal(node.tokens, tokens);
    return is_same ? found->second : kNone;
}

/// The longest tail of `parent` that `tokens` begin with.
PrefixCache::NodeId PrefixCache::find_tail(NodeId parent,
                                           std::span<const std::int32_t> tokens) const {
    NodeId best = kNone;
    for (NodeId id = at(parent).first_tail; id != kNone; id = at(id).next_tail) {
        const std::vector<std::int32_t>& tail = at(id).tokens;
        if (tail.size() > tokens.size()) continue;
        if (best != kNone && tail.size() <= at(best).tokens.size()) continue;
        if (std::ranges::equal(tail, tokens.first(tail.size()))) best = id;
    }
    return best;
}

PrefixCache::Match PrefixCache::find(const std::string& salt, std::span<const std::int32_t> tokens,
                                     std::int32_t limit, TailUse tails) const {
    Match match;
    const auto root = roots_.find(salt);
    if (root == roots_.end()) return match;
    limit = std::min(limit, static_cast<std::int32_t>(tokens.size()));
    NodeId node = root->second;
    std::int32_t position = 0;
    std::int32_t blocks_in_use = 0;
    std::int32_t known_tokens = 0;
    while (true) {
        const std::int32_t left = limit - position;
        const NodeId tail =
            tails == TailUse::kNone
                ? kNone
                : find_tail(node, part(tokens, position, std::min(left, block_tokens() - 1)));
        if (tail != kNone) {  // a tail can always be resumed: it exists for nothing else
            match = {.tokens = position + static_cast<std::int32_t>(at(tail).tokens.size()),
                     .node = tail,
                     .tail = at(tail).block,
                     .snapshot = at(tail).snapshot,
                     .blocks_in_use = blocks_in_use};
        }
        if (left < block_tokens()) break;
        node = find_page(node, at(node).hash, part(tokens, position, block_tokens()));
        if (node == kNone) break;
        position += block_tokens();
        known_tokens = position;
        blocks_in_use += pool_.references(at(node).block) > 0 ? 1 : 0;
        if (can_resume(at(node))) {
            match = {.tokens = position,
                     .node = node,
                     .snapshot = at(node).snapshot,
                     .blocks_in_use = blocks_in_use};
        }
    }
    match.known_tokens = known_tokens;
    return match;
}

void PrefixCache::use(const Match& match, std::vector<BlockId>& blocks) {
    assert(match.tokens > 0 && "nothing was found");
    const std::size_t begin = blocks.size();
    for (NodeId id = match.node; at(id).parent != kNone; id = at(id).parent)
        if (!at(id).is_tail) blocks.push_back(at(id).block);
    std::reverse(blocks.begin() + static_cast<std::ptrdiff_t>(begin), blocks.end());
    touch(match.node);
}

// ---------------------------------------------------------------------------------------------
// Keeping

void PrefixCache::insert(const CachedText& text) {
    assert(!shape_.has_recurrent_state && "a recurrent model keeps checkpoints");
    if (text.tokens.empty()) return;
    const NodeId end = grow(text);
    touch(end);
    while (tails_ > shape_.tails_max) {
        NodeId id = oldest_;
        while (!at(id).is_tail)
            id = at(id).newer;
        remove(id);
    }
}

bool PrefixCache::wants_checkpoint(const CachedText& text) const {
    if (shape_.snapshots == 0 || text.tokens.empty()) return false;
    const NodeId end = find_end(text);
    return end == kNone || at(end).snapshot == kNoSnapshot;
}

std::optional<SnapshotId> PrefixCache::insert_checkpoint(const CachedText& text) {
    assert(shape_.has_recurrent_state && "only recurrent state is saved");
    if (!wants_checkpoint(text)) return std::nullopt;
    if (free_snapshots_.empty()) {  // before growing, which makes this text the newest
        NodeId id = oldest_;
        while (at(id).snapshot == kNoSnapshot)
            id = at(id).newer;
        ++evicted_total_;
        take_snapshot_from(id);
        if (at(id).children == 0) remove(id);
    }
    const NodeId end = grow(text);
    at(end).snapshot = free_snapshots_.back();
    free_snapshots_.pop_back();
    ++checkpoints_;
    ++created_total_;
    touch(end);
    return at(end).snapshot;
}

/// The node where the text ends, if it is there.
PrefixCache::NodeId PrefixCache::find_end(const CachedText& text) const {
    const auto root = roots_.find(text.salt);
    if (root == roots_.end()) return kNone;
    NodeId node = root->second;
    const auto tokens = static_cast<std::int32_t>(text.tokens.size());
    std::int32_t position = 0;
    for (; tokens - position >= block_tokens() && node != kNone; position += block_tokens())
        node = find_page(node, at(node).hash, part(text.tokens, position, block_tokens()));
    if (node == kNone || position == tokens) return node;
    const NodeId tail = find_tail(node, part(text.tokens, position, tokens - position));
    const bool is_whole =
        tail != kNone && static_cast<std::int32_t>(at(tail).tokens.size()) == tokens - position;
    return is_whole ? tail : kNone;
}

/// Adds the edges of the text that are missing; returns where it ends.
PrefixCache::NodeId PrefixCache::grow(const CachedText& text) {
    const auto tokens = static_cast<std::int32_t>(text.tokens.size());
    assert(blocks_for(tokens, block_tokens()) <= static_cast<std::int32_t>(text.blocks.size()));
    NodeId node = root_of(text.salt);
    std::int32_t position = 0;
    std::size_t block = 0;
    for (; tokens - position >= block_tokens(); position += block_tokens(), ++block) {
        const auto page = part(text.tokens, position, block_tokens());
        const NodeId child = find_page(node, at(node).hash, page);
        node = child != kNone ? child : add(node, page, text.blocks[block], false);
    }
    if (position == tokens) return node;
    const auto rest = part(text.tokens, position, tokens - position);
    const NodeId tail = find_tail(node, rest);
    if (tail != kNone && at(tail).tokens.size() == rest.size()) return tail;
    return add(node, rest, text.blocks[block], true);
}

PrefixCache::NodeId PrefixCache::root_of(const std::string& salt) {
    const auto found = roots_.find(salt);
    if (found != roots_.end()) return found->second;
    const NodeId id = new_node();
    at(id).salt = salt;
    at(id).hash = mix(std::hash<std::string>{}(salt), 0x51);
    roots_.emplace(salt, id);
    return id;
}

PrefixCache::NodeId PrefixCache::add(NodeId parent, std::span<const std::int32_t> tokens,
                                     BlockId block, bool is_tail) {
    const NodeId id = new_node();
    Node& node = at(id);
    node.parent = parent;
    node.tokens.assign(tokens.begin(), tokens.end());
    node.block = block;
    node.is_tail = is_tail;
    pool_.hold(block);
    if (is_tail) {
        node.next_tail = at(parent).first_tail;
        at(parent).first_tail = id;
        ++tails_;
    } else {
        node.hash = extend(at(parent).hash, tokens);
        // Another text with this hash keeps its place; this one is then found by nobody and goes
        // the way of all that is not used.
        pages_.emplace(node.hash, id);
    }
    ++at(parent).children;
    link_newest(id);
    ++entries_;
    return id;
}

// ---------------------------------------------------------------------------------------------
// Giving up

bool PrefixCache::make_room(std::int32_t count) {
    if (count > pool_.available_count()) return false;
    while (pool_.free_count() < count) {
        const NodeId id = oldest_to_evict();
        if (at(id).snapshot != kNoSnapshot) ++evicted_total_;
        remove(id);
    }
    return true;
}

/// Whoever uses a node uses its parents after it, so children are older than their parents and the
/// walk meets leaves first. A leaf that sequences hold frees nothing; it goes only when it keeps
/// its parents from going (they hold other blocks when two sequences computed one text at once).
PrefixCache::NodeId PrefixCache::oldest_to_evict() const {
    NodeId held = kNone;
    for (NodeId id = oldest_; id != kNone; id = at(id).newer) {
        if (at(id).children > 0) continue;
        if (pool_.references(at(id).block) == 0) return id;
        if (held == kNone) held = id;
    }
    assert(held != kNone && "the pool counted what can be evicted");
    return held;
}

void PrefixCache::clear() {
    for (NodeId id = oldest_; id != kNone; id = oldest_) {
        while (at(id).children > 0)
            id = at(id).newer;
        remove(id);
    }
    assert(roots_.empty() && entries_ == 0 && checkpoints_ == 0);
}

/// Takes a leaf out, and what then serves nobody above it.
void PrefixCache::remove(NodeId id) {
    while (true) {
        const NodeId parent = at(id).parent;
        detach(id);
        Node& above = at(parent);
        if (above.children > 0) return;
        if (above.parent == kNone) {
            roots_.erase(above.salt);
            above = {};
            unused_.push_back(parent);
            return;
        }
        if (can_resume(above)) return;
        id = parent;
    }
}

void PrefixCache::detach(NodeId id) {
    Node& node = at(id);
    assert(node.parent != kNone && node.children == 0);
    if (node.snapshot != kNoSnapshot) take_snapshot_from(id);
    unlink(id);
    pool_.drop(node.block);
    if (node.is_tail) {
        NodeId* link = &at(node.parent).first_tail;
        while (*link != id)
            link = &at(*link).next_tail;
        *link = node.next_tail;
        --tails_;
    } else if (const auto found = pages_.find(node.hash);
               found != pages_.end() && found->second == id) {
        pages_.erase(found);
    }
    --at(node.parent).children;
    --entries_;
    node = {};
    unused_.push_back(id);
}

void PrefixCache::take_snapshot_from(NodeId id) {
    free_snapshots_.push_back(at(id).snapshot);
    at(id).snapshot = kNoSnapshot;
    --checkpoints_;
}

// ---------------------------------------------------------------------------------------------
// Order of use

/// The node, then its parents: parents are always newer than their children.
void PrefixCache::touch(NodeId id) {
    for (; at(id).parent != kNone; id = at(id).parent) {
        unlink(id);
        link_newest(id);
    }
}

void PrefixCache::link_newest(NodeId id) {
    at(id).older = newest_;
    at(id).newer = kNone;
    (newest_ == kNone ? oldest_ : at(newest_).newer) = id;
    newest_ = id;
}

void PrefixCache::unlink(NodeId id) {
    const Node& node = at(id);
    (node.older == kNone ? oldest_ : at(node.older).newer) = node.newer;
    (node.newer == kNone ? newest_ : at(node.newer).older) = node.older;
}

PrefixCache::NodeId PrefixCache::new_node() {
    if (unused_.empty()) {
        nodes_.emplace_back();
        return static_cast<NodeId>(nodes_.size() - 1);
    }
    const NodeId id = unused_.back();
    unused_.pop_back();
    return id;
}

}  // namespace replica

// What finished and running sequences leave behind, found again by their tokens.
//
// A tree over token texts, cut where KV pages end. Each edge holds the tokens of one page and that
// page; an edge shorter than a page is a *tail*, and nothing grows behind it. Every cache salt has
// a root of its own, so different salts share nothing.
//
//   root("") ─[64 tokens, block 3]─▶ o ─[64 tokens, block 9]─▶ o        o  resume here? only if the
//                                    ├─[17 tokens, block 5]─▶ c            model has no recurrent
//                                    └─[64 tokens, block 7]─▶ c            state
//                                                                       c  checkpoint: resume here
//
// A model with recurrent state can resume only where that state was saved: at checkpoints, whose
// states lie in numbered places outside (`snapshot`). Edges below which no checkpoint is left are
// removed. A pure-attention model resumes at any edge.
//
// Pages on whole edges are shared as they are: their tokens are never written again. A tail's page
// is copied by who resumes, since its owner writes on behind the tail.
//
// Nothing is found by hash alone: hashes lead to an edge, its tokens and its parent decide.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "replica/cache/block_pool.h"

namespace replica {

using SnapshotId = std::int32_t;
inline constexpr SnapshotId kNoSnapshot = -1;

/// Whether who resumes has a block to copy a tail's page to.
enum class TailUse { kCopied, kNone };

struct PrefixCacheShape {
    bool has_recurrent_state = false;
    std::int32_t snapshots = 0;  // places for states; a recurrent model without any caches nothing
    /// Tails of a pure-attention model; a recurrent model's are bounded by its snapshots.
    std::int32_t tails_max = 256;
};

/// The text of a sequence, as far as it is computed, and where it lies.
struct CachedText {
    const std::string& salt;
    std::span<const std::int32_t> tokens;
    std::span<const BlockId> blocks;  // hold the tokens; the last one perhaps in part
};

/// Engine thread only. The pool outlives the cache. Lookups cost O(tokens), eviction O(entries).
class PrefixCache {
public:
    PrefixCache(BlockPool& pool, PrefixCacheShape shape);
    ~PrefixCache();
    PrefixCache(const PrefixCache&) = delete;
    PrefixCache& operator=(const PrefixCache&) = delete;

    /// Where a text can resume. Valid until the cache changes next.
    struct Match {
        std::int32_t tokens = 0;  // nothing found: 0
        std::int32_t node = 0;    // internal
        BlockId tail = kNoBlock;  // to be copied: holds the tokens past the last whole page
        SnapshotId snapshot = kNoSnapshot;
        std::int32_t known_tokens = 0;   // on whole pages: as far as another text went the same way
        std::int32_t blocks_in_use = 0;  // whole pages that sequences hold now: they cost nothing
    };
    /// The deepest place within the first `limit` tokens. Changes nothing.
    Match find(const std::string& salt, std::span<const std::int32_t> tokens, std::int32_t limit,
               TailUse tails = TailUse::kCopied) const;
    /// Marks the match as used just now and appends its whole pages, in order, to `blocks`.
    void use(const Match& match, std::vector<BlockId>& blocks);

    /// Keeps the whole pages of a text and a tail; for models without recurrent state.
    void insert(const CachedText& text);
    /// Whether a checkpoint at the end of the text would be new.
    bool wants_checkpoint(const CachedText& text) const;
    /// Keeps the whole text and returns where its state is to be saved, giving up the checkpoint
    /// that was unused for longest when all places are taken. Nothing when it is there already.
    std::optional<SnapshotId> insert_checkpoint(const CachedText& text);

    /// Gives up what was unused for longest until `count` blocks of the pool are free. False when
    /// sequences hold too many.
    bool make_room(std::int32_t count);
    void clear();

    std::int32_t checkpoints() const { return checkpoints_; }
    std::int32_t snapshots_max() const { return shape_.snapshots; }
    std::uint64_t created_total() const { return created_total_; }
    std::uint64_t evicted_total() const { return evicted_total_; }
    std::int32_t entries() const { return entries_; }

private:
    using NodeId = std::int32_t;
    static constexpr NodeId kNone = -1;

    struct Node {
        NodeId parent = kNone;  // none: a root
        std::uint64_t hash = 0;
        std::vector<std::int32_t> tokens;  // of the edge that leads here; a root has none
        BlockId block = kNoBlock;
        SnapshotId snapshot = kNoSnapshot;
        bool is_tail = false;
        std::int32_t children = 0;  // tails included
        NodeId first_tail = kNone, next_tail = kNone;
        NodeId newer = kNone, older = kNone;  // all but roots, by last use
        std::string salt;                     // of a root
    };

    Node& at(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
    const Node& at(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
    std::int32_t block_tokens() const { return pool_.block_tokens(); }
    bool can_resume(const Node& node) const;
    NodeId find_page(NodeId parent, std::uint64_t parent_hash,
                     std::span<const std::int32_t> tokens) const;
    NodeId find_tail(NodeId parent, std::span<const std::int32_t> tokens) const;
    NodeId find_end(const CachedText& text) const;
    NodeId root_of(const std::string& salt);
    NodeId grow(const CachedText& text);
    NodeId add(NodeId parent, std::span<const std::int32_t> tokens, BlockId block, bool is_tail);
    void remove(NodeId id);
    void detach(NodeId id);
    NodeId oldest_to_evict() const;
    void take_snapshot_from(NodeId id);
    void touch(NodeId id);
    void link_newest(NodeId id);
    void unlink(NodeId id);
    NodeId new_node();

    BlockPool& pool_;
    PrefixCacheShape shape_;
    std::vector<Node> nodes_;
    std::vector<NodeId> unused_;
    std::unordered_map<std::string, NodeId> roots_;
    std::unordered_map<std::uint64_t, NodeId> pages_;  // whole pages by hash of the text so far
    std::vector<SnapshotId> free_snapshots_;
    NodeId newest_ = kNone, oldest_ = kNone;
    std::int32_t tails_ = 0;
    std::int32_t checkpoints_ = 0;
    std::int32_t entries_ = 0;
    std::uint64_t created_total_ = 0;
    std::uint64_t evicted_total_ = 0;
};

}  // namespace replica

// Which replica holds which beginning of a prompt, as far as the router can know.
//
//   boundary hash ──▶ at most 4 holders { instance, tokens, last use, confirmed }
//
//   selection      pending at every boundary of the request: the next one of the same chat may
//   follow first token    the replica says how much it had cached: boundaries beyond that were not
//   there
//                  before, those up to it are confirmed; after the prefill it holds all of them
//   dispatch fails what was pending goes
//   instance ends  its holders go
//
// Bounded: `entries_max` boundaries over all, the longest unused one goes first; each holder is
// forgotten `ttl` after its last use. Wrong entries cost a detour, never a wrong answer.
// No clock: time comes in as an argument. Decision thread only. Source: spec of the router,
// section 5.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "router/boundaries.h"
#include "router/charge.h"
#include "router/policy_snapshot.h"

namespace router {

inline constexpr std::size_t kHoldersMax = 4;

enum class EvictionReason : std::uint8_t { kTtl, kLru, kHolders, kInstance, kCorrection, kFailed };
inline constexpr std::size_t kEvictionReasonCount = 6;
[[nodiscard]] std::string_view name_of(EvictionReason reason);

class AffinityTable {
public:
    struct Options {
        std::chrono::milliseconds ttl{900'000};
        std::size_t entries_max = 65536;
    };
    explicit AffinityTable(Options options) : options_(options) {}

    struct Found {
        std::vector<Match> matches;            // for each instance its deepest boundary
        std::int64_t prompt_tokens = 1;        // of the request, better known where a boundary is
        std::optional<InstanceRef> preferred;  // where its `prompt_cache_key` was last
    };
    /// Walks from the deepest boundary up. Changes nothing. O(boundaries).
    [[nodiscard]] Found look_up(const Boundaries& boundaries, Clock::time_point now) const;

    /// The request was sent there: it will hold all of this.
    void note_pending(const Boundaries& boundaries, InstanceRef replica, Clock::time_point now);

    /// What the replica reported with its first token.
    struct Report {
        std::int64_t prompt_tokens = 0;
        std::int64_t cached_tokens = 0;
        int block_tokens = 0;  // caches end at whole blocks: this much less is no contradiction
    };
    void confirm(const Boundaries& boundaries, InstanceRef replica, const Report& report,
                 Clock::time_point now);

    /// The dispatch failed before its first token.
    void drop_pending(const Boundaries& boundaries, InstanceRef replica);
    /// The instance is gone, and its cache with it.
    void drop_instance(InstanceRef replica);

    [[nodiscard]] std::size_t size() const { return entries_.size(); }
    /// Holders forgotten so far, by reason.
    [[nodiscard]] std::uint64_t evictions(EvictionReason reason) const {
        return evictions_.at(static_cast<std::size_t>(reason));
    }

private:
    struct Holder {
        InstanceRef replica;
        std::int64_t tokens = 0;
        Clock::time_point used_at;
        bool is_confirmed = false;
    };
    struct Entry {
        std::uint64_t hash = 0;
        std::array<Holder, kHoldersMax> holders;
        std::size_t count = 0;
    };
    using Entries = std::list<Entry>;  // the longest unused one last

    [[nodiscard]] bool is_alive(const Holder& holder, Clock::time_point now) const {
        return now - holder.used_at < options_.ttl;
    }
    Entry& touch(std::uint64_t hash);
    void set_holder(std::uint64_t hash, Holder holder);
    static Holder* find_holder(Entry& entry, InstanceRef replica);
    void remove_holder(Entries::iterator entry, Holder* holder, EvictionReason reason);
    void count(EvictionReason reason, std::size_t holders = 1) {
        evictions_.at(static_cast<std::size_t>(reason)) += holders;
    }

    Options options_;
    Entries entries_;
    std::unordered_map<std::uint64_t, Entries::iterator> by_hash_;
    std::array<std::uint64_t, kEvictionReasonCount> evictions_{};
};

}  // namespace router

#include "router/affinity.h"

#include <algorithm>
#include <cassert>

namespace router {

std::string_view name_of(EvictionReason reason) {
    static constexpr std::array<std::string_view, kEvictionReasonCount> kNames = {
        "ttl", "lru", "holders", "instance", "correction", "failed"};
    return kNames.at(static_cast<std::size_t>(reason));
}

AffinityTable::Found AffinityTable::look_up(const Boundaries& boundaries,
                                            Clock::time_point now) const {
    Found found{.prompt_tokens = boundaries.prompt_tokens};
    bool is_length_known = false;
    for (auto boundary = boundaries.list.rbegin(); boundary != boundaries.list.rend(); ++boundary) {
        const auto at = by_hash_.find(boundary->hash);
        if (at == by_hash_.end()) continue;
        const Entry& entry = *at->second;
        for (std::size_t i = 0; i < entry.count; ++i) {
            const Holder& holder = entry.holders.at(i);
            if (!is_alive(holder, now)) continue;
            if (!is_length_known) {
                // The reported length of this beginning, and the estimate for the rest only.
                const std::int64_t rest = boundaries.prompt_tokens - boundary->tokens;
                found.prompt_tokens = holder.tokens + std::max<std::int64_t>(0, rest);
                is_length_known = true;
            }
            const bool is_known = std::any_of(
                found.matches.begin(), found.matches.end(),
                [&holder](const Match& match) { return match.replica == holder.replica; });
            if (!is_known) found.matches.push_back({holder.replica, holder.tokens});
        }
    }
    for (Match& match : found.matches)
        match.tokens = std::min(match.tokens, found.prompt_tokens);
    if (boundaries.cache_key == 0) return found;
    if (const auto at = by_hash_.find(boundaries.cache_key); at != by_hash_.end()) {
        const Entry& entry = *at->second;
        if (entry.count > 0 && is_alive(entry.holders[0], now)) {
            found.preferred = entry.holders[0].replica;
        }
    }
    return found;
}

void AffinityTable::note_pending(const Boundaries& boundaries, InstanceRef replica,
                                 Clock::time_point now) {
    for (const Boundary& boundary : boundaries.list) {
        set_holder(boundary.hash, {.replica = replica, .tokens = boundary.tokens, .used_at = now});
    }
    if (boundaries.cache_key == 0) return;
    Entry& entry = touch(boundaries.cache_key);
    entry.holders[0] = {.replica = replica, .used_at = now, .is_confirmed = true};
    entry.count = 1;
}

void AffinityTable::confirm(const Boundaries& boundaries, InstanceRef replica, const Report& report,
                            Clock::time_point now) {
    const double scale = report.prompt_tokens > 0 && boundaries.prompt_tokens > 0
                             ? static_cast<double>(report.prompt_tokens) /
                                   static_cast<double>(boundaries.prompt_tokens)
                             : 1.0;
    for (const Boundary& boundary : boundaries.list) {
        const auto tokens =
            static_cast<std::int64_t>(static_cast<double>(boundary.tokens) * scale + 0.5);
        const auto at = by_hash_.find(boundary.hash);
        if (at != by_hash_.end() && tokens > report.cached_tokens + report.block_tokens) {
            Holder* holder = find_holder(*at->second, replica);
            if (holder != nullptr && holder->is_confirmed) count(EvictionReason::kCorrection);
        }
        // Whatever it had before, it has computed all of the prompt now.
        set_holder(boundary.hash,
                   {.replica = replica, .tokens = tokens, .used_at = now, .is_confirmed = true});
    }
}

void AffinityTable::drop_pending(const Boundaries& boundaries, InstanceRef replica) {
    for (const Boundary& boundary : boundaries.list) {
        const auto at = by_hash_.find(boundary.hash);
        if (at == by_hash_.end()) continue;
        Holder* holder = find_holder(*at->second, replica);
        if (holder == nullptr || holder->is_confirmed) continue;
        remove_holder(at->second, holder, EvictionReason::kFailed);
    }
}

void AffinityTable::drop_instance(InstanceRef replica) {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
        const auto next = std::next(entry);
        if (Holder* holder = find_holder(*entry, replica)) {
            remove_holder(entry, holder, EvictionReason::kInstance);
        }
        entry = next;
    }
}

/// The entry of `hash`, made if need be, as the one used last.
AffinityTable::Entry& AffinityTable::touch(std::uint64_t hash) {
    const auto at = by_hash_.find(hash);
    if (at != by_hash_.end()) {
        entries_.splice(entries_.begin(), entries_, at->second);
        return entries_.front();
    }
    if (entries_.size() >= options_.entries_max && !entries_.empty()) {
        count(EvictionReason::kLru, entries_.back().count);
        by_hash_.erase(entries_.back().hash);
        entries_.pop_back();
    }
    entries_.push_front({.hash = hash});
    by_hash_.emplace(hash, entries_.begin());
    return entries_.front();
}

void AffinityTable::set_holder(std::uint64_t hash, Holder holder) {
    Entry& entry = touch(hash);
    for (std::size_t i = entry.count; i-- > 0;) {
        if (is_alive(entry.holders.at(i), holder.used_at)) continue;
        entry.holders.at(i) = entry.holders.at(--entry.count);
        count(EvictionReason::kTtl);
    }
    if (Holder* known = find_holder(entry, holder.replica)) {
        // What is known of it stays true while a further request is on its way there.
        if (known->is_confirmed && !holder.is_confirmed) {
            known->used_at = holder.used_at;
            return;
        }
        *known = holder;
        return;
    }
    if (entry.count < kHoldersMax) {
        entry.holders.at(entry.count++) = holder;
        return;
    }
    const auto oldest = std::min_element(
        entry.holders.begin(), entry.holders.end(),
        [](const Holder& left, const Holder& right) { return left.used_at < right.used_at; });
    *oldest = holder;
    count(EvictionReason::kHolders);
}

AffinityTable::Holder* AffinityTable::find_holder(Entry& entry, InstanceRef replica) {
    for (std::size_t i = 0; i < entry.count; ++i) {
        if (entry.holders.at(i).replica == replica) return &entry.holders.at(i);
    }
    return nullptr;
}

void AffinityTable::remove_holder(Entries::iterator entry, Holder* holder, EvictionReason reason) {
    assert(entry->count > 0 && "a holder to remove is there");
    *holder = entry->holders.at(--entry->count);
    count(reason);
    if (entry->count > 0) return;
    by_hash_.erase(entry->hash);
    entries_.erase(entry);
}

}  // namespace router

// Dispatches whose report of the end has not come: what was charged for them by estimate.
//
// A replica reports the end of each dispatch on its status stream, before or after the answer's
// last byte has passed here, or never, when it dies. So the entry is kept apart from the request,
// found by the dispatch id, and the oldest go when there are too many. While the attempt still runs
// here the entry names it: reports come by the dozen beside a thousand streams, and none of them
// may cost a walk over all that run. Decision thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "router/charge.h"
#include "router/fairness.h"

namespace router {

class Grant;

class ChargeLedger {
public:
    /// Far above what can run at once; only reports that never come fill it.
    static constexpr std::size_t kEntriesMax = 8192;

    struct Entry {
        std::string model;
        KeyId key = kAnonymousKey;
        int sequences = 1;  // that shared what was generated
        double charged_service = 0;
        std::weak_ptr<Account> account;  // of the instance it went to
        std::uint64_t charge = 0;        // its number there
        Grant* running = nullptr;        // the attempt, until note_end()
    };

    void add(const std::string& dispatch_id, Entry entry) {
        if (!entries_.emplace(dispatch_id, std::move(entry)).second) return;
        order_.push_back(dispatch_id);
        if (order_.size() <= kEntriesMax) return;
        entries_.erase(order_.front());
        order_.pop_front();
    }

    [[nodiscard]] std::optional<Entry> take(const std::string& dispatch_id) {
        const auto at = entries_.find(dispatch_id);
        if (at == entries_.end()) return std::nullopt;
        Entry entry = std::move(at->second);
        entries_.erase(at);
        return entry;
    }

    /// The attempt is over here; its report may still come.
    void note_end(const std::string& dispatch_id) {
        const auto at = entries_.find(dispatch_id);
        if (at != entries_.end()) at->second.running = nullptr;
    }

    [[nodiscard]] std::size_t size() const { return entries_.size(); }

private:
    std::unordered_map<std::string, Entry> entries_;
    std::deque<std::string> order_;  // ids that were taken stay here until they are the oldest
};

}  // namespace router

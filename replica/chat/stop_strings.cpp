#include "replica/chat/stop_strings.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace replica::chat {

StopMatcher::StopMatcher(Options options) : options_(std::move(options)), nodes_(1) {
    std::erase_if(options_.strings, [](const std::string& text) { return text.empty(); });
    for (std::size_t i = 0; i < options_.strings.size(); ++i) {
        std::size_t at = 0;
        for (const char c : options_.strings[i]) {
            const auto byte = static_cast<unsigned char>(c);
            auto& edges = nodes_[at].next;
            const auto edge = std::find_if(edges.begin(), edges.end(),
                                           [&](const auto& item) { return item.first == byte; });
            if (edge != edges.end()) {
                at = edge->second;
                continue;
            }
            const std::size_t depth = nodes_[at].depth + 1;
            edges.emplace_back(byte, nodes_.size());
            at = nodes_.size();
            nodes_.push_back({{}, 0, depth, std::nullopt});
        }
        if (!nodes_[at].longest) nodes_[at].longest = i;
    }
    // Breadth first: a node's failure is the longest proper suffix that is a prefix of some string.
    std::deque<std::size_t> queue;
    for (const auto& [byte, child] : nodes_[0].next)
        queue.push_back(child);
    while (!queue.empty()) {
        const std::size_t at = queue.front();
        queue.pop_front();
        if (!nodes_[at].longest) nodes_[at].longest = nodes_[nodes_[at].fail].longest;
        for (const auto& [byte, child] : nodes_[at].next) {
            nodes_[child].fail = step(nodes_[at].fail, byte);
            queue.push_back(child);
        }
    }
}

std::size_t StopMatcher::step(std::size_t state, unsigned char byte) const {
    while (true) {
        for (const auto& [edge, child] : nodes_[state].next) {
            if (edge == byte) return child;
        }
        if (state == 0) return 0;
        state = nodes_[state].fail;
    }
}

std::string StopMatcher::feed(std::string_view text) {
    if (match_) return {};
    std::string decided;
    for (const char c : text) {
        held_ += c;
        state_ = step(state_, static_cast<unsigned char>(c));
        if (nodes_[state_].longest) {
            match_ = options_.strings[*nodes_[state_].longest];
            if (!options_.include_stop_string) held_.resize(held_.size() - match_->size());
            decided += std::exchange(held_, {});
            return decided;
        }
        // What the state does not hold can no longer be part of a match.
        const std::size_t free = held_.size() - nodes_[state_].depth;
        if (free > 0) {
            decided.append(held_, 0, free);
            held_.erase(0, free);
        }
    }
    return decided;
}

std::string StopMatcher::finish() {
    return match_ ? std::string() : std::exchange(held_, {});
}

}  // namespace replica::chat

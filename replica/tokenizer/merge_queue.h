// The loop both tokenizer kinds share: join the best adjacent pair until none is left.
//
// Symbols form a doubly linked list over the text, pairs wait in a heap ordered by
// (cost, left position); entries whose pair has changed meanwhile are skipped when they come up.
// n symbols cost n log n, for a piece as long as the whole text too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

namespace replica {

/// Runs the merges over symbols of type `Symbol`. `Rule::pair(left, right)` returns an optional
/// {cost, joined}: lower cost first, leftmost on ties. Buffers are kept between calls.
template <class Symbol, class Cost>
class MergeQueue {
public:
    struct Join {
        Cost cost;
        Symbol joined;
    };

    /// Replaces `symbols` by what is left when no rule applies.
    template <class Rule>
    void run(std::vector<Symbol>& symbols, Rule&& pair_of) {
        const std::size_t count = symbols.size();
        if (count < 2) return;
        nodes_.clear();
        for (std::size_t i = 0; i < count; ++i) {
            nodes_.push_back(
                {symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, 0});
        }
        const auto offer = [&](std::size_t left) {
            if (left == kNone || nodes_[left].next == kNone) return;
            const std::size_t right = nodes_[left].next;
            if (const auto join = pair_of(nodes_[left].symbol, nodes_[right].symbol)) {
                heap_.push({join->cost, left, nodes_[left].version, right, nodes_[right].version,
                            join->joined});
            }
        };
        for (std::size_t i = 0; i + 1 < count; ++i)
            offer(i);
        while (!heap_.empty()) {
            const Entry best = heap_.top();
            heap_.pop();
            Node& left = nodes_[best.left];
            Node& right = nodes_[best.right];
            if (left.version != best.left_version || right.version != best.right_version) continue;
            left.symbol = best.joined;
            ++left.version;
            ++right.version;  // dead: no entry names this version
            left.next = right.next;
            if (left.next != kNone) nodes_[left.next].previous = best.left;
            offer(left.previous);
            offer(best.left);
        }
        symbols.clear();
        for (std::size_t i = 0; i != kNone; i = nodes_[i].next)
            symbols.push_back(nodes_[i].symbol);
    }

private:
    static constexpr std::size_t kNone = SIZE_MAX;
    struct Node {
        Symbol symbol;
        std::size_t previous, next;
        std::uint32_t version;  // rises with every change of the symbol
    };
    struct Entry {
        Cost cost;
        std::size_t left;
        std::uint32_t left_version;
        std::size_t right;
        std::uint32_t right_version;
        Symbol joined;
    };
    struct Later {
        bool operator()(const Entry& a, const Entry& b) const {
            return a.cost != b.cost ? a.cost > b.cost : a.left > b.left;
        }
    };
    std::vector<Node> nodes_;
    std::priority_queue<Entry, std::vector<Entry>, Later> heap_;
};

}  // namespace replica

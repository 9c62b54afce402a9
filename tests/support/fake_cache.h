// The prefix cache of a fake replica: it holds the ends of messages of every prompt it has
// prefilled, and says how many tokens of a new prompt that covers. Nothing goes by itself.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace fake {

/// The text of a prompt up to the end of a message, by hash, and its tokens.
struct MessageEnd {
    std::size_t text_hash = 0;
    std::int64_t tokens = 0;
};

class FakeCache {
public:
    /// Tokens of the longest beginning that is here.
    [[nodiscard]] std::int64_t find(const std::vector<MessageEnd>& ends) const {
        for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
            if (texts_.contains(end->text_hash)) return end->tokens;
        }
        return 0;
    }
    void insert(const std::vector<MessageEnd>& ends) {
        for (const MessageEnd& end : ends)
            texts_.insert(end.text_hash);
    }
    void clear() { texts_.clear(); }

private:
    std::unordered_set<std::size_t> texts_;
};

}  // namespace fake

// Stop strings in a stream: text goes in, text that can no longer be part of a match comes out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace replica::chat {

/// Finds the first stop string across chunk borders. The match that ends first wins, then the
/// longest. The match and what follows are removed; a suffix that may begin a match is held back.
/// All strings are UTF-8, so a cut never falls inside a character.
/// One thread at a time. O(1) per byte, amortised; holds less than the longest stop string.
class StopMatcher {
public:
    struct Options {
        std::vector<std::string> strings;  // empty ones are ignored
        bool include_stop_string = false;  // keep the match itself in the output
    };
    explicit StopMatcher(Options options);

    /// The text that is decided by now. After a match: nothing.
    std::string feed(std::string_view text);
    /// What was held back; the stream has ended without (another) match.
    std::string finish();

    bool matched() const { return match_.has_value(); }
    /// The stop string that matched.
    const std::optional<std::string>& match() const { return match_; }

private:
    // Aho–Corasick automaton over bytes: states are prefixes of the stop strings.
    struct Node {
        std::vector<std::pair<unsigned char, std::size_t>> next;
        std::size_t fail = 0;
        std::size_t depth = 0;               // bytes of this prefix
        std::optional<std::size_t> longest;  // longest string that ends here
    };
    std::size_t step(std::size_t state, unsigned char byte) const;

    Options options_;
    std::vector<Node> nodes_;
    std::size_t state_ = 0;
    std::string held_;
    std::optional<std::string> match_;
};

}  // namespace replica::chat

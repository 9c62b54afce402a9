// Finds special tokens in raw text: every token of type control, user-defined or unknown.
//
// The rule is "longest text first": each special token in turn cuts all its left-to-right,
// non-overlapping occurrences out of what longer ones left. Done here in one pass: a trie finds
// every occurrence of every candidate, then they are accepted in that order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "replica/tokenizer/tokenizer.h"

namespace replica {

/// Texts longer than this are not special tokens; bounds the search per byte of text.
inline constexpr std::size_t kSpecialTextBytesMax = 256;

struct SpecialMatch {
    std::size_t begin, end;
    TokenId id;
};

class SpecialTokens {
public:
    /// User-defined tags match anywhere; the others only outside of data, when parsed at all.
    struct Candidate {
        std::string text;
        TokenId id;
        bool matches_in_data;
    };
    explicit SpecialTokens(std::vector<Candidate> candidates);

    /// Disjoint matches in text order. `parse_special` false leaves out all but user-defined ones;
    /// a control token that shares a byte with one of `data_spans` is no match.
    std::vector<SpecialMatch> find(std::string_view text, std::span<const ByteSpan> data_spans,
                                   bool parse_special) const;

private:
    static std::uint32_t edge(std::uint32_t node, unsigned char byte) { return node << 8U | byte; }

    std::vector<Candidate> candidates_;                            // longest first, then by id
    std::unordered_map<std::uint32_t, std::uint32_t> trie_;        // edge -> node; root is 0
    std::unordered_map<std::uint32_t, std::size_t> ends_at_node_;  // node -> candidate index
    std::array<bool, 256> begins_candidate_{};
};

}  // namespace replica

#include "replica/tokenizer/special_tokens.h"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace replica {
namespace {

constexpr std::uint32_t kNodesMax = 1U << 24U;  // node numbers share 32 bits with a byte

bool touches_data(std::span<const ByteSpan> spans, std::size_t begin, std::size_t end) {
    // The first span that ends behind `begin` is the only one that can share its first byte.
    const auto span =
        std::upper_bound(spans.begin(), spans.end(), begin,
                         [](std::size_t position, const ByteSpan& s) { return position < s.end; });
    return span != spans.end() && span->begin < end && span->begin < span->end;
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<Candidate> candidates)
    : candidates_(std::move(candidates)) {
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return std::make_tuple(b.text.size(), a.id) < std::make_tuple(a.text.size(), b.id);
    });
    std::uint32_t node_count = 1;
    for (std::size_t index = 0; index < candidates_.size(); ++index) {
        const std::string& text = candidates_[index].text;
        assert(!text.empty() && text.size() <= kSpecialTextBytesMax);
        begins_candidate_[static_cast<unsigned char>(text.front())] = true;
        std::uint32_t node = 0;
        for (const char c : text) {
            const auto [next, is_new] =
                trie_.try_emplace(edge(node, static_cast<unsigned char>(c)), node_count);
            if (is_new) ++node_count;
            node = next->second;
        }
        assert(node_count < kNodesMax && "the vocabulary check bounds special texts");
        ends_at_node_.try_emplace(node, index);  // equal texts: the lowest id
    }
}

std::vector<SpecialMatch> SpecialTokens::find(std::string_view text,
                                              std::span<const ByteSpan> data_spans,
                                              bool parse_special) const {
    struct Occurrence {
        std::size_t candidate, begin;
    };
    std::vector<Occurrence> occurrences;
    for (std::size_t begin = 0; begin < text.size(); ++begin) {
        if (!begins_candidate_[static_cast<unsigned char>(text[begin])]) continue;
        std::uint32_t node = 0;
        for (std::size_t at = begin; at < text.size(); ++at) {
            const auto next = trie_.find(edge(node, static_cast<unsigned char>(text[at])));
            if (next == trie_.end()) break;
            node = next->second;
            const auto end_here = ends_at_node_.find(node);
            if (end_here == ends_at_node_.end()) continue;
            const Candidate& candidate = candidates_[end_here->second];
            if (!candidate.matches_in_data &&
                (!parse_special || touches_data(data_spans, begin, at + 1))) {
                continue;
            }
            occurrences.push_back({end_here->second, begin});
        }
    }
    if (occurrences.empty()) return {};
    std::sort(occurrences.begin(), occurrences.end(), [](const Occurrence& a, const Occurrence& b) {
        return std::tie(a.candidate, a.begin) < std::tie(b.candidate, b.begin);
    });
    std::vector<SpecialMatch> matches;
    // Accepted texts are at least as long as later ones, so an overlap shows at either end.
    std::vector<bool> is_taken(text.size(), false);
    for (const Occurrence& occurrence : occurrences) {
        const Candidate& candidate = candidates_[occurrence.candidate];
        const std::size_t end = occurrence.begin + candidate.text.size();
        if (is_taken[occurrence.begin] || is_taken[end - 1]) continue;
        std::fill(is_taken.begin() + static_cast<std::ptrdiff_t>(occurrence.begin),
                  is_taken.begin() + static_cast<std::ptrdiff_t>(end), true);
        matches.push_back({occurrence.begin, end, candidate.id});
    }
    std::sort(matches.begin(), matches.end(),
              [](const SpecialMatch& a, const SpecialMatch& b) { return a.begin < b.begin; });
    return matches;
}

}  // namespace replica

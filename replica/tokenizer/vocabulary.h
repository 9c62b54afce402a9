// Tokens by text and by id; the part both tokenizer kinds share. Checks the file's arrays.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "replica/tokenizer/tokenizer_data.h"

namespace replica {

/// More tokens than any real vocabulary has (the largest have 262144).
inline constexpr std::size_t kVocabularyMax = 1U << 22U;

class Vocabulary {
public:
    /// Duplicate texts: the first id wins, with a warning.
    static tl::expected<Vocabulary, TokenizerError> from_data(TokenizerData& data,
                                                              std::vector<std::string>& warnings);

    std::int32_t size() const { return static_cast<std::int32_t>(texts_.size()); }
    const std::string& text(TokenId id) const;
    TokenType type(TokenId id) const;
    std::optional<TokenId> find(std::string_view text) const;
    /// As find, but no control token: what plain text may become, whatever the file's merges say.
    std::optional<TokenId> find_plain(std::string_view text) const;
    std::size_t text_bytes_max() const { return text_bytes_max_; }

private:
    std::vector<std::string> texts_;  // never resized once built: ids_ views into the strings
    std::vector<TokenType> types_;
    std::unordered_map<std::string_view, TokenId> ids_;
    std::size_t text_bytes_max_ = 0;
};

}  // namespace replica

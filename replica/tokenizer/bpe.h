// Byte-level BPE: bytes become characters of a printable alphabet, merges join them by rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "replica/tokenizer/pretokenizer.h"
#include "replica/tokenizer/vocabulary.h"

namespace replica {

class Bpe {
public:
    struct Options {
        PreTokenizer pre;
        bool ignore_merges;                 // a piece that is a token is taken as it is
        std::optional<TokenId> unknown_id;  // for characters that are no token
    };
    /// `vocabulary` outlives the result. Consumes `merges`.
    static tl::expected<Bpe, TokenizerError> from_merges(const Vocabulary& vocabulary,
                                                         std::vector<std::string> merges,
                                                         Options options);

    /// Appends the tokens of a fragment without special tokens; `fragment` is valid UTF-8.
    void encode(std::string_view fragment, std::vector<TokenId>& ids) const;
    /// The bytes of a normal token's text.
    static std::string bytes_of(std::string_view token_text);

private:
    /// A token, or (from the vocabulary's size on) a string that only merges know.
    using Symbol = std::uint32_t;
    struct Merge {
        std::uint32_t rank;
        Symbol joined;
    };

    explicit Bpe(const Vocabulary& vocabulary, Options options);
    Symbol intern(std::string_view text);
    std::string_view symbol_text(Symbol symbol) const;
    void append_tokens(Symbol symbol, std::vector<TokenId>& ids) const;

    const Vocabulary* vocabulary_;
    Options options_;
    std::array<Symbol, 256> byte_symbols_{};
    std::unordered_map<std::string, Symbol> extra_ids_;
    std::vector<std::string> extra_texts_;
    std::unordered_map<std::uint64_t, Merge> merges_;  // left symbol << 32 | right symbol
};

}  // namespace replica

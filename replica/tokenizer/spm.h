// SPM (sentencepiece BPE as Llama 1/2 files carry it): spaces become U+2581, adjacent symbols join
// while their concatenation is a token, the highest score first.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/tokenizer/vocabulary.h"

namespace replica {

class Spm {
public:
    /// `vocabulary` outlives the result.
    Spm(const Vocabulary& vocabulary, std::vector<float> scores, std::optional<TokenId> unknown_id);

    /// Appends the tokens of a fragment; `prepend_space` where the model wants one in front.
    struct Options {
        bool prepend_space;
    };
    void encode(std::string_view fragment, Options options, std::vector<TokenId>& ids) const;
    /// The bytes of a normal or byte token.
    static std::string bytes_of(std::string_view token_text, TokenType type);

private:
    void append_bytes(std::string_view symbol, std::vector<TokenId>& ids) const;

    const Vocabulary* vocabulary_;
    std::vector<float> scores_;
    std::optional<TokenId> unknown_id_;
    std::array<std::optional<TokenId>, 256> byte_tokens_{};
};

}  // namespace replica

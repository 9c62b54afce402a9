// Small vocabularies of our own for tokenizer tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "replica/tokenizer/tokenizer.h"
#include "replica/tokenizer/utf8.h"

namespace replica::testing {

/// The character of the byte-level alphabet for `byte`, written from its definition.
inline std::string alphabet_character(unsigned wanted) {
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool is_itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                               (byte >= 0xAE && byte <= 0xFF);
        const char32_t c = is_itself ? byte : next++;
        if (byte != wanted) continue;
        std::string text;
        append_utf8(c, text);
        return text;
    }
    return {};
}

/// Ids 0..255 are the bytes; then the merges' results in order; then the extra tokens.
inline TokenizerData bpe_data(const std::vector<std::pair<std::string, std::string>>& merges,
                              const std::vector<std::pair<std::string, TokenType>>& extra = {}) {
    TokenizerData data;
    data.model = "gpt2";
    data.pre = "qwen35";
    for (unsigned byte = 0; byte < 256; ++byte)
        data.tokens.push_back(alphabet_character(byte));
    for (const auto& [left, right] : merges) {
        data.merges.push_back(left + " " + right);
        data.tokens.push_back(left + right);
    }
    data.types.assign(data.tokens.size(), static_cast<std::int32_t>(TokenType::kNormal));
    for (const auto& [text, type] : extra) {
        data.tokens.push_back(text);
        data.types.push_back(static_cast<std::int32_t>(type));
    }
    return data;
}

inline Tokenizer tokenizer_of(TokenizerData data) {
    auto made = Tokenizer::from_data(std::move(data));
    if (!made) throw std::runtime_error(made.error().key + ": " + made.error().message);
    return std::move(*made);
}

}  // namespace replica::testing

#include "replica/tokenizer/vocabulary.h"

#include <algorithm>
#include <cassert>

namespace replica {
namespace {

tl::unexpected<TokenizerError> refused(std::string key, std::string message) {
    return tl::make_unexpected(TokenizerError{std::move(key), std::move(message)});
}

bool is_byte_token_text(std::string_view text) {
    const auto is_hex = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
    };
    return text.size() == 6 && text.starts_with("<0x") && is_hex(text[3]) && is_hex(text[4]) &&
           text[5] == '>';
}

}  // namespace

tl::expected<Vocabulary, TokenizerError> Vocabulary::from_data(TokenizerData& data,
                                                               std::vector<std::string>& warnings) {
    const std::size_t count = data.tokens.size();
    if (count == 0) return refused("tokenizer.ggml.tokens", "the vocabulary has no tokens");
    if (count > kVocabularyMax) {
        return refused("tokenizer.ggml.tokens", "the vocabulary has " + std::to_string(count) +
                                                    " tokens, more than " +
                                                    std::to_string(kVocabularyMax));
    }
    if (!data.types.empty() && data.types.size() != count) {
        return refused("tokenizer.ggml.token_type",
                       "token_type has " + std::to_string(data.types.size()) + " entries for " +
                           std::to_string(count) + " tokens");
    }
    if (!data.scores.empty() && data.scores.size() != count) {
        return refused("tokenizer.ggml.scores", "scores has " + std::to_string(data.scores.size()) +
                                                    " entries for " + std::to_string(count) +
                                                    " tokens");
    }
    Vocabulary vocabulary;
    vocabulary.texts_ = std::move(data.tokens);
    vocabulary.types_.assign(count, TokenType::kNormal);
    vocabulary.ids_.reserve(count);
    std::size_t duplicates = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (!data.types.empty()) {
            const std::int32_t type = data.types[i];
            if (type < 0 || type > static_cast<std::int32_t>(TokenType::kByte)) {
                return refused(
                    "tokenizer.ggml.token_type",
                    "token " + std::to_string(i) + " has the unknown type " + std::to_string(type));
            }
            vocabulary.types_[i] = static_cast<TokenType>(type);
        }
        const std::string& text = vocabulary.texts_[i];
        if (vocabulary.types_[i] == TokenType::kByte && !is_byte_token_text(text)) {
            return refused("tokenizer.ggml.tokens",
                           "byte token " + std::to_string(i) + " is not spelled <0xHH>");
        }
        vocabulary.text_bytes_max_ = std::max(vocabulary.text_bytes_max_, text.size());
        if (!vocabulary.ids_.try_emplace(text, static_cast<TokenId>(i)).second) ++duplicates;
    }
    if (duplicates > 0) {
        warnings.push_back(std::to_string(duplicates) +
                           " token texts occur twice; the first id is used");
    }
    return vocabulary;
}

const std::string& Vocabulary::text(TokenId id) const {
    assert(id >= 0 && id < size() && "an id of this vocabulary");
    return texts_[static_cast<std::size_t>(id)];
}

TokenType Vocabulary::type(TokenId id) const {
    assert(id >= 0 && id < size() && "an id of this vocabulary");
    return types_[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

std::optional<TokenId> Vocabulary::find_plain(std::string_view text) const {
    const std::optional<TokenId> id = find(text);
    return id && type(*id) == TokenType::kControl ? std::nullopt : id;
}

}  // namespace replica

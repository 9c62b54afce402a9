#include "replica/tokenizer/spm.h"

#include <charconv>

#include "replica/tokenizer/merge_queue.h"
#include "replica/tokenizer/utf8.h"

namespace replica {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// `<0xHH>`; the vocabulary has checked the spelling.
unsigned byte_value(std::string_view text) {
    unsigned value = 0;
    std::from_chars(text.data() + 3, text.data() + 5, value, 16);
    return value;
}

}  // namespace

Spm::Spm(const Vocabulary& vocabulary, std::vector<float> scores, std::optional<TokenId> unknown_id)
    : vocabulary_(&vocabulary), scores_(std::move(scores)), unknown_id_(unknown_id) {
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
        if (vocabulary.type(id) != TokenType::kByte) continue;
        auto& slot = byte_tokens_[byte_value(vocabulary.text(id))];
        if (!slot) slot = id;
    }
}

void Spm::append_bytes(std::string_view symbol, std::vector<TokenId>& ids) const {
    for (const char c : symbol) {
        const auto id = byte_tokens_[static_cast<unsigned char>(c)];
        if (id) {
            ids.push_back(*id);
        } else if (unknown_id_) {
            ids.push_back(*unknown_id_);
        }
    }
}

void Spm::encode(std::string_view fragment, Options options, std::vector<TokenId>& ids) const {
    std::string text;
    text.reserve(fragment.size() + kSpaceMark.size());
    if (options.prepend_space) text.append(kSpaceMark);
    for (const char c : fragment) {
        if (c == ' ') {
            text.append(kSpaceMark);
        } else {
            text.push_back(c);
        }
    }
    std::vector<std::string_view> symbols;
    for (std::size_t position = 0; position < text.size();) {
        const std::size_t length = decode_utf8(text, position).length;
        symbols.push_back(std::string_view(text).substr(position, length));
        position += length;
    }
    // Costs are negated scores: the queue wants the lowest first.
    MergeQueue<std::string_view, float> queue;
    using Join = MergeQueue<std::string_view, float>::Join;
    queue.run(symbols, [&](std::string_view left, std::string_view right) -> std::optional<Join> {
        // The longest token bounds the look-up, which would hash ever longer strings otherwise.
        if (left.size() + right.size() > vocabulary_->text_bytes_max()) return std::nullopt;
        const std::string_view joined(left.data(), left.size() + right.size());
        const auto id = vocabulary_->find_plain(joined);
        if (!id) return std::nullopt;
        return Join{-scores_[static_cast<std::size_t>(*id)], joined};
    });
    for (const std::string_view symbol : symbols) {
        if (const auto id = vocabulary_->find_plain(symbol)) {
            ids.push_back(*id);
        } else {
            append_bytes(symbol, ids);
        }
    }
}

std::string Spm::bytes_of(std::string_view token_text, TokenType type) {
    if (type == TokenType::kByte) return {static_cast<char>(byte_value(token_text))};
    std::string bytes;
    for (std::size_t position = 0; position < token_text.size();) {
        if (token_text.substr(position).starts_with(kSpaceMark)) {
            bytes.push_back(' ');
            position += kSpaceMark.size();
        } else {
            bytes.push_back(token_text[position++]);
        }
    }
    return bytes;
}

}  // namespace replica

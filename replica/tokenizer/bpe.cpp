#include "replica/tokenizer/bpe.h"

#include <cassert>

#include "replica/tokenizer/merge_queue.h"
#include "replica/tokenizer/utf8.h"

namespace replica {
namespace {

bool maps_to_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// The printable alphabet: the 68 bytes without a printable Latin-1 character take U+0100 onwards.
const std::array<char32_t, 256>& byte_alphabet() {
    static const std::array<char32_t, 256> alphabet = [] {
        std::array<char32_t, 256> made{};
        char32_t next = 0x100;
        for (unsigned byte = 0; byte < 256; ++byte) {
            made[byte] = maps_to_itself(byte) ? byte : next++;
        }
        return made;
    }();
    return alphabet;
}

constexpr char32_t kAlphabetEnd = 0x100 + 68;

/// Which byte a character of the alphabet stands for.
std::optional<char> byte_of(char32_t c) {
    static const std::array<std::int16_t, kAlphabetEnd> bytes = [] {
        std::array<std::int16_t, kAlphabetEnd> made{};
        made.fill(-1);
        for (unsigned byte = 0; byte < 256; ++byte) {
            made[byte_alphabet()[byte]] = static_cast<std::int16_t>(byte);
        }
        return made;
    }();
    if (c >= kAlphabetEnd || bytes[c] < 0) return std::nullopt;
    return static_cast<char>(bytes[c]);
}

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << 32U | right;
}

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, Options options)
    : vocabulary_(&vocabulary), options_(options) {
    for (unsigned byte = 0; byte < 256; ++byte) {
        std::string character;
        append_utf8(byte_alphabet()[byte], character);
        byte_symbols_[byte] = intern(character);
    }
}

tl::expected<Bpe, TokenizerError> Bpe::from_merges(const Vocabulary& vocabulary,
                                                   std::vector<std::string> merges,
                                                   Options options) {
    constexpr std::string_view kKey = "tokenizer.ggml.merges";
    if (merges.size() > 2 * kVocabularyMax) {
        return tl::make_unexpected(TokenizerError{
            std::string(kKey), "the file has " + std::to_string(merges.size()) + " merges"});
    }
    Bpe bpe(vocabulary, options);
    bpe.merges_.reserve(merges.size());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const std::string_view text = merges[rank];
        // A symbol may be the space itself in odd files, hence from byte 1 on.
        const std::size_t space = text.empty() ? std::string_view::npos : text.find(' ', 1);
        if (space == std::string_view::npos || space + 1 == text.size()) {
            return tl::make_unexpected(TokenizerError{
                std::string(kKey),
                "merge " + std::to_string(rank) + " is not two parts with a space between"});
        }
        const std::string_view left = text.substr(0, space), right = text.substr(space + 1);
        const Merge merge{static_cast<std::uint32_t>(rank),
                          bpe.intern(std::string(left).append(right))};
        // A pair that occurs twice keeps its first rank.
        bpe.merges_.try_emplace(pair_key(bpe.intern(left), bpe.intern(right)), merge);
    }
    return bpe;
}

Bpe::Symbol Bpe::intern(std::string_view text) {
    if (const auto id = vocabulary_->find_plain(text)) return static_cast<Symbol>(*id);
    const auto next =
        static_cast<Symbol>(vocabulary_->size()) + static_cast<Symbol>(extra_texts_.size());
    const auto [entry, is_new] = extra_ids_.try_emplace(std::string(text), next);
    if (is_new) extra_texts_.emplace_back(text);
    return entry->second;
}

std::string_view Bpe::symbol_text(Symbol symbol) const {
    const auto size = static_cast<Symbol>(vocabulary_->size());
    if (symbol < size) return vocabulary_->text(static_cast<TokenId>(symbol));
    return extra_texts_[symbol - size];
}

void Bpe::append_tokens(Symbol symbol, std::vector<TokenId>& ids) const {
    if (symbol < static_cast<Symbol>(vocabulary_->size())) {
        ids.push_back(static_cast<TokenId>(symbol));
        return;
    }
    // A merge result that is no token falls back to its characters, as the format's readers do.
    const std::string_view text = symbol_text(symbol);
    for (std::size_t position = 0; position < text.size();) {
        const Utf8Step step = decode_utf8(text, position);
        const auto id = vocabulary_->find_plain(text.substr(position, step.length));
        if (id) {
            ids.push_back(*id);
        } else if (options_.unknown_id) {
            ids.push_back(*options_.unknown_id);
        }
        position += step.length;
    }
}

void Bpe::encode(std::string_view fragment, std::vector<TokenId>& ids) const {
    MergeQueue<Symbol, std::uint32_t> queue;
    using Join = MergeQueue<Symbol, std::uint32_t>::Join;
    const auto pair_of = [&](Symbol left, Symbol right) -> std::optional<Join> {
        const auto merge = merges_.find(pair_key(left, right));
        if (merge == merges_.end()) return std::nullopt;
        return Join{merge->second.rank, merge->second.joined};
    };
    std::vector<Symbol> symbols;
    std::size_t begin = 0;
    for (const std::size_t end : split_pieces(options_.pre, fragment)) {
        const std::string_view piece = fragment.substr(begin, end - begin);
        begin = end;
        symbols.clear();
        for (const char c : piece)
            symbols.push_back(byte_symbols_[static_cast<unsigned char>(c)]);
        if (options_.ignore_merges) {
            std::string mapped;
            for (const char c : piece) {
                append_utf8(byte_alphabet()[static_cast<unsigned char>(c)], mapped);
            }
            if (const auto id = vocabulary_->find_plain(mapped)) {
                ids.push_back(*id);
                continue;
            }
        }
        queue.run(symbols, pair_of);
        for (const Symbol symbol : symbols)
            append_tokens(symbol, ids);
    }
}

std::string Bpe::bytes_of(std::string_view token_text) {
    std::string bytes;
    for (std::size_t position = 0; position < token_text.size();) {
        const Utf8Step step = decode_utf8(token_text, position);
        const auto byte =
            step.status == Utf8Status::kWhole ? byte_of(step.code_point) : std::nullopt;
        if (byte) {
            bytes.push_back(*byte);
        } else {
            bytes.append(token_text.substr(position, step.length));
        }
        position += step.length;
    }
    return bytes;
}

}  // namespace replica

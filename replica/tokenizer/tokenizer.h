// Text to token ids and back, for the two tokenizer kinds of GGUF files.
//
//   text ─▶ special tokens cut out (raw bytes, longest first)
//        ─▶ each raw fragment: byte-level BPE: pre-tokeniser pieces ─▶ byte map ─▶ merges by rank
//                              SPM: spaces become U+2581 ─▶ merges by score ─▶ byte tokens
//
// No piece crosses a special token. Encoding never fails: bytes that are not UTF-8 become U+FFFD.
// The cost is n log n in the length of the text, whatever the text is. No Unicode normalisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "replica/byte_span.h"
#include "replica/tokenizer/tokenizer_data.h"

namespace replica {

struct EncodeOptions {
    bool add_special = false;   // bos in front and eos behind, where the model wants them
    bool parse_special = true;  // false: control tokens stay text; user-defined ones never do
};

struct TokenizerOptions {
    std::string pre_override;  // use this pre-tokeniser whatever the file says; empty = the file's
};

/// Immutable after construction; any thread.
class Tokenizer {
public:
    /// Checks `data` (lengths, ids, merges, byte tokens, known model and pre-tokeniser).
    static tl::expected<Tokenizer, TokenizerError> from_data(TokenizerData data,
                                                             const TokenizerOptions& options = {});
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const;
    /// Like encode with parse_special, except that no control token is made from bytes inside
    /// `data_spans` (sorted, disjoint): a request cannot end its own turn by spelling <|im_end|>.
    std::vector<TokenId> encode(std::string_view text, std::span<const ByteSpan> data_spans,
                                const EncodeOptions& options) const;

    /// Valid UTF-8: broken bytes become U+FFFD, exactly as StreamDecoder gives them.
    /// Precondition: every id is in the vocabulary.
    struct DecodeOptions {
        bool render_special = false;  // control tokens as their text instead of nothing
    };
    std::string decode(std::span<const TokenId> ids, const DecodeOptions& options) const;
    /// The bytes one token stands for, perhaps a part of a character; control, unknown and unused
    /// tokens give nothing unless `render_special`.
    std::string piece(TokenId id, const DecodeOptions& options) const;

    /// The token whose text in the file is exactly `text` (special tokens: their plain spelling).
    std::optional<TokenId> find(std::string_view text) const;
    TokenType type(TokenId id) const;
    std::int32_t vocabulary_size() const;
    /// First id of the unused padding at the end; logits from here on are never sampled.
    std::int32_t vocabulary_used() const;
    std::optional<TokenId> bos() const;
    std::optional<TokenId> eos() const;
    /// The plain spelling of bos and eos for templates; empty when there is none.
    std::string_view bos_text() const;
    std::string_view eos_text() const;
    /// Ids that end a generation: eos, eot, eom of the file, <|im_end|> and <|endoftext|>. Sorted.
    const std::vector<TokenId>& end_tokens() const;
    /// What was odd in the file but tolerated, one sentence each.
    const std::vector<std::string>& warnings() const;

private:
    class Impl;
    explicit Tokenizer(std::unique_ptr<const Impl> impl);
    std::unique_ptr<const Impl> impl_;
};

}  // namespace replica

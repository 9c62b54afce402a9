// Which tokens a piece of the answer is made of: for log-probabilities, one entry for each token
// with at least one byte in the text that is returned.
//
//   tokens    │ ga │ l │ lop │ \xF0\x9F │ \x90\xB4 │      bytes, perhaps parts of characters
//   decoded   ├──────────────┼─────────────────────┤      every token covers whole characters
//   origins   ├ reasoning ┤ dropped ├── content ───┤      what the parser made of them
//   taken     ├ … ┤             ├ … ┤                     as the text leaves, piece by piece
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "replica/chat/output_parser.h"
#include "replica/engine/engine.h"
#include "replica/tokenizer/stream_decoder.h"

namespace replica::server {

/// One entry; its texts are looked up where it is written.
struct TokenEntry {
    TokenId token = -1;
    std::int64_t text_offset = 0;  // characters (code points) decoded before the token's first
    kernels::RowLogprobs logprobs;
};

/// One thread at a time. Memory: the tokens of the text that is not decided yet.
class TokenLedger {
public:
    using Kind = chat::TextOrigin::Kind;

    /// Decodes a token's bytes as decoder.feed() would, and notes which characters are its own.
    void feed(const TokenEntry& entry, std::string_view bytes, StreamDecoder& decoder,
              std::string& text);
    /// The same for decoder.finish().
    void finish(StreamDecoder& decoder, std::string& text);
    std::size_t decoded_bytes() const { return decoded_bytes_; }

    /// `origin` is in bytes of all decoded text; ascending.
    void add_origin(const chat::TextOrigin& origin);
    /// The next `bytes` bytes of that kind leave: their tokens are appended to `out`, each once for
    /// a kind.
    void take(Kind kind, std::size_t bytes, std::vector<TokenEntry>& out);
    /// No origin will begin before this byte of the decoded text any more.
    void forget_before(std::size_t position);

private:
    struct Covered {
        TokenEntry entry;
        ByteSpan span;  // of the decoded text; its end is still growing while it owns bytes
        bool is_listed[2] = {false, false};  // by kind
    };
    void cover(std::size_t owners, std::size_t bytes);
    std::deque<ByteSpan>& waiting(Kind kind) { return waiting_[static_cast<std::size_t>(kind)]; }

    std::deque<Covered> tokens_;
    std::vector<std::size_t> owners_;  // token numbers of the decoder's waiting bytes
    std::size_t forgotten_ = 0;        // the number of tokens_.front()
    std::size_t decoded_bytes_ = 0;
    std::int64_t decoded_characters_ = 0;  // code points
    std::deque<ByteSpan> waiting_[2];      // origins that have not left, by kind
};

}  // namespace replica::server

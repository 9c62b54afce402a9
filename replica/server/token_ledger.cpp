#include "replica/server/token_ledger.h"

#include <algorithm>
#include <cassert>

namespace replica::server {
namespace {

constexpr std::size_t kReplacementBytes = 3;  // U+FFFD in UTF-8

}  // namespace

/// The next character, `bytes` long, is made of what the first `owners` owners have waiting.
void TokenLedger::cover(std::size_t owners, std::size_t bytes) {
    const std::size_t end = decoded_bytes_ + bytes;
    for (std::size_t i = 0; i < owners; ++i) {
        assert(owners_[i] >= forgotten_ && "a token with undecoded bytes was forgotten");
        Covered& token = tokens_[owners_[i] - forgotten_];
        if (token.span.begin == token.span.end) {
            token.span.begin = decoded_bytes_;
            token.entry.text_offset = decoded_characters_;
        }
        token.span.end = end;
    }
    owners_.erase(owners_.begin(), owners_.begin() + static_cast<std::ptrdiff_t>(owners));
    decoded_bytes_ = end;
    ++decoded_characters_;
}

void TokenLedger::feed(const TokenEntry& entry, std::string_view bytes, StreamDecoder& decoder,
                       std::string& text) {
    if (bytes.empty()) return;
    const std::size_t number = forgotten_ + tokens_.size();
    tokens_.push_back({entry, {decoded_bytes_, decoded_bytes_}});
    // Byte by byte: what comes out with a byte is made of the waiting ones and of it.
    for (const char byte : bytes) {
        const std::string whole = std::string(decoder.pending()) + byte;
        const std::size_t before = text.size();
        owners_.push_back(number);
        decoder.feed({&byte, 1}, text);
        const std::size_t grown = text.size() - before;
        if (grown == 0) continue;
        if (text.compare(before, grown, whole) == 0 || owners_.size() == 1) {
            cover(owners_.size(), grown);
            continue;
        }
        // The waiting bytes were no character: one U+FFFD. The new byte starts afresh.
        cover(owners_.size() - 1, kReplacementBytes);
        if (decoder.pending().empty()) cover(1, grown - kReplacementBytes);
    }
}

void TokenLedger::finish(StreamDecoder& decoder, std::string& text) {
    const std::size_t before = text.size();
    decoder.finish(text);
    if (text.size() > before) cover(owners_.size(), text.size() - before);
}

void TokenLedger::add_origin(const chat::TextOrigin& origin) {
    if (origin.bytes.begin < origin.bytes.end) waiting(origin.kind).push_back(origin.bytes);
}

void TokenLedger::take(Kind kind, std::size_t bytes, std::vector<TokenEntry>& out) {
    std::deque<ByteSpan>& spans = waiting(kind);
    while (bytes > 0) {
        assert(!spans.empty() && "text leaves that no token made");
        ByteSpan& span = spans.front();
        const std::size_t size = std::min(bytes, span.end - span.begin);
        const std::size_t end = span.begin + size;
        for (Covered& token : tokens_) {
            if (token.span.begin >= end) break;
            bool& is_listed = token.is_listed[static_cast<std::size_t>(kind)];
            if (token.span.end <= span.begin || is_listed) continue;
            is_listed = true;
            out.push_back(token.entry);
        }
        span.begin = end;
        bytes -= size;
        if (span.begin == span.end) spans.pop_front();
    }
}

void TokenLedger::forget_before(std::size_t position) {
    for (const std::deque<ByteSpan>& spans : waiting_) {
        if (!spans.empty()) position = std::min(position, spans.front().begin);
    }
    while (!tokens_.empty() && tokens_.front().span.end <= position) {
        if (!owners_.empty() && owners_.front() == forgotten_) break;
        tokens_.pop_front();
        ++forgotten_;
    }
}

}  // namespace replica::server

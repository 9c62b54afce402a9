#include "proto/chunk_decoder.h"

#include <algorithm>
#include <cassert>

namespace proto {
namespace {

tl::unexpected<GateError> refuse(std::string message,
                                 GateReason reason = GateReason::kChunkFraming) {
    return tl::unexpected<GateError>(
        GateError{reason, {ErrorCode::kBadRequest, std::move(message), {}, {}, {}}});
}

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

tl::expected<ChunkDecoder::Step, GateError> ChunkDecoder::step(std::string_view bytes) {
    assert(state_ != State::kComplete && "a body ends once");
    Step step;
    while (step.consumed < bytes.size()) {
        if (state_ == State::kData) {
            const std::size_t count =
                std::min<std::uint64_t>(chunk_left_, bytes.size() - step.consumed);
            step.data = bytes.substr(step.consumed, count);
            step.consumed += count;
            chunk_left_ -= count;
            body_bytes_ += count;
            if (chunk_left_ == 0) state_ = State::kDataCr;
            return step;
        }
        ++framing_bytes_;
        if (framing_bytes_ > kChunkFramingBytesFree + body_bytes_) {
            return refuse("The body has more chunk framing than data.");
        }
        if (auto taken = take_framing(bytes[step.consumed]); !taken) {
            return tl::unexpected(taken.error());
        }
        ++step.consumed;
        if (state_ == State::kComplete) {
            step.is_complete = true;
            return step;
        }
    }
    return step;
}

tl::expected<void, GateError> ChunkDecoder::take_framing(char c) {
    switch (state_) {
        case State::kSize:
            return take_size(c);
        case State::kExtension:
            if (c == '\r') {
                state_ = State::kSizeLf;
                return {};
            }
            if (++extension_bytes_ > kChunkExtensionBytesMax) {
                return refuse("A chunk extension is too long.");
            }
            if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F) {
                return refuse("A control byte in a chunk extension.");
            }
            return {};
        case State::kSizeLf:
            return end_of_size_line(c);
        case State::kDataCr:
            if (c != '\r') return refuse("A chunk is longer than its size.");
            state_ = State::kDataLf;
            return {};
        case State::kDataLf:
            if (c != '\n') return refuse("A chunk does not end with CR LF.");
            state_ = State::kSize;
            digit_count_ = 0;
            extension_bytes_ = 0;
            return {};
        case State::kTrailer:
            return take_trailer(c);
        case State::kData:
        case State::kComplete:
            break;
    }
    assert(false && "states without framing");
    return {};
}

tl::expected<void, GateError> ChunkDecoder::take_size(char c) {
    const int digit = hex_value(c);
    if (digit >= 0) {
        if (++digit_count_ > kChunkSizeDigitsMax) return refuse("A chunk size is too long.");
        if ((chunk_left_ >> 60U) != 0) return refuse("A chunk size is too large.");
        chunk_left_ = (chunk_left_ << 4U) | static_cast<std::uint64_t>(digit);
        return {};
    }
    if (digit_count_ > 0 && c == ';') {
        state_ = State::kExtension;
        return {};
    }
    if (digit_count_ > 0 && c == '\r') {
        state_ = State::kSizeLf;
        return {};
    }
    return refuse("A malformed chunk size.");
}

tl::expected<void, GateError> ChunkDecoder::end_of_size_line(char c) {
    if (c != '\n') return refuse("A chunk size does not end with CR LF.");
    state_ = chunk_left_ == 0 ? State::kTrailer : State::kData;
    return {};
}

tl::expected<void, GateError> ChunkDecoder::take_trailer(char c) {
    trailer_ += c;
    // Looking at whole lines only spares a scan per byte; the bound holds before it is stored.
    if (c != '\n' && trailer_.size() <= kTrailerBytesMax) return {};
    auto done = trailer_scanner_.scan(trailer_);
    if (!done) {
        GateError error = done.error();
        error.reason = GateReason::kTrailer;
        return tl::unexpected(std::move(error));
    }
    if (!*done) return {};
    state_ = State::kComplete;
    for (std::size_t begin = 0; begin < trailer_.size();) {
        const std::size_t end = trailer_.find("\r\n", begin);
        const std::string_view line = std::string_view(trailer_).substr(begin, end - begin);
        const std::string_view name = line.substr(0, line.find(':'));
        if (equal_no_case(name, "content-length") || equal_no_case(name, "transfer-encoding")) {
            return refuse("A trailer may not change the framing.", GateReason::kTrailer);
        }
        begin = end + 2;
    }
    return {};
}

}  // namespace proto

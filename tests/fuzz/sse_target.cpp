// The SSE decoder and the relay's boundary scanner.
//
//   byte 0: seed of the cuts   byte 1: the limit of an event, 0 is the usual one   rest: the stream
//
// Holds: the events and the verdict do not depend on how the stream was cut; no event is larger
// than its limit, nor is what waits for the rest of one; the scanner finds the same boundary
// however it is fed, and what lies before it holds every complete event; what we write reads back
// as it was.
#include <cassert>
#include <string>
#include <string_view>
#include <vector>

#include "proto/sse.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

struct Decoded {
    std::vector<proto::SseEvent> events;
    bool is_failed = false;
    bool operator==(const Decoded&) const = default;
};

class Reading {
public:
    explicit Reading(std::size_t event_bytes_max)
        : event_bytes_max_(event_bytes_max), decoder_(event_bytes_max) {}

    void feed(std::string_view piece) {
        decoder_.feed(piece);
        while (auto event = decoder_.next()) {
            // Its line feeds count for less than the field names that are gone.
            assert(event->name.size() + event->data.size() <= event_bytes_max_);
            result_.events.push_back(*std::move(event));
        }
        assert(decoder_.held_bytes() <= event_bytes_max_ && "what waits is bounded");
    }
    Decoded result() {
        result_.is_failed = decoder_.is_failed();
        if (result_.is_failed) {
            decoder_.feed("data: late\n\n");
            assert(!decoder_.next() && decoder_.held_bytes() == 0 &&
                   "a failed decoder takes nothing");
        }
        return result_;
    }

private:
    std::size_t event_bytes_max_;
    proto::SseDecoder decoder_;
    Decoded result_;
};

Decoded decode(std::string_view stream, std::size_t event_bytes_max) {
    Reading reading(event_bytes_max);
    reading.feed(stream);
    return reading.result();
}

Decoded decode_pieces(std::string_view stream, std::size_t event_bytes_max, std::uint64_t seed) {
    Reading reading(event_bytes_max);
    fuzz::in_pieces(stream, seed, [&](std::string_view piece) { reading.feed(piece); });
    return reading.result();
}

struct Boundary {
    std::size_t at = 0;
    bool is_at_end = true;
    bool operator==(const Boundary&) const = default;
};

Boundary find_boundary(std::string_view stream, std::uint64_t seed, bool in_one_piece) {
    proto::SseBoundaryScanner scanner;
    Boundary boundary;
    std::size_t fed = 0;
    const auto feed = [&](std::string_view piece) {
        const std::size_t complete = scanner.feed(piece);
        assert(complete <= piece.size());
        if (complete > 0) boundary.at = fed + complete;
        fed += piece.size();
        assert(scanner.is_at_boundary() == (boundary.at == fed) && "nothing is left to hold");
    };
    if (in_one_piece)
        feed(stream);
    else
        fuzz::in_pieces(stream, seed, feed);
    boundary.is_at_end = scanner.is_at_boundary();
    return boundary;
}

/// The lines of `text` as one, joined by line feeds: what becomes of data on its way.
std::string with_line_feeds(std::string_view text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool is_crlf = text.substr(i, 2) == "\r\n";
        result += text[i] == '\r' ? '\n' : text[i];
        if (is_crlf) ++i;
    }
    return result;
}

void check_writers(std::string_view text) {
    const std::string data = with_line_feeds(text);
    const Decoded plain = decode(proto::sse_data(text), proto::kSseEventBytesMax);
    assert(plain.events == std::vector<proto::SseEvent>({{"", data}}));
    const Decoded named = decode(proto::sse_event("error", text), proto::kSseEventBytesMax);
    assert(named.events == std::vector<proto::SseEvent>({{"error", data}}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint64_t seed = input.byte();
    const std::size_t limit_byte = input.byte();
    const std::size_t limit = limit_byte == 0 ? proto::kSseEventBytesMax : limit_byte;
    const std::string_view stream = input.rest();

    const Decoded whole = decode(stream, limit);
    assert(decode_pieces(stream, limit, 0) == whole);
    assert(decode_pieces(stream, limit, seed + 1) == whole);

    const Boundary boundary = find_boundary(stream, 0, true);
    assert(find_boundary(stream, 0, false) == boundary);
    assert(find_boundary(stream, seed + 1, false) == boundary);
    if (!whole.is_failed) assert(decode(stream.substr(0, boundary.at), limit) == whole);

    check_writers(stream);
    return 0;
}

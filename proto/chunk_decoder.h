// chunk_decoder: part (c) of the HTTP gate, the framing of chunked bodies, both directions.
//
//   size [;extension] CR LF  data CR LF  …  0 CR LF  [trailer fields CR LF]  CR LF
//
// A sender can wrap one byte of body in kilobytes of framing; so framing has a budget:
// kChunkFramingBytesFree plus one byte per body byte so far. Trailers are read and dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "proto/http_gate.h"

namespace proto {

class ChunkDecoder {
public:
    struct Step {
        std::size_t consumed = 0;  // bytes of the input that are done with
        std::string_view data;     // body bytes inside the input, possibly none
        bool is_complete = false;  // the body has ended; bytes after `consumed` are not ours
    };
    /// Takes bytes until a piece of data, the end of the body or the end of the input.
    /// Call again with the rest while `consumed` < the input's size and the body is not complete.
    tl::expected<Step, GateError> step(std::string_view bytes);

    [[nodiscard]] std::uint64_t body_bytes() const { return body_bytes_; }

private:
    enum class State { kSize, kExtension, kSizeLf, kData, kDataCr, kDataLf, kTrailer, kComplete };

    tl::expected<void, GateError> take_framing(char c);
    tl::expected<void, GateError> take_size(char c);
    tl::expected<void, GateError> take_trailer(char c);
    tl::expected<void, GateError> end_of_size_line(char c);

    State state_ = State::kSize;
    std::uint64_t chunk_left_ = 0;
    std::uint64_t body_bytes_ = 0;
    std::uint64_t framing_bytes_ = 0;
    std::size_t digit_count_ = 0;
    std::size_t extension_bytes_ = 0;
    std::string trailer_;
    HeadScanner trailer_scanner_{HeadScanner::Kind::kTrailer,
                                 HeadLimits{kTrailerBytesMax, kTrailerFieldsMax}};
};

}  // namespace proto

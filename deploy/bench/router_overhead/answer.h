// The agreement between the two ends of the benchmark: what a request asks of the mock, and the
// bytes that must come back. Both ends make the same text, so that the client can compare every
// byte that passed through whatever stood between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deploy::overhead {

/// What a request asks for. It travels in the text of the first message, the one part of a request
/// that every router passes on.
struct Plan {
    std::uint32_t events = 1;   // of a stream; words of a plain answer
    std::uint32_t burst = 1;    // events in one write
    std::uint32_t gap_us = 0;   // between writes; 0 is as fast as the other side takes them
    std::uint32_t ttft_us = 0;  // before the first byte
    std::uint32_t stream = 0;   // 1: an event stream, 0: one answer
};

inline constexpr std::size_t kEventsMax = 4096;
/// The mark stands within this much of the body, whatever a router did to the order of fields.
inline constexpr std::size_t kMarkWithin = 4096;

/// "bench events=8 burst=1 gap_us=0 ttft_us=0 stream=1;"
std::string mark_of(const Plan& plan);
/// False: there is no mark in `text`.
bool read_mark(std::string_view text, Plan& plan);

/// All events that a stream may have, end to end, and where each begins. Event n says n, so that a
/// lost, doubled or moved one is seen.
class Answers {
public:
    Answers();
    /// Events [first, last) as they stand on the wire.
    [[nodiscard]] std::string_view events(std::size_t first, std::size_t last) const {
        return std::string_view(text_).substr(begins_.at(first),
                                              begins_.at(last) - begins_.at(first));
    }
    /// The end of every stream.
    static std::string_view tail();
    /// A whole answer that is no stream.
    static std::string plain(const Plan& plan);

private:
    std::string text_;
    std::vector<std::size_t> begins_;  // [kEventsMax + 1]
};

}  // namespace deploy::overhead

// sse: server-sent events: writing, reading, and finding where events end.
//
// A line ends with LF, CR LF or CR; an empty line ends an event. Readers take pieces cut anywhere.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "proto/error.h"
#include "proto/limits.h"

namespace proto {

inline constexpr std::string_view kSsePing = ": ping\n\n";
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseContentType = "text/event-stream";

/// "data: …\n\n"; line breaks in `data` become further data lines.
std::string sse_data(std::string_view data);
/// "event: NAME\ndata: …\n\n"
std::string sse_event(std::string_view name, std::string_view data);
/// The event that ends a stream which can no longer end well. [DONE] is not sent after it.
std::string sse_error(const ApiError& error);

struct SseEvent {
    std::string name;  // "" when the event has none ("message")
    std::string data;  // lines joined by LF

    bool operator==(const SseEvent&) const = default;
};

/// Reads events from pieces cut anywhere. An event of more than `event_bytes_max` sets the decoder
/// to failed: it takes nothing more.
class SseDecoder {
public:
    explicit SseDecoder(std::size_t event_bytes_max = kSseEventBytesMax)
        : event_bytes_max_(event_bytes_max) {}

    void feed(std::string_view bytes);
    /// The next complete event. Comments and events without data give none.
    std::optional<SseEvent> next();
    [[nodiscard]] bool is_failed() const { return is_failed_; }
    /// Memory in use for text: after next() has given nothing, at most `event_bytes_max`.
    [[nodiscard]] std::size_t held_bytes() const {
        return pending_.size() - position_ + line_.size() + name_.size() + data_.size();
    }

private:
    void end_line();
    void fail();

    std::size_t event_bytes_max_;
    std::string pending_;  // fed, not yet looked at
    std::size_t position_ = 0;
    std::string line_;
    std::string name_, data_;
    std::size_t event_bytes_ = 0;
    bool has_data_ = false, after_cr_ = false, is_first_line_ = true, is_failed_ = false;
    std::optional<SseEvent> ready_;
};

/// Line ends of one text, looked for in rising order. LF and CR are each searched ahead on their
/// own, so that a text without CR is not searched for one again at every line.
class SseLineEnds {
public:
    explicit SseLineEnds(std::string_view text)
        : text_(text), lf_(text.find('\n')), cr_(text.find('\r')) {}

    /// The first LF or CR at or after `from`; the text's size when there is none.
    std::size_t next(std::size_t from) {
        if (lf_ < from) lf_ = text_.find('\n', from);
        if (cr_ < from) cr_ = text_.find('\r', from);
        return std::min({lf_, cr_, text_.size()});
    }

private:
    std::string_view text_;
    std::size_t lf_, cr_;  // npos: no more
};

/// For a relay: where, in the bytes as they pass, events end. Keeps its place between pieces.
class SseBoundaryScanner {
public:
    /// Returns how many of `bytes` belong to complete events: the position after the last event end
    /// in this piece, 0 when there is none. The rest is to be held until a later call.
    std::size_t feed(std::string_view bytes);
    /// Whether all bytes so far are complete events.
    [[nodiscard]] bool is_at_boundary() const { return is_at_boundary_; }

private:
    bool line_is_empty_ = true, after_cr_ = false, is_at_boundary_ = true;
};

}  // namespace proto

// Cuts a passing event stream at event ends, byte for byte, and notices how it ends.
//
//   upstream bytes ──feed()──▶ whole events, to be sent at once
//                              the unfinished rest is held back (at most `hold_max`, then passed)
//
// Holding back half an event is what makes a clean end possible when the replica dies: the client
// gets whole events, then one error event. Nothing is re-encoded. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/sse.h"
#include "router/answer_end.h"

namespace router {

class StreamRelay {
public:
    explicit StreamRelay(std::size_t hold_max) : hold_max_(hold_max) {}

    /// What to send now; empty while an event is unfinished. Valid until the next call, or until
    /// `bytes` go away.
    [[nodiscard]] std::string_view feed(std::string_view bytes);

    /// The stream said that it is complete: `[DONE]`, or an error event of the replica's own.
    [[nodiscard]] bool has_ended() const { return has_done_ || has_error_; }
    [[nodiscard]] bool has_error() const { return has_error_; }

    /// Whether what was sent so far ends at an event end: the only place to insert anything.
    [[nodiscard]] bool is_at_boundary() const { return !is_passing_raw_; }
    [[nodiscard]] std::size_t held_bytes() const { return held_.size(); }

    /// What the last events before `[DONE]` said.
    [[nodiscard]] const LastEvents& last_events() const { return last_; }

private:
    void look_for_end(std::string_view events);
    void keep(std::string_view data);

    std::size_t hold_max_;
    proto::SseBoundaryScanner scanner_;
    std::string held_;
    std::string out_;
    LastEvents last_;
    bool is_passing_raw_ = false;  // inside an event too long to hold
    bool has_done_ = false;
    bool has_error_ = false;
};

}  // namespace router

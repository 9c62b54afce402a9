#include "router/stream_relay.h"

#include <utility>

namespace router {
namespace {

/// True when `line` is `name`, a colon, at most one space, and `value`.
bool is_field(std::string_view line, std::string_view name, std::string_view value) {
    if (line.size() <= name.size() || !line.starts_with(name) || line[name.size()] != ':') {
        return false;
    }
    line.remove_prefix(name.size() + 1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    return line == value;
}

}  // namespace

std::string_view StreamRelay::feed(std::string_view bytes) {
    const std::size_t complete = scanner_.feed(bytes);
    if (complete == 0) {
        if (is_passing_raw_) return bytes;
        held_.append(bytes);
        if (held_.size() <= hold_max_) return {};
        is_passing_raw_ = true;
        out_ = std::exchange(held_, {});
        return out_;
    }
    const std::string_view rest = bytes.substr(complete);
    std::string_view events = bytes.substr(0, complete);
    if (!is_passing_raw_ && !held_.empty()) {
        held_.append(events);
        out_.swap(held_);
        held_.clear();
        events = out_;
    }
    held_.assign(rest);
    is_passing_raw_ = false;
    look_for_end(events);
    return events;
}

void StreamRelay::look_for_end(std::string_view events) {
    proto::SseLineEnds line_ends(events);
    for (std::size_t begin = 0; begin < events.size();) {
        const std::size_t end = line_ends.next(begin);
        const std::string_view line = events.substr(begin, end - begin);
        has_done_ = has_done_ || is_field(line, "data", "[DONE]");
        has_error_ = has_error_ || is_field(line, "event", "error");
        begin = end + 1;
    }
}

}  // namespace router

#include "router/stream_relay.h"

#include <utility>

namespace router {
namespace {

/// True when `events` has a line that is `name`, a colon, at most one space, and `value`.
bool has_line(std::string_view events, std::string_view name, std::string_view value) {
    const auto is_line_end = [](char c) { return c == '\n' || c == '\r'; };
    for (std::size_t at = events.find(value); at != std::string_view::npos;
         at = events.find(value, at + 1)) {
        const std::size_t end = at + value.size();
        if (end < events.size() && !is_line_end(events[end])) continue;
        std::size_t begin = at;
        if (begin > 0 && events[begin - 1] == ' ') --begin;
        if (begin < name.size() + 1 || events[begin - 1] != ':') continue;
        begin -= name.size() + 1;
        if (events.substr(begin, name.size()) != name) continue;
        if (begin == 0 || is_line_end(events[begin - 1])) return true;
    }
    return false;
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
    has_done_ = has_done_ || has_line(events, "data", "[DONE]");
    has_error_ = has_error_ || has_line(events, "event", "error");
}

}  // namespace router

#include "router/stream_relay.h"

#include <array>
#include <optional>
#include <utility>

namespace router {
namespace {

/// The value of the field when `line` is `name`, a colon, at most one space, and the value.
std::optional<std::string_view> field_of(std::string_view line, std::string_view name) {
    if (line.size() <= name.size() || !line.starts_with(name) || line[name.size()] != ':') {
        return std::nullopt;
    }
    line.remove_prefix(name.size() + 1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    return line;
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
    std::array<std::string_view, 2> last;  // copied once, however many events have come together
    for (std::size_t begin = 0; begin < events.size();) {
        const std::size_t end = line_ends.next(begin);
        const std::string_view line = events.substr(begin, end - begin);
        begin = end + 1;
        if (const auto data = field_of(line, "data")) {
            if (*data == "[DONE]") {
                has_done_ = true;
            } else {
                last[0] = std::exchange(last[1], *data);
            }
        }
        has_error_ = has_error_ || field_of(line, "event") == "error";
    }
    for (const std::string_view data : last) {
        if (data.data() != nullptr) keep(data);
    }
}

void StreamRelay::keep(std::string_view data) {
    last_[0].swap(last_[1]);
    last_[1].assign(data.size() <= kLastEventBytesMax ? data : std::string_view());
}

}  // namespace router

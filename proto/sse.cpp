#include "proto/sse.h"

#include <utility>

namespace proto {

std::string sse_data(std::string_view data) {
    std::string out;
    out.reserve(data.size() + 8);
    while (true) {
        const std::size_t end = data.find_first_of("\r\n");
        out += "data: ";
        out += data.substr(0, end);
        out += '\n';
        if (end == std::string_view::npos) break;
        const bool is_crlf = data.substr(end, 2) == "\r\n";
        data.remove_prefix(end + (is_crlf ? 2 : 1));
    }
    out += '\n';
    return out;
}

std::string sse_event(std::string_view name, std::string_view data) {
    std::string out = "event: ";
    out += name;
    out += '\n';
    out += sse_data(data);
    return out;
}

std::string sse_error(const ApiError& error) {
    return sse_event("error", error_body(error));
}

void SseDecoder::feed(std::string_view bytes) {
    if (is_failed_) return;
    pending_.erase(0, position_);
    position_ = 0;
    pending_ += bytes;
}

std::optional<SseEvent> SseDecoder::next() {
    while (position_ < pending_.size() && !is_failed_) {
        const char c = pending_[position_++];
        const bool is_tail_of_crlf = std::exchange(after_cr_, c == '\r') && c == '\n';
        if (is_tail_of_crlf) continue;
        if (c == '\r' || c == '\n') {
            end_line();
            if (ready_) return std::exchange(ready_, std::nullopt);
            continue;
        }
        // The rest of the line in one piece: lines are long, line ends are rare.
        const std::size_t begin = position_ - 1;
        const std::size_t end = std::min(pending_.find_first_of("\r\n", begin), pending_.size());
        event_bytes_ += end - begin;
        if (event_bytes_ > event_bytes_max_) {
            fail();
            break;
        }
        line_.append(pending_, begin, end - begin);
        position_ = end;
    }
    return std::nullopt;
}

void SseDecoder::fail() {
    *this = SseDecoder(event_bytes_max_);
    is_failed_ = true;
}

void SseDecoder::end_line() {
    std::string_view line = line_;
    if (std::exchange(is_first_line_, false) && line.starts_with("\xEF\xBB\xBF")) {
        line.remove_prefix(3);  // a byte order mark is allowed once, at the very start
    }
    if (line.empty()) {
        if (has_data_) ready_ = SseEvent{std::move(name_), std::move(data_)};
        name_.clear();
        data_.clear();
        has_data_ = false;
        event_bytes_ = 0;
        line_.clear();
        return;
    }
    const std::size_t colon = line.find(':');
    const std::string_view field = line.substr(0, colon);
    std::string_view value;
    if (colon != std::string_view::npos) value = line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (field == "data") {
        if (has_data_) data_ += '\n';
        data_ += value;
        has_data_ = true;
    } else if (field == "event") {
        name_ = value;
    }  // a comment has the empty field name; id and retry mean nothing here
    line_.clear();
}

std::size_t SseBoundaryScanner::feed(std::string_view bytes) {
    std::size_t boundary = 0;
    std::size_t position = 0;
    SseLineEnds line_ends(bytes);
    while (position < bytes.size()) {
        const char c = bytes[position++];
        if (std::exchange(after_cr_, c == '\r') && c == '\n') {
            // The second half of a CR LF belongs to the line that the CR ended.
            if (is_at_boundary_) boundary = position;
            continue;
        }
        if (c == '\r' || c == '\n') {
            is_at_boundary_ = line_is_empty_;
            if (is_at_boundary_) boundary = position;
            line_is_empty_ = true;
            continue;
        }
        is_at_boundary_ = false;
        line_is_empty_ = false;
        position = line_ends.next(position);
    }
    return boundary;
}

}  // namespace proto

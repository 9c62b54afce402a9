#include "deploy/launcher/output_log.h"

#include <algorithm>

namespace deploy {

std::vector<std::string> OutputLog::feed(std::string_view bytes) {
    std::vector<std::string> lines;
    for (const char c : bytes) {
        if (c == '\n') {
            keep(open_);
            lines.push_back(std::move(open_));
            open_.clear();
        } else if (c != '\r' && open_.size() < kLineBytesMax) {
            const auto byte = static_cast<unsigned char>(c);
            open_ += (byte < 0x20 && c != '\t') || byte == 0x7f ? '?' : c;
        }
    }
    return lines;
}

std::string OutputLog::finish() {
    std::string line = std::move(open_);
    open_.clear();
    if (!line.empty()) keep(line);
    return line;
}

std::vector<std::string> OutputLog::last(std::size_t count) const {
    const std::size_t skip = ring_.size() - std::min(count, ring_.size());
    return {ring_.begin() + static_cast<std::ptrdiff_t>(skip), ring_.end()};
}

void OutputLog::keep(const std::string& line) {
    ring_.push_back(line);
    ring_bytes_ += line.size() + 1;
    while (ring_bytes_ > kRingBytesMax) {
        ring_bytes_ -= ring_.front().size() + 1;
        ring_.pop_front();
    }
}

}  // namespace deploy

#include "router/log_limiter.h"

#include <algorithm>

namespace router {
namespace {

constexpr std::string_view kEvent = "event=";
constexpr std::string_view kReplica = " replica=";

/// From `at` to the next space.
std::string_view word_at(std::string_view text, std::size_t at) {
    return text.substr(at, std::min(text.find(' ', at), text.size()) - at);
}

}  // namespace

bool LogLimiter::admit(std::string_view text, Clock::time_point now) {
    if (!text.starts_with(kEvent)) return true;
    const std::string_view event = word_at(text, kEvent.size());
    std::string kind(event);
    const std::size_t replica = text.find(kReplica);
    if (replica != std::string_view::npos) kind.append(" ").append(word_at(text, replica + 1));
    auto at = windows_.find(kind);
    if (at == windows_.end()) {
        if (windows_.size() >= kKindsMax) kind = event;
        at = windows_.try_emplace(std::move(kind), Window{.begin = now}).first;
        next_end_ = std::min(next_end_, at->second.begin + kWindow);
    }
    return ++at->second.lines <= kLinesMax;
}

std::vector<std::string> LogLimiter::take_counts(Clock::time_point now) {
    std::vector<std::string> lines;
    if (now < next_end_) return lines;
    next_end_ = Clock::time_point::max();
    for (auto at = windows_.begin(); at != windows_.end();) {
        const Window& window = at->second;
        if (now != Clock::time_point::max() && now - window.begin < kWindow) {
            next_end_ = std::min(next_end_, window.begin + kWindow);
            ++at;
            continue;
        }
        if (window.lines > kLinesMax) {
            lines.push_back("event=log_repeated of=" + at->first +
                            " lines=" + std::to_string(window.lines - kLinesMax) +
                            " within_s=" + std::to_string(kWindow.count()));
        }
        at = windows_.erase(at);
    }
    return lines;
}

}  // namespace router

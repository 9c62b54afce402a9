// Thins out warnings and errors that repeat: of one event and one replica the first kLinesMax lines
// of a minute are written, the others are counted, and the count is a line of its own when the
// minute is over.
//
//   event=attempt_failed … replica=2 … x 500 ─▶ ten of them, then
//   event=log_repeated of=attempt_failed replica=2 lines=490 within_s=60
//
// Lines of the level info are one per request and never thinned out. No clock: time comes in as an
// argument. Source: spec of operations, section 5.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace router {

class LogLimiter {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::uint64_t kLinesMax = 10;
    static constexpr std::chrono::seconds kWindow{60};
    /// Kinds of lines told apart; beyond them a replica's lines count with those of all others.
    static constexpr std::size_t kKindsMax = 256;

    /// Whether this line is to be written. A text that begins with no `event=` always is.
    [[nodiscard]] bool admit(std::string_view text, Clock::time_point now);

    /// What is to be said of windows that are over.
    [[nodiscard]] std::vector<std::string> take_counts(Clock::time_point now);
    /// The same of all: the process ends.
    [[nodiscard]] std::vector<std::string> take_all_counts() {
        return take_counts(Clock::time_point::max());
    }

private:
    struct Window {
        Clock::time_point begin;
        std::uint64_t lines = 0;
    };
    // By "NAME" or "NAME replica=N", where NAME is one of the program's own words.
    std::map<std::string, Window, std::less<>> windows_;
    Clock::time_point next_end_ = Clock::time_point::max();  // no window ends before
};

}  // namespace router

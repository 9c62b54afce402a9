// How far a long job is: a bar that redraws itself on a terminal, a line per tenth elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace replica {

/// May be advanced from many threads. Writes to stderr, so that results on stdout stay clean.
class Progress {
public:
    enum class Style { kBar, kLines, kSilent };

    /// kBar when stderr is a terminal, else kLines.
    static Style style_of_stderr();

    Progress(std::string title, std::uint64_t bytes_total, Style style);
    /// Ends the bar's line.
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void advance(std::uint64_t bytes);

private:
    void draw_bar();
    void print_line();

    const std::string title_;
    const std::uint64_t bytes_total_;
    const Style style_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::mutex mutex_;
    std::uint64_t bytes_done_ = 0;
    std::uint64_t tenths_shown_ = 0;
    std::chrono::steady_clock::time_point drawn_{};
};

/// "14.4 GB", decimal.
std::string bytes_text(std::uint64_t bytes);

}  // namespace replica

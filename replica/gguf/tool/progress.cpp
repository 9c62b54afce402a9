#include "replica/gguf/tool/progress.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <utility>

#include <unistd.h>

namespace replica {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr std::uint64_t kBarCells = 30;

double percent(std::uint64_t done, std::uint64_t total) {
    return total == 0 ? 100.0 : 100.0 * static_cast<double>(done) / static_cast<double>(total);
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
    static constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1000.0 && unit + 1 < kUnits.size()) {
        value /= 1000.0;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
    return text;
}

Progress::Style Progress::style_of_stderr() {
    return ::isatty(STDERR_FILENO) == 1 ? Style::kBar : Style::kLines;
}

Progress::Progress(std::string title, std::uint64_t bytes_total, Style style)
    : title_(std::move(title)), bytes_total_(bytes_total), style_(style) {}

Progress::~Progress() {
    if (style_ == Style::kBar && drawn_ != std::chrono::steady_clock::time_point{})
        std::fputc('\n', stderr);
}

void Progress::advance(std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    bytes_done_ = std::min(bytes_done_ + bytes, bytes_total_);
    if (style_ == Style::kBar) draw_bar();
    if (style_ == Style::kLines) print_line();
}

void Progress::draw_bar() {
    const auto now = std::chrono::steady_clock::now();
    if (bytes_done_ < bytes_total_ && now - drawn_ < kRedrawInterval) return;
    drawn_ = now;
    const double share = percent(bytes_done_, bytes_total_) / 100.0;
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarCells));
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double seconds_left = share > 0.0 ? seconds / share - seconds : 0.0;
    const std::string bar = std::string(filled, '#') + std::string(kBarCells - filled, '.');
    std::fprintf(stderr, "\r%s [%s] %5.1f %%  %s of %s  %.0f s left \x1b[K", title_.c_str(),
                 bar.c_str(), 100.0 * share, bytes_text(bytes_done_).c_str(),
                 bytes_text(bytes_total_).c_str(), seconds_left);
    std::fflush(stderr);
}

void Progress::print_line() {
    const auto tenths = static_cast<std::uint64_t>(percent(bytes_done_, bytes_total_) / 10.0);
    if (tenths == tenths_shown_) return;
    tenths_shown_ = tenths;
    std::fprintf(stderr, "%s: %llu %% of %s\n", title_.c_str(),
                 static_cast<unsigned long long>(10 * tenths), bytes_text(bytes_total_).c_str());
}

}  // namespace replica

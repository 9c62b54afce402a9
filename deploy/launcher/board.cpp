#include "deploy/launcher/board.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <unistd.h>

#include "deploy/launcher/device_monitor.h"
#include "deploy/launcher/view.h"

namespace deploy {
namespace {

constexpr std::size_t kBarCells = 24;
constexpr std::size_t kNoteMax = 72;
constexpr std::string_view kReset = "\x1b[0m";

std::string_view colour_of(ReplicaState state) {
    switch (state) {
        case ReplicaState::kReady:
            return "\x1b[32m";
        case ReplicaState::kLoading:
        case ReplicaState::kWarming:
        case ReplicaState::kSelftest:
            return "\x1b[36m";
        case ReplicaState::kBackoff:
        case ReplicaState::kStopping:
            return "\x1b[33m";
        case ReplicaState::kQuarantined:
        case ReplicaState::kUnkillable:
            return "\x1b[31m";
        default:
            return "\x1b[2m";
    }
}

std::string padded(std::string text, std::size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text;
}

/// Of the phase it is in: bytes, then layers warmed, then steps of the self-test.
double fraction_of(const Replica& replica) {
    if (is_loading(replica.state)) {
        return replica.total == 0
                   ? 0.0
                   : static_cast<double>(replica.done) / static_cast<double>(replica.total);
    }
    const bool is_loaded =
        replica.state == ReplicaState::kReady || replica.state == ReplicaState::kDraining;
    return is_loaded ? 1.0 : 0.0;
}

std::string bar_text(double fraction) {
    const auto full = static_cast<std::size_t>(std::clamp(fraction, 0.0, 1.0) * kBarCells);
    return "[" + std::string(full, '#') + std::string(kBarCells - full, ' ') + "]";
}

std::string row_note(const Fleet& fleet, const Replica& replica, TimePoint now) {
    if (replica.state == ReplicaState::kReady) {
        std::array<char, 48> text{};
        std::snprintf(text.data(), text.size(), "loaded in %.1f s",
                      std::chrono::duration<double>(replica.load_time).count());
        return text.data() + (replica.degraded.empty() ? "" : ", DEGRADED: " + replica.degraded);
    }
    std::string note = note_of(fleet, replica.index, now);
    if (note.size() > kNoteMax) note.resize(kNoteMax);
    return note;
}

std::string time_text() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    std::tm utc{};
    ::gmtime_r(&now.tv_sec, &utc);
    std::array<char, 32> day{};
    std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &utc);
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%s.%03ldZ", day.data(), now.tv_nsec / 1'000'000);
    return text.data();
}

}  // namespace

std::vector<std::string> board_rows(const Fleet& fleet, TimePoint now, bool is_coloured) {
    std::vector<std::string> rows;
    for (const Replica& replica : fleet.replicas) {
        const std::string state = padded(std::string(name_of(replica.state)), 11);
        std::string row = "replica " + padded(std::to_string(replica.index), 2) + " ";
        row += is_coloured ? std::string(colour_of(replica.state)) + state + std::string(kReset)
                           : state;
        row += " " + bar_text(fraction_of(replica)) + " ";
        row += clock_text(std::chrono::duration<double>(now - replica.since).count()) + "  ";
        row += row_note(fleet, replica, now);
        rows.push_back(std::move(row));
    }
    return rows;
}

std::string plain_row(const Fleet& fleet, int index, TimePoint now) {
    const Replica& replica = fleet.replicas.at(static_cast<std::size_t>(index));
    std::string row = "replica " + std::to_string(index) + "  " +
                      padded(std::string(name_of(replica.state)), 11) + "  " +
                      row_note(fleet, replica, now);
    row.erase(row.find_last_not_of(' ') + 1);
    return row;
}

Console::Console() {
    const char* term = std::getenv("TERM");
    const bool is_dumb = term == nullptr || std::string_view(term) == "dumb";
    is_terminal_ = ::isatty(STDOUT_FILENO) == 1 && !is_dumb;
    is_error_terminal_ = ::isatty(STDERR_FILENO) == 1;
    is_coloured_ = is_terminal_ && std::getenv("NO_COLOR") == nullptr;
}

Console::~Console() {
    (void)out_.flush_within(kFarewell);
    (void)error_.flush_within(kFarewell);
}

void Console::print(std::string_view line) {
    say(out_, std::string(line) + "\n");
}

void Console::draw(const std::vector<std::string>& rows) {
    // A terminal that is held gets the board as it is when it goes on, not all those between.
    if (!is_terminal_ || !out_.flush()) return;
    const std::string old = lift();
    rows_ = rows;
    (void)out_.add(old + settle());
    (void)out_.flush();
}

void Console::freeze() {
    rows_.clear();
}

void Console::log(std::string_view level, std::string_view process, std::string_view text) {
    if (is_error_terminal_ && !rows_.empty() && level == "info") return;
    say(error_, time_text() + " " + std::string(level) + " " + std::string(process) + " " +
                    std::string(text) + "\n");
}

void Console::log_child(std::string_view process, std::string_view line) {
    if (is_error_terminal_ && line.find(" warn") == std::string_view::npos &&
        line.find(" error") == std::string_view::npos) {
        return;  // the operator watches a board, not a log; `quadriga why N` has the lines
    }
    say(error_, "[" + std::string(process) + "] " + std::string(line) + "\n");
}

void Console::flush() {
    (void)out_.flush();
    if (!error_.flush()) return;
    const std::uint64_t dropped = error_.take_dropped();
    if (dropped == 0) return;
    log("warn", "launcher", std::to_string(dropped) + " lines were dropped: nobody read them");
}

void Console::say(proto::Outlet& where, const std::string& line) {
    if (rows_.empty()) {
        (void)where.add(line);
        (void)where.flush();
        return;
    }
    (void)out_.add(lift());
    (void)out_.flush();
    (void)where.add(line);
    (void)where.flush();
    (void)out_.add(settle());
    (void)out_.flush();
}

std::string Console::lift() const {
    return rows_.empty() ? "" : "\x1b[" + std::to_string(rows_.size()) + "A\r\x1b[J";
}

std::string Console::settle() const {
    // No line may wrap, or the next lift would miss the board's first row: cut at the right edge.
    std::string text;
    for (const std::string& row : rows_)
        text += "\x1b[?7l" + row + "\x1b[?7h\n";
    return text;
}

}  // namespace deploy

// The board that `up` shows while the fleet starts: one row per replica with its state, its bytes
// as a bar, and the time. Console writes it: redrawn in place on a terminal, as plain lines
// elsewhere.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "deploy/launcher/fleet.h"
#include "proto/outlet.h"

namespace deploy {

/// Rows without line ends; `is_coloured` adds terminal colours.
std::vector<std::string> board_rows(const Fleet& fleet, TimePoint now, bool is_coloured);

/// One replica as a plain line: "replica 2  LOADING     31 MiB".
std::string plain_row(const Fleet& fleet, int replica, TimePoint now);

/// Owns the launcher's stdout (plan, board) and stderr (log). Waits for no reader: what is not
/// taken waits, at most proto::kOutletBytesMax, and what is more is dropped. Launcher thread only.
class Console {
public:
    /// What a slow reader gets at the end.
    static constexpr std::chrono::milliseconds kFarewell{500};

    /// Looks at descriptors 1 and 2 to choose the form.
    Console();
    ~Console();
    Console(const Console&) = delete;
    Console& operator=(const Console&) = delete;

    bool has_board() const { return is_terminal_; }
    bool is_coloured() const { return is_coloured_; }
    /// A line of data, to stdout, above the board.
    void print(std::string_view line);
    /// Draws the rows over the last ones. Nothing when stdout is no terminal.
    void draw(const std::vector<std::string>& rows);
    /// Leaves the board as it is; later lines go below it.
    void freeze();
    /// "2024-05-01T14:02:11.123 info launcher text" to stderr. On a terminal with a board only
    /// warnings and errors appear.
    void log(std::string_view level, std::string_view process, std::string_view text);
    /// A line of a child, which carries its own time and level; `process` goes before it.
    void log_child(std::string_view process, std::string_view line);

    /// Tries again what a reader did not take; says how many lines he has missed. To be called
    /// once per second.
    void flush();

private:
    void say(proto::Outlet& where, const std::string& line);  // above the board
    [[nodiscard]] std::string lift() const;    // takes the board away, to write above it
    [[nodiscard]] std::string settle() const;  // puts it back

    proto::Outlet out_{STDOUT_FILENO};
    proto::Outlet error_{STDERR_FILENO};
    bool is_terminal_ = false;
    bool is_error_terminal_ = false;
    bool is_coloured_ = false;
    std::vector<std::string> rows_;
};

}  // namespace deploy

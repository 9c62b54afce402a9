// One line per event on stderr: `time level replica event key=value …`. Never prompt text, never
// keys. A reader of stderr who stops reading stops neither serving nor the end of the process: what
// he does not take waits, is then dropped, and a line says how many when he reads again. A disk
// that is slow holds up the log's thread alone, and the oldest lines that wait for it are dropped.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace replica::server {

inline constexpr std::size_t kLogQueueLines = 8192;

struct LogField {
    std::string_view key;
    std::string value;
};

enum class LogLevel { kInfo, kWarning, kError };

/// Called once by main; without it lines go nowhere (tests).
void start_log();
/// Writes out what is queued; before exit.
void stop_log();
/// A line for people beside the log, "listening on …" or what is fatal. Waits for a slow reader,
/// but not for one who does not read.
void say(std::string line);
/// Any thread. Values are made printable and quoted when they hold a space.
void log_event(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);

}  // namespace replica::server

// One line per event on stderr: `time level replica event key=value …`. Never prompt text, never
// keys. A full or slow stderr drops the oldest lines and never stops serving.
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
/// Any thread. Values are made printable and quoted when they hold a space.
void log_event(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);

}  // namespace replica::server

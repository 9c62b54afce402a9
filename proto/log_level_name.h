// The level in a log line as --log-level and the launcher's own lines write it: warn, not warning.
// A header alone: programs that log bring spdlog, this library does not.
#pragma once

#include <ctime>
#include <memory>

#include <spdlog/pattern_formatter.h>

namespace proto {

/// For spdlog's pattern_formatter: `add_flag<LogLevelName>('*')`.
class LogLevelName : public spdlog::custom_flag_formatter {
public:
    void format(const spdlog::details::log_msg& line, const std::tm&,
                spdlog::memory_buf_t& out) override {
        const auto name = line.level == spdlog::level::warn
                              ? spdlog::string_view_t("warn")
                              : spdlog::level::to_string_view(line.level);
        out.append(name.data(), name.data() + name.size());
    }
    [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
        return std::make_unique<LogLevelName>();
    }
};

}  // namespace proto

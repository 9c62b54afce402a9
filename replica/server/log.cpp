#include "replica/server/log.h"

#include <chrono>
#include <memory>
#include <mutex>

#include <spdlog/async.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "proto/error.h"
#include "proto/log_level_name.h"
#include "proto/outlet_sink.h"

namespace replica::server {
namespace {

constexpr std::string_view kLoggerName = "replica";
/// What a slow reader has left goes out after this time even when nothing new is said.
constexpr std::chrono::seconds kFlushInterval{1};

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kWarning:
            return spdlog::level::warn;
        case LogLevel::kError:
            return spdlog::level::err;
    }
    return spdlog::level::err;
}

}  // namespace

void start_log() {
    spdlog::init_thread_pool(kLogQueueLines, 1);
    const auto sink =
        std::make_shared<proto::OutletSink<std::mutex>>(STDERR_FILENO, std::string(kLoggerName));
    const auto logger = std::make_shared<spdlog::async_logger>(
        std::string(kLoggerName), sink, spdlog::thread_pool(),
        spdlog::async_overflow_policy::overrun_oldest);
    // The one form of time in all our logs: they end up in one.
    auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    formatter->add_flag<proto::LogLevelName>('*').set_pattern(
        "%Y-%m-%dT%H:%M:%S.%eZ %* replica %v");
    logger->set_formatter(std::move(formatter));
    spdlog::register_logger(logger);
    spdlog::flush_every(kFlushInterval);
}

void stop_log() {
    spdlog::shutdown();
}

void say(std::string line) {
    line += '\n';
    proto::Outlet out(STDERR_FILENO);
    (void)out.add(line);
    (void)out.flush_within(proto::kOutletFarewell);
}

void log_event(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
    const auto logger = spdlog::get(std::string(kLoggerName));
    if (logger == nullptr) return;
    std::string line(event);
    for (const LogField& field : fields) {
        const std::string value = proto::printable(field.value, 512);
        const bool needs_quotes = value.empty() || value.find(' ') != std::string::npos;
        line.append(" ").append(field.key).append("=");
        line.append(needs_quotes ? "\"" + value + "\"" : value);
    }
    logger->log(level_of(level), line);
}

}  // namespace replica::server

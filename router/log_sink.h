// The log's way to stderr. While the loop runs, the lines of one turn of it leave in one write():
// two lines per request would otherwise be two system calls per request.
//
// A warning or worse takes all lines before it along at once, and so does a batch that has grown to
// kBatchBytesMax: what a process says last is what one wants to read. Warnings that repeat are
// thinned out and counted (log_limiter.h). No write waits for a reader (proto/outlet_sink.h).
// Decision thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <spdlog/details/null_mutex.h>

#include "proto/outlet_sink.h"
#include "router/log_limiter.h"

namespace router {

class LogSink : public proto::OutletSink<spdlog::details::null_mutex> {
public:
    static constexpr std::size_t kBatchBytesMax = std::size_t{64} << 10;

    explicit LogSink(int fd) : OutletSink(fd, "router") {}
    ~LogSink() override {
        say_repeated(repeats_.take_all_counts());
        write_out();
    }

    /// Writes what waits, with patience for a slow reader.
    void say_farewell();

    /// From now on lines wait for the end of the turn of this loop; without one for nothing.
    void batch_on(std::optional<boost::asio::any_io_executor> loop);
    /// Called with the number of lines that were just dropped; {} for nobody.
    void tell_dropped(std::function<void(std::uint64_t)> on_dropped);

protected:
    void sink_it_(const spdlog::details::log_msg& message) override;
    void flush_() override {
        say_repeated(repeats_.take_counts(LogLimiter::Clock::now()));
        write_out();
    }

private:
    void write_out();
    void say_repeated(const std::vector<std::string>& lines);
    [[nodiscard]] std::string warning_line(const std::string& text);

    LogLimiter repeats_;
    std::string batch_;
    bool is_scheduled_ = false;
    std::optional<boost::asio::any_io_executor> loop_;
    std::function<void(std::uint64_t)> on_dropped_;
    std::uint64_t told_total_ = 0;
    std::shared_ptr<LogSink*> self_ = std::make_shared<LogSink*>(this);  // for what is scheduled
};

/// While it lives, the sink batches on this loop; the loop outlives it, and so does `on_dropped`.
class LogBatching {
public:
    LogBatching(LogSink& sink, boost::asio::any_io_executor loop,
                std::function<void(std::uint64_t)> on_dropped = {})
        : sink_(sink) {
        sink_.tell_dropped(std::move(on_dropped));
        sink_.batch_on(std::move(loop));
    }
    ~LogBatching() {
        sink_.batch_on(std::nullopt);
        sink_.tell_dropped({});
    }
    LogBatching(const LogBatching&) = delete;
    LogBatching& operator=(const LogBatching&) = delete;

private:
    LogSink& sink_;
};

}  // namespace router

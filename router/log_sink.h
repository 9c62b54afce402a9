// The log's way to stderr. While the loop runs, the lines of one turn of it leave in one write():
// two lines per request would otherwise be two system calls per request.
//
// A warning or worse takes all lines before it along at once, and so does a batch that has grown to
// kBatchBytesMax: what a process says last is what one wants to read. No write waits for a reader:
// what he does not take waits, and beyond proto::kOutletBytesMax it is dropped and counted; when he
// reads again, a line says how many are missing. Decision thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>

#include "proto/outlet.h"

namespace router {

class LogSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
    static constexpr std::size_t kBatchBytesMax = std::size_t{64} << 10;
    /// What a slow reader gets at the end of the process.
    static constexpr std::chrono::milliseconds kFarewell{500};

    explicit LogSink(int fd) : outlet_(fd) {}
    ~LogSink() override { say_farewell(); }

    /// Writes what waits, with patience for a slow reader.
    void say_farewell();

    /// From now on lines wait for the end of the turn of this loop; without one for nothing.
    void batch_on(std::optional<boost::asio::any_io_executor> loop);
    /// Called with the number of lines that were just dropped; {} for nobody.
    void tell_dropped(std::function<void(std::uint64_t)> on_dropped);

protected:
    void sink_it_(const spdlog::details::log_msg& message) override;
    void flush_() override { write_out(); }

private:
    void write_out();
    void say_dropped();

    proto::Outlet outlet_;
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

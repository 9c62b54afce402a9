// The log's way to stderr. While the loop runs, the lines of one turn of it leave in one write():
// two lines per request would otherwise be two system calls per request.
//
// A warning or worse takes all lines before it along at once, and so does a batch that has grown to
// kBatchBytesMax: what a process says last is what one wants to read. Decision thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>

namespace router {

class LogSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
    static constexpr std::size_t kBatchBytesMax = std::size_t{64} << 10;

    explicit LogSink(int fd) : fd_(fd) {}
    ~LogSink() override { write_out(); }

    /// From now on lines wait for the end of the turn of this loop; without one for nothing.
    void batch_on(std::optional<boost::asio::any_io_executor> loop);

protected:
    void sink_it_(const spdlog::details::log_msg& message) override;
    void flush_() override { write_out(); }

private:
    void write_out();

    int fd_;
    std::string batch_;
    bool is_scheduled_ = false;
    std::optional<boost::asio::any_io_executor> loop_;
    std::shared_ptr<LogSink*> self_ = std::make_shared<LogSink*>(this);  // for what is scheduled
};

/// While it lives, the sink batches on this loop; the loop outlives it.
class LogBatching {
public:
    LogBatching(LogSink& sink, boost::asio::any_io_executor loop) : sink_(sink) {
        sink_.batch_on(std::move(loop));
    }
    ~LogBatching() { sink_.batch_on(std::nullopt); }
    LogBatching(const LogBatching&) = delete;
    LogBatching& operator=(const LogBatching&) = delete;

private:
    LogSink& sink_;
};

}  // namespace router

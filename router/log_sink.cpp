#include "router/log_sink.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace router {

void LogSink::say_farewell() {
    say_repeated(repeats_.take_all_counts());
    write_out();
    (void)outlet().flush_within(proto::kOutletFarewell);
}

void LogSink::tell_dropped(std::function<void(std::uint64_t)> on_dropped) {
    on_dropped_ = std::move(on_dropped);
}

void LogSink::batch_on(std::optional<boost::asio::any_io_executor> loop) {
    write_out();
    loop_ = std::move(loop);
    is_scheduled_ = false;
}

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
    const bool is_urgent = message.level >= spdlog::level::warn;
    if (is_urgent && message.level < spdlog::level::critical) {
        const auto now = LogLimiter::Clock::now();
        say_repeated(repeats_.take_counts(now));
        if (!repeats_.admit({message.payload.data(), message.payload.size()}, now)) return;
    }
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    batch_.append(line.data(), line.size());
    if (!loop_ || is_urgent || batch_.size() >= kBatchBytesMax) {
        write_out();
        return;
    }
    if (std::exchange(is_scheduled_, true)) return;
    // It comes behind what is ready to run by now, each of which may have a line to add.
    boost::asio::post(*loop_, [weak = std::weak_ptr(self_)] {
        const auto self = weak.lock();
        if (!self) return;
        (*self)->is_scheduled_ = false;
        (*self)->write_out();
    });
}

void LogSink::write_out() {
    put(batch_);
    batch_.clear();
    const std::uint64_t dropped = outlet().dropped_total();
    if (dropped != told_total_ && on_dropped_) on_dropped_(dropped - told_total_);
    told_total_ = dropped;
}

void LogSink::say_repeated(const std::vector<std::string>& lines) {
    for (const std::string& text : lines)
        batch_ += warning_line(text);
}

std::string LogSink::warning_line(const std::string& text) {
    spdlog::memory_buf_t line;
    formatter_->format({"router", spdlog::level::warn, text}, line);
    return {line.data(), line.size()};
}

}  // namespace router

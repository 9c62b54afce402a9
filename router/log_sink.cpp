#include "router/log_sink.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace router {

void LogSink::say_farewell() {
    write_out();
    (void)outlet_.flush_within(kFarewell);
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
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    batch_.append(line.data(), line.size());
    const bool is_urgent = message.level >= spdlog::level::warn;
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
    if (!batch_.empty()) {
        (void)outlet_.add(batch_);
        batch_.clear();
    }
    if (outlet_.flush()) say_dropped();
    const std::uint64_t dropped = outlet_.dropped_total();
    if (dropped != told_total_ && on_dropped_) on_dropped_(dropped - told_total_);
    told_total_ = dropped;
}

/// The reader is back, as far as one can tell; should this line fail, it is one of the dropped.
void LogSink::say_dropped() {
    const std::uint64_t dropped = outlet_.take_dropped();
    if (dropped == 0) return;
    const std::string text = "event=log_resumed lines_dropped=" + std::to_string(dropped);
    spdlog::memory_buf_t line;
    formatter_->format({"router", spdlog::level::warn, text}, line);
    (void)outlet_.add({line.data(), line.size()});
    (void)outlet_.flush();
}

}  // namespace router

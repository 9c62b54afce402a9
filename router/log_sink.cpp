#include "router/log_sink.h"

#include <cerrno>
#include <string_view>
#include <utility>

#include <boost/asio/post.hpp>
#include <unistd.h>

namespace router {

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
    std::string_view rest = batch_;
    while (!rest.empty()) {
        const ssize_t count = ::write(fd_, rest.data(), rest.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;  // nobody reads any more; a log is no reason to end
        rest.remove_prefix(static_cast<std::size_t>(count));
    }
    batch_.clear();
}

}  // namespace router

#include "router/launcher_link.h"

#include <array>
#include <stdexcept>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <spdlog/spdlog.h>

namespace router {

namespace asio = boost::asio;

LauncherLink::LauncherLink(asio::any_io_executor executor, int fd,
                           std::function<bool(const proto::ReplicaAnnouncement&)> on_announcement)
    : stream_(std::move(executor), fd), on_announcement_(std::move(on_announcement)) {}

asio::awaitable<void> LauncherLink::run() {
    proto::LineReader lines;
    std::array<char, 4096> buffer;
    for (;;) {
        const auto [error, count] = co_await stream_.async_read_some(
            asio::buffer(buffer), asio::as_tuple(asio::use_awaitable));
        if (error) {
            spdlog::info("event=announcements_ended");  // the death pipe says whether to go
            co_return;
        }
        lines.feed({buffer.data(), count});
        while (const std::optional<std::string> line = lines.next()) {
            const auto announcement = proto::parse_announcement(*line);
            if (announcement && on_announcement_(*announcement)) continue;
            spdlog::error("event=bad_announcement line=\"{}\"", proto::printable(*line));
        }
        if (lines.is_failed()) throw std::runtime_error("an announcement is longer than its limit");
    }
}

void LauncherLink::tell(const proto::DrainOrder& order) {
    waiting_[order.index] = proto::to_json_line(order);
    write_next();
}

void LauncherLink::tell(const proto::ReloadReport& report) {
    report_ = proto::to_json_line(report);
    write_next();
}

void LauncherLink::tell(proto::RouterNews word) {
    words_ += proto::to_json_line(word);
    write_next();
}

void LauncherLink::write_next() {
    if (!writing_.empty() || (waiting_.empty() && report_.empty() && words_.empty())) return;
    writing_ = std::exchange(words_, {}) + std::exchange(report_, {});
    for (const auto& [index, line] : waiting_)
        writing_ += line;
    waiting_.clear();
    asio::async_write(stream_, asio::buffer(writing_),
                      [this](boost::system::error_code error, std::size_t) {
                          writing_.clear();
                          if (error) {
                              spdlog::warn("event=launcher_not_told error=\"{}\"", error.message());
                          } else {
                              write_next();
                          }
                      });
}

}  // namespace router

#include "deploy/launcher/announcer.h"

#include <array>
#include <cerrno>
#include <system_error>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <sys/socket.h>

namespace deploy {

struct Announcer::Link {
    explicit Link(const boost::asio::any_io_executor& executor) : stream(executor) {}
    boost::asio::posix::stream_descriptor stream;
    std::map<int, std::string> waiting;
    std::string writing;  // empty: no write runs
    std::array<char, 1024> bytes;
    proto::LineReader lines;
};

UniqueFd Announcer::open() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    UniqueFd theirs(pair[1]);
    close();
    link_ = std::make_shared<Link>(executor_);
    link_->stream.assign(pair[0]);
    link_->stream.non_blocking(true);
    for (const auto& [index, announcement] : known_) {
        link_->waiting[index] = proto::to_json_line(announcement);
    }
    write_next(link_);
    read_next(link_);
    return theirs;
}

void Announcer::announce(const proto::ReplicaAnnouncement& announcement) {
    known_[announcement.index] = announcement;
    if (!link_) return;
    link_->waiting[announcement.index] = proto::to_json_line(announcement);
    write_next(link_);
}

void Announcer::close() {
    if (!link_) return;
    boost::system::error_code ignored;
    link_->stream.close(ignored);
    link_.reset();
}

/// An error means that the router is gone; its death is seen by pidfd.
void Announcer::read_next(const std::shared_ptr<Link>& link) {
    link->stream.async_read_some(
        boost::asio::buffer(link->bytes),
        [this, link](boost::system::error_code error, std::size_t count) {
            if (error || link != link_) return;
            link->lines.feed({link->bytes.data(), count});
            while (const std::optional<std::string> line = link->lines.next()) {
                const auto order = proto::parse_drain_order(*line);
                if (order) {
                    on_drain_order(*order);
                } else if (const auto report = proto::parse_reload_report(*line)) {
                    on_reload_report(*report);
                } else {
                    on_bad_line(*line);
                }
                if (link != link_) return;
            }
            if (link->lines.is_failed()) {
                on_bad_line("a line without an end");
            } else {
                read_next(link);
            }
        });
}

void Announcer::write_next(const std::shared_ptr<Link>& link) {
    if (!link->writing.empty() || link->waiting.empty()) return;
    for (const auto& [index, line] : link->waiting)
        link->writing += line;
    link->waiting.clear();
    boost::asio::async_write(link->stream, boost::asio::buffer(link->writing),
                             [this, link](boost::system::error_code error, std::size_t) {
                                 link->writing.clear();
                                 if (!error && link == link_) write_next(link);
                             });
}

}  // namespace deploy

#include "deploy/launcher/announcer.h"

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <sys/socket.h>

namespace deploy {

struct Announcer::Link {
    Link(const boost::asio::any_io_executor& executor, int number_in)
        : number(number_in), stream(executor) {}
    int number;
    boost::asio::posix::stream_descriptor stream;
    std::map<int, std::string> waiting;
    std::string writing;  // empty: no write runs
    std::array<char, 1024> bytes;
    proto::LineReader lines;
};

Announcer::Opened Announcer::open() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    Opened opened{.link = ++last_link_, .theirs = UniqueFd(pair[1])};
    const auto link = std::make_shared<Link>(executor_, opened.link);
    link->stream.assign(pair[0]);
    link->stream.non_blocking(true);
    links_.emplace(opened.link, link);
    for (const auto& [index, announcement] : known_) {
        link->waiting[index] = proto::to_json_line(announcement);
    }
    write_next(link);
    read_next(link);
    return opened;
}

void Announcer::announce(const proto::ReplicaAnnouncement& announcement) {
    known_[announcement.index] = announcement;
    for (const auto& [number, link] : links_)
        tell(link, announcement);
}

void Announcer::tell(const std::shared_ptr<Link>& link,
                     const proto::ReplicaAnnouncement& announcement) {
    link->waiting[announcement.index] = proto::to_json_line(announcement);
    write_next(link);
}

void Announcer::close(int link) {
    const auto found = links_.find(link);
    if (found == links_.end()) return;
    boost::system::error_code ignored;
    found->second->stream.close(ignored);
    links_.erase(found);
}

void Announcer::close_all() {
    while (!links_.empty())
        close(links_.begin()->first);
}

/// An error means that the router is gone; its death is seen by pidfd.
void Announcer::read_next(const std::shared_ptr<Link>& link) {
    link->stream.async_read_some(
        boost::asio::buffer(link->bytes),
        [this, link](boost::system::error_code error, std::size_t count) {
            // The launcher itself may be gone by then: its links are closed first.
            if (error || !link->stream.is_open()) return;
            link->lines.feed({link->bytes.data(), count});
            while (const std::optional<std::string> line = link->lines.next()) {
                take(link->number, *line);
                if (!link->stream.is_open()) return;
            }
            if (link->lines.is_failed()) {
                on_bad_line("a line without an end");
            } else {
                read_next(link);
            }
        });
}

void Announcer::take(int link, const std::string& line) {
    if (const auto order = proto::parse_drain_order(line)) {
        on_drain_order(*order);
    } else if (const auto report = proto::parse_reload_report(line)) {
        on_reload_report(link, *report);
    } else if (const auto word = proto::parse_router_news(line)) {
        on_router_news(link, *word);
    } else {
        on_bad_line(line);
    }
}

void Announcer::write_next(const std::shared_ptr<Link>& link) {
    if (!link->writing.empty() || link->waiting.empty()) return;
    for (const auto& [index, line] : link->waiting)
        link->writing += line;
    link->waiting.clear();
    boost::asio::async_write(link->stream, boost::asio::buffer(link->writing),
                             [this, link](boost::system::error_code error, std::size_t) {
                                 link->writing.clear();
                                 if (!error) write_next(link);
                             });
}

}  // namespace deploy

// Tells routers about replicas: JSON lines over a socket that each has inherited. Only the newest
// word about each replica waits, so a slow router costs one line per replica and no more. They
// answer over the same socket: drains of an operator, what came of a reload, where they stand.
//
//   the present router, a successor on trial, those that finish what they have accepted: all hear
//   everything, and what any of them says is heard
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "deploy/launcher/unique_fd.h"
#include "proto/ready_pipe.h"

namespace deploy {

class Announcer {
public:
    explicit Announcer(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

    struct Opened {
        int link = 0;     // its number, never used again
        UniqueFd theirs;  // the child's end
    };
    /// A fresh pair for a fresh router, which is told everything known. Throws std::system_error.
    Opened open();
    void announce(const proto::ReplicaAnnouncement& announcement);
    /// Its router has ended.
    void close(int link);
    void close_all();

    std::function<void(int link, proto::RouterNews)> on_router_news;
    std::function<void(const proto::DrainOrder&)> on_drain_order;
    std::function<void(int link, const proto::ReloadReport&)> on_reload_report;
    /// A line of a router that is none, or the end of such lines.
    std::function<void(const std::string& line)> on_bad_line;

private:
    struct Link;
    void read_next(const std::shared_ptr<Link>& link);
    void take(int link, const std::string& line);
    void tell(const std::shared_ptr<Link>& link, const proto::ReplicaAnnouncement& announcement);
    void write_next(const std::shared_ptr<Link>& link);

    boost::asio::any_io_executor executor_;
    std::map<int, proto::ReplicaAnnouncement> known_;
    std::map<int, std::shared_ptr<Link>> links_;  // as many as there are routers
    int last_link_ = 0;
};

}  // namespace deploy

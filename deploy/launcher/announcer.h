// Tells the router about replicas: JSON lines over an inherited socket. Only the newest word about
// each replica waits, so a slow router costs one line per replica and no more. The router answers
// over the same socket when an operator drains a replica there.
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

    /// A fresh pair for a fresh router: keeps one end and returns the other, for the child.
    /// Everything known is announced again. Throws std::system_error.
    UniqueFd open();
    void announce(const proto::ReplicaAnnouncement& announcement);
    void close();

    std::function<void(const proto::DrainOrder&)> on_drain_order;
    std::function<void(const proto::ReloadReport&)> on_reload_report;
    /// A line of the router that is none, or the end of such lines.
    std::function<void(const std::string& line)> on_bad_line;

private:
    struct Link;
    void read_next(const std::shared_ptr<Link>& link);
    void write_next(const std::shared_ptr<Link>& link);

    boost::asio::any_io_executor executor_;
    std::map<int, proto::ReplicaAnnouncement> known_;
    std::shared_ptr<Link> link_;
};

}  // namespace deploy

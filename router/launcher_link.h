// The socket to the launcher: its announcements come in, drains of operators go out.
//
//   launcher ── {"index":1,"url":…,"state":"READY",…} ──▶ ReplicaSet.announce
//   launcher ◀── {"index":1,"drained":true} ───────────── tell()
//   launcher ◀── {"reloaded":["keys: 2"],"errors":[]} ─── tell()
//   launcher ◀── {"router":"let_go"} ──────────────────── tell()
//
// A drain belongs to the launcher as much as to the router: it outlives both the replica's process
// and this one, and whoever was asked first, the other shows it and may undo it. The launcher has
// the last word: what it announces next holds. Decision thread only.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "proto/ready_pipe.h"

namespace router {

class LauncherLink {
public:
    /// Takes `fd`. False of `on_announcement`: the line is nonsense here too.
    LauncherLink(boost::asio::any_io_executor executor, int fd,
                 std::function<bool(const proto::ReplicaAnnouncement&)> on_announcement);

    /// Reads until the launcher's end closes. Throws when a line is longer than its limit.
    boost::asio::awaitable<void> run();

    /// Of orders that wait only the newest of each replica is sent.
    void tell(const proto::DrainOrder& order);
    /// Also of these only the newest.
    void tell(const proto::ReloadReport& report);
    void tell(proto::RouterNews word);

private:
    void write_next();

    boost::asio::posix::stream_descriptor stream_;
    std::function<bool(const proto::ReplicaAnnouncement&)> on_announcement_;
    std::map<int, std::string> waiting_;
    std::string report_;   // waits too
    std::string words_;    // wait too: each is said once in a life
    std::string writing_;  // empty: no write runs
};

}  // namespace router

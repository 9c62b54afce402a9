// A running child: its death by pidfd, the words on its ready pipe, the lines of its output.
// Launcher thread only. Handlers keep the object alive until its descriptors are closed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "deploy/launcher/output_log.h"
#include "deploy/launcher/spawn.h"
#include "proto/ready_pipe.h"

namespace deploy {

struct ChildEvents {
    std::function<void(const proto::PipeEvent&)> on_event;   // a good line on the ready pipe
    std::function<void(const std::string& why)> on_garbled;  // once; the pipe is not read on
    std::function<void(const std::string& line)> on_output;  // stdout and stderr
    std::function<void(int wait_status)> on_exit;            // last of all, once
};

class Child : public std::enable_shared_from_this<Child> {
public:
    /// `ready_pipe` may be empty (the router has none).
    Child(boost::asio::any_io_executor executor, SpawnedProcess process, UniqueFd output,
          UniqueFd ready_pipe, ChildEvents events);

    void start();
    /// KILL goes to the whole process group.
    void signal(int number);
    pid_t pid() const { return process_.pid; }
    unsigned long long start_ticks() const { return start_ticks_; }
    std::vector<std::string> last_lines(std::size_t count) const { return log_.last(count); }

private:
    using Stream = boost::asio::posix::stream_descriptor;

    void wait_for_death();
    void reap();
    void read_ready();
    void read_output();
    /// Reads what is there without waiting; false at the end or on an error.
    bool drain_ready();
    bool drain_output();

    SpawnedProcess process_;
    unsigned long long start_ticks_ = 0;
    Stream death_;
    Stream ready_;
    Stream output_;
    boost::asio::steady_timer poll_timer_;  // only without pidfd
    ChildEvents events_;
    proto::LineReader lines_;
    OutputLog log_;
    bool is_reaped_ = false;
};

}  // namespace deploy

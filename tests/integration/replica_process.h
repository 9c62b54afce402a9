// Starts the real quadriga-replica on a free port with the demo model, and talks HTTP to it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "proto/http_client.h"
#include "proto/ready_pipe.h"

namespace replica::testing {

inline constexpr std::chrono::seconds kProcessPatience{120};

/// One process with a ready pipe and a death pipe; killed with the object if it still runs.
class ReplicaProcess {
public:
    /// The demo model on a free port, unless `arguments` name others.
    explicit ReplicaProcess(std::vector<std::string> arguments);
    ~ReplicaProcess();
    ReplicaProcess(const ReplicaProcess&) = delete;
    ReplicaProcess& operator=(const ReplicaProcess&) = delete;

    /// Reads the ready pipe up to `ready` or its end; all events so far.
    const std::vector<proto::PipeEvent>& wait_until_ready();
    bool is_ready() const;
    /// Of the line "listening on"; waits for it.
    int port();
    std::string url(const std::string& path);

    proto::HttpResult get(const std::string& path);
    proto::HttpResult post(const std::string& path, std::string body);
    /// Streams; `on_body` returns false to leave.
    proto::HttpResult post(const std::string& path, std::string body,
                           std::function<bool(std::string_view)> on_body);

    void signal(int number);
    /// The launcher's end: closes the death pipe.
    void close_death_pipe();
    /// Exit code, or 128 + signal.
    int wait_for_exit();
    /// From now on its stderr is a pipe that is full and that nobody reads.
    void fill_error_pipe();
    /// What it wrote to stderr until its exit.
    std::string error_text();

private:
    pid_t pid_ = -1;
    int ready_fd_ = -1, death_fd_ = -1, error_fd_ = -1;
    proto::LineReader lines_;
    std::vector<proto::PipeEvent> events_;
    std::string error_text_;
};

/// The value of a metric's only or first sample whose name and labels begin so; -1 when absent.
double metric(const std::string& text, const std::string& beginning);

}  // namespace replica::testing

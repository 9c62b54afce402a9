// Writes what happens while loading to the launcher's pipe, one JSON line per event; silent when
// the replica stands alone.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "proto/ready_pipe.h"

namespace replica::server {

/// Any thread. A launcher that does not read is waited for kPipeWaitMax for everything but
/// progress; progress lines are dropped instead, since the next one says more.
class ReadyPipe {
public:
    static constexpr int kPipeWaitMaxMs = 5000;

    /// Owns `fd`; sets it non-blocking and close-on-exec.
    ReadyPipe(std::optional<int> fd, std::string instance);
    ~ReadyPipe();
    ReadyPipe(const ReadyPipe&) = delete;
    ReadyPipe& operator=(const ReadyPipe&) = delete;

    template <class Event>
    void send(Event event) {
        const bool may_drop = std::is_same_v<Event, proto::PhaseEvent>;
        write_line(proto::to_json_line({instance_, std::move(event)}), {.may_drop = may_drop});
    }

private:
    struct WriteOptions {
        bool may_drop;
    };
    void write_line(const std::string& line, WriteOptions options);

    std::mutex mutex_;
    int fd_ = -1;
    std::string instance_;
};

}  // namespace replica::server

// What both ends of the benchmark need of the system: sockets, waiting to the microsecond, timers.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <queue>
#include <string>
#include <vector>

#include <sys/epoll.h>

namespace deploy::overhead {

using Clock = std::chrono::steady_clock;

/// Listens on 127.0.0.1; port 0 takes a free one and writes it back. Throws std::system_error.
int listen_on(std::uint16_t& port);
/// A connection to 127.0.0.1:`port`, not blocking, TCP_NODELAY. Throws std::system_error.
int connect_to(std::uint16_t port);
void prepare(int fd);  // not blocking, TCP_NODELAY
/// Descriptors for thousands of connections.
void raise_descriptor_limit();
/// CPU time of this process, seconds.
double cpu_seconds();

/// Readiness and deadlines of one thread. Deadlines are exact to about 60 us, the kernel's slack
/// for timers, hence not rounded to milliseconds as by epoll_wait.
class Waiter {
public:
    Waiter();
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    void add(int fd, std::uint64_t tag, std::uint32_t events);
    void change(int fd, std::uint64_t tag, std::uint32_t events);
    /// Calls back after `when`, once, in order of time.
    void at(Clock::time_point when, std::uint64_t tag) { timers_.push({when, tag}); }

    /// Waits for what comes first and hands it on: `on_ready(tag, events)`, `on_time(tag)`.
    template <class Ready, class Time>
    void turn(Clock::time_point until, Ready on_ready, Time on_time) {
        const int count = wait(until);
        for (int i = 0; i < count; ++i) {
            const epoll_event& event = events_[static_cast<std::size_t>(i)];
            on_ready(event.data.u64, event.events);
        }
        const auto now = Clock::now();
        while (!timers_.empty() && timers_.top().when <= now) {
            const std::uint64_t tag = timers_.top().tag;
            timers_.pop();
            on_time(tag);
        }
    }

private:
    struct Timer {
        Clock::time_point when;
        std::uint64_t tag;
        bool operator<(const Timer& other) const { return when > other.when; }  // earliest on top
    };
    int wait(Clock::time_point until);

    int epoll_;
    std::array<epoll_event, 256> events_{};
    std::priority_queue<Timer> timers_;
};

}  // namespace deploy::overhead

#include "deploy/launcher/child.h"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace deploy {
namespace {

/// Only for kernels without pidfd.
constexpr std::chrono::milliseconds kDeathPoll{50};
/// At most this much per turn of the loop, so that a flood of output starves nobody.
constexpr int kReadsPerTurn = 4;
constexpr int kReadsAtDeath = 64;
constexpr std::size_t kReadBytes = 16 * 1024;

void own(boost::asio::posix::stream_descriptor& stream, UniqueFd fd) {
    if (!fd) return;
    ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
    stream.assign(fd.release());
}

enum class ReadEnd { kMore, kEmpty, kClosed };

/// One non-blocking read, handed to `take`.
template <class Take>
ReadEnd read_once(int fd, const Take& take) {
    std::array<char, kReadBytes> buffer;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got > 0) {
        take(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
        return ReadEnd::kMore;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return ReadEnd::kEmpty;
    return ReadEnd::kClosed;
}

}  // namespace

Child::Child(boost::asio::any_io_executor executor, SpawnedProcess process, UniqueFd output,
             UniqueFd ready_pipe, ChildEvents events)
    : process_(std::move(process)),
      start_ticks_(start_ticks_of(process_.pid)),
      death_(executor),
      ready_(executor),
      output_(executor),
      poll_timer_(executor),
      events_(std::move(events)) {
    own(output_, std::move(output));
    own(ready_, std::move(ready_pipe));
    if (process_.pidfd) own(death_, UniqueFd(::fcntl(process_.pidfd.get(), F_DUPFD_CLOEXEC, 0)));
}

void Child::start() {
    wait_for_death();
    if (ready_.is_open()) read_ready();
    read_output();
}

void Child::signal(int number) {
    if (is_reaped_) return;  // the pid may be somebody else's by now
    if (number == SIGKILL) send_group_signal(process_.pid, SIGKILL);
    send_signal(process_, number);
}

void Child::wait_for_death() {
    auto self = shared_from_this();
    if (death_.is_open()) {
        death_.async_wait(Stream::wait_read, [self](boost::system::error_code error) {
            if (!error) self->reap();
        });
    } else {
        poll_timer_.expires_after(kDeathPoll);
        poll_timer_.async_wait([self](boost::system::error_code error) {
            if (!error) self->reap();
        });
    }
}

void Child::reap() {
    int status = 0;
    const pid_t got = ::waitpid(process_.pid, &status, WNOHANG);
    if (got == 0) return wait_for_death();
    is_reaped_ = true;
    // Its last words are in the pipes already; their end is not waited for, because a grandchild
    // may hold them open.
    for (int i = 0; i < kReadsAtDeath && ready_.is_open() && drain_ready(); ++i) {
    }
    for (int i = 0; i < kReadsAtDeath && output_.is_open() && drain_output(); ++i) {
    }
    if (const std::string rest = log_.finish(); !rest.empty() && events_.on_output) {
        events_.on_output(rest);
    }
    send_group_signal(process_.pid, SIGKILL);  // whatever it left in its group
    boost::system::error_code ignored;
    death_.close(ignored);
    ready_.close(ignored);
    output_.close(ignored);
    if (events_.on_exit) events_.on_exit(status);
}

void Child::read_ready() {
    auto self = shared_from_this();
    ready_.async_wait(Stream::wait_read, [self](boost::system::error_code error) {
        if (error || self->is_reaped_) return;
        if (self->drain_ready()) {
            self->read_ready();
        } else {
            boost::system::error_code ignored;
            self->ready_.close(ignored);
        }
    });
}

bool Child::drain_ready() {
    std::string garbled;
    const ReadEnd end = read_once(ready_.native_handle(), [&](std::string_view bytes) {
        lines_.feed(bytes);
        while (garbled.empty()) {
            const std::optional<std::string> line = lines_.next();
            if (!line.has_value()) break;
            const auto event = proto::parse_pipe_event(*line);
            if (!event.has_value()) {
                garbled = "a garbled line: " + event.error().message;
            } else if (events_.on_event) {
                events_.on_event(*event);
            }
        }
        if (garbled.empty() && lines_.is_failed()) garbled = "a line without end";
    });
    if (garbled.empty()) return end == ReadEnd::kMore || (end == ReadEnd::kEmpty && !is_reaped_);
    if (events_.on_garbled) events_.on_garbled(garbled);
    return false;
}

void Child::read_output() {
    auto self = shared_from_this();
    output_.async_wait(Stream::wait_read, [self](boost::system::error_code error) {
        if (error || self->is_reaped_) return;
        bool is_open = true;
        for (int i = 0; i < kReadsPerTurn && is_open; ++i) {
            is_open = self->drain_output();
        }
        if (is_open) {
            self->read_output();
        } else {
            boost::system::error_code ignored;
            self->output_.close(ignored);
        }
    });
}

bool Child::drain_output() {
    const ReadEnd end = read_once(output_.native_handle(), [&](std::string_view bytes) {
        for (const std::string& line : log_.feed(bytes)) {
            if (events_.on_output) events_.on_output(line);
        }
    });
    return end == ReadEnd::kMore || (end == ReadEnd::kEmpty && !is_reaped_);
}

}  // namespace deploy

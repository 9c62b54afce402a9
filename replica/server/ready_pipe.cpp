#include "replica/server/ready_pipe.h"

#include <cerrno>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace replica::server {

ReadyPipe::ReadyPipe(std::optional<int> fd, std::string instance)
    : fd_(fd.value_or(-1)), instance_(std::move(instance)) {
    if (fd_ < 0) return;
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
    ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
}

ReadyPipe::~ReadyPipe() {
    if (fd_ >= 0) ::close(fd_);
}

void ReadyPipe::write_line(const std::string& line, WriteOptions options) {
    const std::lock_guard lock(mutex_);
    if (fd_ < 0) return;
    std::string_view rest = line;
    while (!rest.empty()) {
        const ssize_t written = ::write(fd_, rest.data(), rest.size());
        if (written > 0) {
            rest.remove_prefix(static_cast<std::size_t>(written));
            continue;
        }
        if (errno == EINTR) continue;
        // Lines up to PIPE_BUF are written whole or not at all, so dropping one cuts none.
        if (errno == EAGAIN && options.may_drop && rest.size() == line.size()) return;
        pollfd wanted{.fd = fd_, .events = POLLOUT, .revents = 0};
        if (errno != EAGAIN || ::poll(&wanted, 1, kPipeWaitMaxMs) <= 0) {
            ::close(fd_);  // the launcher is gone or stuck; it learns of us by other ways
            fd_ = -1;
            return;
        }
    }
}

}  // namespace replica::server

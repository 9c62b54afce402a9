#include "proto/outlet.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/free_string.h"

namespace proto {
namespace {

bool is_writable(int fd, int wait_ms) {
    pollfd one{.fd = fd, .events = POLLOUT, .revents = 0};
    return ::poll(&one, 1, wait_ms) > 0;
}

}  // namespace

Outlet::Outlet(int fd, std::size_t bytes_max) : fd_(fd), bytes_max_(bytes_max) {
    struct stat found {};
    if (::fstat(fd, &found) != 0) return;
    if (S_ISSOCK(found.st_mode)) kind_ = Kind::kSocket;
    if (!S_ISFIFO(found.st_mode) && !S_ISCHR(found.st_mode)) return;
    kind_ = Kind::kPipe;
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    own_fd_ = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

Outlet::~Outlet() {
    if (own_fd_ >= 0) ::close(own_fd_);
}

bool Outlet::add(std::string_view lines) {
    if (lines.size() > bytes_max_ - std::min(bytes_max_, waiting_.size())) {
        drop(lines);
        return false;
    }
    waiting_ += lines;
    return true;
}

void Outlet::drop(std::string_view lines) {
    const auto count = static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '\n'));
    dropped_ += count;
    dropped_total_ += count;
}

std::uint64_t Outlet::take_dropped() {
    return std::exchange(dropped_, 0);
}

/// As write(); EAGAIN where it would have to wait.
long Outlet::write_some(std::string_view bytes) const {
    if (own_fd_ >= 0) return ::write(own_fd_, bytes.data(), bytes.size());
    if (kind_ == Kind::kSocket) {
        return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (kind_ == Kind::kPipe) {
        if (!is_writable(fd_, 0)) {
            errno = EAGAIN;
            return -1;
        }
        bytes = bytes.substr(0, PIPE_BUF);
    }
    return ::write(fd_, bytes.data(), bytes.size());
}

bool Outlet::flush() {
    std::size_t written = 0;
    while (written < waiting_.size()) {
        const long count = write_some(std::string_view(waiting_).substr(written));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (count <= 0) {  // a log is no reason to end
            drop(std::string_view(waiting_).substr(written));
            written = waiting_.size();
            break;
        }
        written += static_cast<std::size_t>(count);
    }
    if (written == waiting_.size() && waiting_.capacity() > bytes_max_ / 8) {
        free_string(waiting_);
    } else {
        waiting_.erase(0, written);
    }
    return waiting_.empty();
}

bool Outlet::flush_within(std::chrono::milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!flush()) {
        const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
            end - std::chrono::steady_clock::now());
        if (rest.count() <= 0) return false;
        (void)is_writable(fd_, static_cast<int>(rest.count()));
    }
    return true;
}

}  // namespace proto

#include "router/admin_socket.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace router {
namespace {

constexpr mode_t kNotForOthers = 0117;  // leaves 0660
constexpr int kBacklog = 16;

[[noreturn]] void refuse_socket(const std::string& path, int error) {
    throw std::system_error(error, std::generic_category(), "cannot listen on " + path);
}

/// Whether `path` is free after what a process that has ended left there is gone.
void make_room(const std::string& path, const sockaddr_un& address) {
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) return;
    if (!S_ISSOCK(found.st_mode)) refuse_socket(path, EEXIST);
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool is_alive =
        ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
        errno == EAGAIN;
    ::close(probe);
    if (is_alive) refuse_socket(path, EADDRINUSE);
    ::unlink(path.c_str());
}

int listen_on(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) refuse_socket(path, ENAMETOOLONG);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    make_room(path, address);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t old_mask = ::umask(kNotForOthers);
    const bool is_bound =
        ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const int error = errno;
    ::umask(old_mask);
    if (!is_bound || ::listen(fd, kBacklog) != 0) {
        ::close(fd);
        refuse_socket(path, is_bound ? errno : error);
    }
    return fd;
}

/// The number of the file there; 0: there is none.
ino_t file_at(const std::string& path) {
    struct stat found {};
    return ::lstat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

}  // namespace

AdminSocket::AdminSocket(std::string path)
    : path_(std::move(path)), fd_(listen_on(path_)), file_(file_at(path_)) {}

AdminSocket::~AdminSocket() {
    free_path();
    if (fd_ >= 0) ::close(fd_);
}

void AdminSocket::free_path() {
    if (!path_.empty() && file_at(path_) == file_) ::unlink(path_.c_str());
    path_.clear();
}

int AdminSocket::release() {
    return std::exchange(fd_, -1);
}

}  // namespace router

#include "proto/regular_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace proto {
namespace {

using Error = tl::unexpected<std::string>;

/// A descriptor of the file, for the caller to close.
tl::expected<int, std::string> open_regular_file(const std::string& path) {
    // Without O_NONBLOCK a pipe would hold the caller before it could be looked at.
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return Error(std::strerror(errno));
    struct stat found {};
    if (::fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) return fd;
    ::close(fd);
    return Error("it is not a regular file");
}

tl::expected<std::string, std::string> read_open_file(int fd, std::size_t bytes_max) {
    std::string text;
    std::array<char, 16 * 1024> piece{};
    while (true) {
        const ssize_t count = ::read(fd, piece.data(), piece.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return Error(std::strerror(errno));
        if (count == 0) return text;
        if (text.size() + static_cast<std::size_t>(count) > bytes_max) {
            return Error("it is longer than " + std::to_string(bytes_max) + " bytes");
        }
        text += std::string_view(piece.data(), static_cast<std::size_t>(count));
    }
}

}  // namespace

tl::expected<std::string, std::string> read_regular_file(const std::string& path,
                                                         std::size_t bytes_max) {
    const auto fd = open_regular_file(path);
    if (!fd) return Error(fd.error());
    auto text = read_open_file(*fd, bytes_max);
    ::close(*fd);
    return text;
}

std::optional<std::string> regular_file_error(const std::string& path) {
    const auto fd = open_regular_file(path);
    if (!fd) return fd.error();
    ::close(*fd);
    return std::nullopt;
}

}  // namespace proto

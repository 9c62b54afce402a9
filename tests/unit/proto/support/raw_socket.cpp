#include "tests/unit/proto/support/raw_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace proto_test {
namespace {

// No test waits this long unless it fails; generous, since sanitizers on a busy machine are slow.
constexpr int kPatienceMs = 20'000;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

void wait_for(int fd, short events) {
    pollfd entry{fd, events, 0};
    if (::poll(&entry, 1, kPatienceMs) == 0) ADD_FAILURE() << "the peer did nothing for too long";
}

}  // namespace

RawSocket::RawSocket(std::uint16_t port) : RawSocket(unconnected()) {
    connect(port);
}

RawSocket RawSocket::unconnected() {
    return RawSocket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

RawSocket RawSocket::from(int last, std::uint16_t port) {
    RawSocket socket = unconnected();
    sockaddr_in own = loopback(0);
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<std::uint32_t>(last));
    if (::bind(socket.fd_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) {
        ADD_FAILURE() << "bind: errno " << errno;
    }
    socket.connect(port);
    return socket;
}

void RawSocket::connect(std::uint16_t port) const {
    const sockaddr_in address = loopback(port);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        ADD_FAILURE() << "connect: errno " << errno;
    }
}

RawSocket::RawSocket(int connected_fd) : fd_(connected_fd) {}

RawSocket::RawSocket(RawSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), ahead_(std::move(other.ahead_)) {}

RawSocket::~RawSocket() {
    close();
}

void RawSocket::close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawSocket::send(std::string_view bytes) const {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0) return;
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

std::string RawSocket::read_some() const {
    std::array<char, 65536> buffer{};
    wait_for(fd_, POLLIN);
    const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    return count > 0 ? std::string(buffer.data(), static_cast<std::size_t>(count)) : std::string();
}

std::string RawSocket::read_to_end() const {
    std::string all = ahead_;
    while (true) {
        const std::string piece = read_some();
        if (piece.empty()) return all;
        all += piece;
    }
}

std::string RawSocket::read_until(std::string_view mark) {
    std::string all = std::exchange(ahead_, {});
    std::size_t end = all.find(mark);
    while (end == std::string::npos) {
        const std::string piece = read_some();
        if (piece.empty()) return all;
        const std::size_t seen = all.size() - std::min(all.size(), mark.size());
        all += piece;
        end = all.find(mark, seen);
    }
    ahead_ = all.substr(end + mark.size());
    all.resize(end + mark.size());
    return all;
}

std::string RawSocket::read_answer() {
    std::string answer = read_until("\r\n\r\n");
    const std::size_t field = answer.find("Content-Length: ");
    std::size_t left =
        field == std::string::npos ? 0 : std::strtoul(answer.c_str() + field + 16, nullptr, 10);
    while (ahead_.size() < left) {
        const std::string piece = read_some();
        if (piece.empty()) break;
        ahead_ += piece;
    }
    left = std::min(left, ahead_.size());
    answer += ahead_.substr(0, left);
    ahead_.erase(0, left);
    return answer;
}

void RawSocket::shutdown_send() const {
    ::shutdown(fd_, SHUT_WR);
}

void RawSocket::reset() {
    const linger immediately{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &immediately, sizeof(immediately));
    close();
}

void RawSocket::set_receive_buffer(int bytes) const {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

RawListener::RawListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd_, 64) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        ADD_FAILURE() << "listen: errno " << errno;
    }
    port_ = ntohs(address.sin_port);
}

RawListener::~RawListener() {
    if (fd_ >= 0) ::close(fd_);
}

int RawListener::release() {
    return std::exchange(fd_, -1);
}

RawSocket RawListener::accept() const {
    wait_for(fd_, POLLIN);
    return RawSocket(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
}

}  // namespace proto_test

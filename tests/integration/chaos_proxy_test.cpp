// The chaos proxy by itself: a client and a server of plain sockets around it. Times have lower
// bounds only, which a slow machine cannot break: late is never early.
#include "tests/support/chaos_proxy.h"

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace support {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// One blocking socket; reads give up after half a minute.
class Socket {
public:
    explicit Socket(int fd) : fd_(fd) {
        if (fd < 0) throw std::runtime_error("no socket");
        const timeval patience{.tv_sec = 30, .tv_usec = 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        const int on = 1;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    ~Socket() {
        if (fd_ >= 0) ::close(fd_);
    }
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    Socket& operator=(Socket&&) = delete;

    void send(const std::string& bytes) const {
        for (std::size_t at = 0; at < bytes.size();) {
            const ssize_t count = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
            if (count <= 0) return;
            at += static_cast<std::size_t>(count);
        }
    }
    void end() const { ::shutdown(fd_, SHUT_WR); }

    struct Piece {
        std::string bytes;
        bool is_reset = false;
    };
    /// One recv(); empty at the end of the stream.
    [[nodiscard]] Piece read() const {
        std::array<char, 65536> buffer;
        const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), 0);
        if (count < 0) return {.is_reset = errno == ECONNRESET};
        return {.bytes = std::string(buffer.data(), static_cast<std::size_t>(count))};
    }
    /// Until `size` bytes are there, or the stream ends.
    [[nodiscard]] std::string read_bytes(std::size_t size) const {
        std::string bytes;
        while (bytes.size() < size) {
            const Piece piece = read();
            if (piece.bytes.empty()) break;
            bytes += piece.bytes;
        }
        return bytes;
    }

private:
    int fd_;
};

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/// A listening socket, the proxy in front of it, and one connection through it.
class Ends {
public:
    Ends() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address = loopback(0);
        socklen_t size = sizeof address;
        if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
            ::listen(listener_, 16) != 0 ||
            ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
            throw std::runtime_error("no listener");
        }
        proxy = std::make_unique<ChaosProxy>(ntohs(address.sin_port));
    }
    ~Ends() { ::close(listener_); }
    Ends(const Ends&) = delete;
    Ends& operator=(const Ends&) = delete;

    /// Client and server end of a new connection.
    [[nodiscard]] std::pair<Socket, Socket> connect() const {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in address = loopback(proxy->port());
        if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            throw std::runtime_error("no connection");
        }
        return {Socket(fd), Socket(::accept(listener_, nullptr, nullptr))};
    }
    void stop_listening() { ::close(std::exchange(listener_, -1)); }

    std::unique_ptr<ChaosProxy> proxy;

private:
    int listener_;
};

std::string text_of(std::size_t size) {
    std::string text;
    while (text.size() < size)
        text += std::to_string(text.size()) + " ";
    text.resize(size);
    return text;
}

TEST(ChaosProxyTest, WithNothingSetEveryBytePassesBothWaysAndTheEndToo) {
    const Ends ends;
    const auto [client, server] = ends.connect();
    const std::string up = text_of(100'000);
    const std::string down = text_of(50'000);
    client.send(up);
    EXPECT_EQ(server.read_bytes(up.size()), up);
    server.send(down);
    EXPECT_EQ(client.read_bytes(down.size()), down);
    client.end();
    EXPECT_TRUE(server.read().bytes.empty());
    server.send("after a half close");
    EXPECT_EQ(client.read_bytes(18), "after a half close");
    EXPECT_EQ(ends.proxy->accepted(), 1U);
}

TEST(ChaosProxyTest, LatencyDelaysEveryByteAndKeepsTheOrder) {
    const Ends ends;
    ends.proxy->set({}, {.latency = 100ms});
    const auto [client, server] = ends.connect();
    const auto began = Clock::now();
    server.send("first ");
    server.send("second");
    EXPECT_EQ(client.read_bytes(12), "first second");
    EXPECT_GE(Clock::now() - began, 100ms);
}

TEST(ChaosProxyTest, BandwidthHoldsTheAverage) {
    const Ends ends;
    ends.proxy->set({.bytes_per_s = 100'000}, {});
    const auto [client, server] = ends.connect();
    const std::string text = text_of(30'000);
    const auto began = Clock::now();
    client.send(text);
    EXPECT_EQ(server.read_bytes(text.size()), text);
    EXPECT_GE(Clock::now() - began, 250ms) << "300 ms, the first piece goes at once";
}

TEST(ChaosProxyTest, SlowCloseDelaysTheEndOnly) {
    const Ends ends;
    ends.proxy->set({}, {.slow_close = 150ms});
    const auto [client, server] = ends.connect();
    const auto began = Clock::now();
    server.send("all");
    server.end();
    EXPECT_EQ(client.read_bytes(3), "all");
    EXPECT_TRUE(client.read().bytes.empty());
    EXPECT_GE(Clock::now() - began, 150ms);
}

TEST(ChaosProxyTest, TimeoutLetsNothingThroughAndThenClosesBothSides) {
    const Ends ends;
    ends.proxy->set({.timeout = 100ms}, {});
    const auto [client, server] = ends.connect();
    const auto began = Clock::now();
    client.send("never seen");
    EXPECT_TRUE(server.read().bytes.empty());
    EXPECT_TRUE(client.read().bytes.empty());
    EXPECT_GE(Clock::now() - began, 90ms);
}

TEST(ChaosProxyTest, ResetAfterATimeAndOfAllThatIsOpen) {
    const Ends ends;
    ends.proxy->set({}, {.reset_after = 50ms});
    {
        const auto [client, server] = ends.connect();
        EXPECT_TRUE(client.read().is_reset);
        EXPECT_TRUE(server.read().is_reset);
    }
    ends.proxy->set({}, {});
    const auto [client, server] = ends.connect();
    client.send("hello");
    EXPECT_EQ(server.read_bytes(5), "hello");
    ends.proxy->reset_all();
    EXPECT_TRUE(client.read().is_reset);
    EXPECT_TRUE(server.read().is_reset);
}

TEST(ChaosProxyTest, SlicerSendsPiecesOfItsSizeWithTimeBetweenThem) {
    const Ends ends;
    ends.proxy->set({.slice_bytes = 3, .slice_gap = 1ms}, {});
    const auto [client, server] = ends.connect();
    const std::string text = text_of(100);
    const auto began = Clock::now();
    client.send(text);
    EXPECT_EQ(server.read_bytes(text.size()), text);
    EXPECT_GE(Clock::now() - began, 33ms) << "34 pieces";
}

TEST(ChaosProxyTest, LimitPassesExactlySoManyBytes) {
    const Ends ends;
    ends.proxy->set({}, {.limit_bytes = 1000});
    const auto [client, server] = ends.connect();
    const std::string text = text_of(5000);
    server.send(text);
    EXPECT_EQ(client.read_bytes(5000), text.substr(0, 1000));
}

TEST(ChaosProxyTest, WhatIsSetHoldsForLaterConnectionsOnly) {
    const Ends ends;
    const auto [early, early_server] = ends.connect();
    early.send("1");
    EXPECT_EQ(early_server.read_bytes(1), "1");  // it is open on both sides
    ends.proxy->set({}, {.limit_bytes = 2});
    const auto [late, late_server] = ends.connect();
    early_server.send("all of it");
    late_server.send("two only");
    EXPECT_EQ(early.read_bytes(9), "all of it");
    EXPECT_EQ(late.read_bytes(9), "tw");
}

TEST(ChaosProxyTest, AServerThatIsNotThereShowsAsAReset) {
    Ends ends;
    ends.stop_listening();
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(ends.proxy->port());
    ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const Socket client(fd);
    EXPECT_TRUE(client.read().is_reset);
}

}  // namespace
}  // namespace support

// A blocking TCP socket for tests that send exact bytes: no library tidies them up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace proto_test {

class RawSocket {
public:
    /// Connects to 127.0.0.1:`port`; every read fails the test after `kPatience`.
    explicit RawSocket(std::uint16_t port);
    explicit RawSocket(int connected_fd);
    static RawSocket unconnected();
    /// The same from 127.0.0.`last`, another address of this machine.
    static RawSocket from(int last, std::uint16_t port);
    void connect(std::uint16_t port) const;
    RawSocket(RawSocket&& other) noexcept;
    RawSocket(const RawSocket&) = delete;
    RawSocket& operator=(const RawSocket&) = delete;
    ~RawSocket();

    /// Sends all bytes; a peer that has closed is not an error.
    void send(std::string_view bytes) const;
    /// At least one byte, or "" at the end.
    std::string read_some() const;
    /// Everything until the peer ends.
    std::string read_to_end() const;
    /// Everything until `mark` has arrived, `mark` included, or the peer ends.
    std::string read_until(std::string_view mark);
    /// One answer with Content-Length: head and body.
    std::string read_answer();

    void shutdown_send() const;
    /// Closes with RST instead of FIN.
    void reset();
    void close();
    void set_receive_buffer(int bytes) const;

private:
    int fd_;
    std::string ahead_;  // read beyond the last mark
};

/// A listening socket whose other side is played by the test.
class RawListener {
public:
    RawListener();
    ~RawListener();
    RawListener(const RawListener&) = delete;
    RawListener& operator=(const RawListener&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] int fd() const { return fd_; }
    /// Gives the descriptor away.
    int release();
    [[nodiscard]] RawSocket accept() const;

private:
    int fd_;
    std::uint16_t port_ = 0;
};

}  // namespace proto_test

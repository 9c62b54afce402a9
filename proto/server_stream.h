// server_stream: the bytes of one client connection, over plain TCP, a local socket or TLS. Inside
// proto only.
//
// Reads and writes try the socket and return at once; `would_block` means to wait for the readiness
// that read_wait() or write_wait() names and to try again, a write with the same bytes.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string_view>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/system/error_code.hpp>

#include "proto/tls.h"

namespace proto {

/// TCP, or a local socket that was inherited.
using StreamProtocol = boost::asio::generic::stream_protocol;

class ServerStream {
public:
    using WaitKind = boost::asio::socket_base::wait_type;
    /// What leaves in one write: head, size line, bytes and end of a chunk, some of them empty.
    using Parts = std::array<std::string_view, 4>;

    explicit ServerStream(StreamProtocol::socket socket) : socket_(std::move(socket)) {}

    [[nodiscard]] StreamProtocol::socket& socket() { return socket_; }

    /// Before the first byte. The session follows with shake_hands(), as often as it asks.
    void start_tls(std::shared_ptr<const TlsContext> context);
    [[nodiscard]] TlsSession::Status shake_hands() { return tls_->handshake(); }
    /// The client speaks without TLS: what is sent from here on is plain.
    void drop_tls() { tls_.reset(); }

    /// At least one byte, or an error: would_block, eof, or the connection is broken.
    std::size_t read_some(char* bytes, std::size_t size, boost::system::error_code& error);
    /// What the last read that would have blocked waits for.
    [[nodiscard]] WaitKind read_wait() const { return read_wait_; }
    /// The last read took bytes and there may be more that the socket does not tell of.
    [[nodiscard]] bool may_hold_more() const { return may_hold_more_; }

    std::size_t write_some(const Parts& parts, boost::system::error_code& error);

    /// No more is sent: close_notify, then FIN.
    void end();
    /// At once; with TLS the client sees that this was no proper end unless end() came before.
    void close();

private:
    StreamProtocol::socket socket_;
    std::unique_ptr<TlsSession> tls_;  // null: plain
    WaitKind read_wait_ = boost::asio::socket_base::wait_read;
    bool may_hold_more_ = false;
};

}  // namespace proto

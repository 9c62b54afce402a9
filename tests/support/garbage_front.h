// garbage_front: stands before the fake's own server and answers generations with bytes that no
// HTTP server would write. Everything else (the status stream, polls, other paths, generations
// without the text that asks for it) passes through unchanged.
//
//   router ──▶ front ──▶ the fake's server      GET …, POST without the text
//              front ◀── garbage                POST /v1/… with the text, then both sides are
//              closed
//
// On the loop of the fake; one coroutine per direction of a connection.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace fake {

/// What can be asked for:
///   status-line   a first line that is none
///   head          a head without end, as fast as it is taken
///   slow          an answer of one byte a second, from its first byte on
///   chunk         a whole event, then the connection ends inside a chunk
///   empty         200, and the stream ends without an event
[[nodiscard]] const std::vector<std::string>& garbage_kinds();

class GarbageFront {
public:
    struct Options {
        std::string kind;
        std::string on;        // only requests with this text; empty: all
        std::uint16_t port;    // 0: a free one
        std::uint16_t behind;  // the fake's server
    };
    GarbageFront(boost::asio::io_context& loop, Options options);

    [[nodiscard]] std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

private:
    struct Link;
    boost::asio::awaitable<void> accept();
    boost::asio::awaitable<void> serve(std::shared_ptr<Link> link);
    boost::asio::awaitable<void> answer(std::shared_ptr<Link> link);
    boost::asio::awaitable<void> answer_slowly(std::shared_ptr<Link> link);

    boost::asio::io_context& loop_;
    Options options_;
    boost::asio::ip::tcp::acceptor acceptor_;
};

}  // namespace fake

#include "tests/support/garbage_front.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

namespace fake {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

constexpr auto kQuietly = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kSlowStep{1};
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kEvent =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one \"}}]}\n\n";

/// The first whole request in `bytes`, in bytes; 0 while it is unfinished. The router always
/// declares the length.
std::size_t request_size(std::string_view bytes) {
    const std::size_t end = bytes.find(kHeadEnd);
    if (end == std::string_view::npos) return 0;
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    const std::size_t at = bytes.substr(0, end).find(kLength);
    std::size_t size = end + kHeadEnd.size();
    if (at != std::string_view::npos) {
        size += std::strtoul(bytes.data() + at + kLength.size(), nullptr, 10);
    }
    return size <= bytes.size() ? size : 0;
}

std::string chunk_of(std::string_view bytes) {
    std::array<char, 32> size;
    std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
    return std::string(size.data()) + std::string(bytes) + "\r\n";
}

/// What is written once; empty for the kinds that go on.
std::string bytes_of(const std::string& kind) {
    if (kind == "status-line") return "HTTP/1.1 fine\r\nContent-Length: 0\r\n\r\n";
    if (kind == "empty") return std::string(kStreamHead) + "0\r\n\r\n";
    if (kind == "chunk") {
        return std::string(kStreamHead) + chunk_of(kEvent) + "400\r\ndata: {\"choices\":[{";
    }
    return "";
}

/// Passes on what the fake's server says until either side has ended.
asio::awaitable<void> pump(tcp::socket& from, tcp::socket& to) {
    std::array<char, 16384> buffer;
    for (;;) {
        const auto [error, count] = co_await from.async_read_some(asio::buffer(buffer), kQuietly);
        if (error) break;
        const auto piece = asio::buffer(buffer.data(), count);
        const auto [write_error, written] = co_await asio::async_write(to, piece, kQuietly);
        if (write_error) break;
    }
    boost::system::error_code ignored;
    to.close(ignored);
}

void must_not_fail(std::exception_ptr failure) {
    if (failure) std::rethrow_exception(failure);
}

}  // namespace

struct GarbageFront::Link {
    explicit Link(tcp::socket accepted)
        : client(std::move(accepted)), server(client.get_executor()) {}

    tcp::socket client, server;
};

const std::vector<std::string>& garbage_kinds() {
    static const std::vector<std::string> kinds = {"status-line", "head", "slow", "chunk", "empty"};
    return kinds;
}

GarbageFront::GarbageFront(asio::io_context& loop, Options options)
    : loop_(loop),
      options_(std::move(options)),
      acceptor_(loop, tcp::endpoint(asio::ip::address_v4::loopback(), options_.port)) {
    asio::co_spawn(loop_, accept(), must_not_fail);
}

asio::awaitable<void> GarbageFront::accept() {
    for (;;) {
        auto [error, socket] = co_await acceptor_.async_accept(kQuietly);
        if (error) continue;
        const auto link = std::make_shared<Link>(std::move(socket));
        asio::co_spawn(loop_, serve(link), must_not_fail);
    }
}

asio::awaitable<void> GarbageFront::serve(std::shared_ptr<Link> link) {
    const tcp::endpoint behind(asio::ip::address_v4::loopback(), options_.behind);
    const auto [connect_error] = co_await link->server.async_connect(behind, kQuietly);
    if (connect_error) co_return;
    asio::co_spawn(
        loop_, [link]() -> asio::awaitable<void> { co_await pump(link->server, link->client); },
        must_not_fail);
    std::string held;
    std::array<char, 16384> buffer;
    for (;;) {
        const auto target = asio::buffer(buffer);
        const auto [error, count] = co_await link->client.async_read_some(target, kQuietly);
        if (error) break;
        held.append(buffer.data(), count);
        for (std::size_t size = request_size(held); size > 0; size = request_size(held)) {
            const std::string request = held.substr(0, size);
            held.erase(0, size);
            if (request.starts_with("POST /v1/") && request.find(options_.on) != request.npos) {
                co_await answer(link);
                co_return;
            }
            const auto piece = asio::buffer(request);
            const auto [write_error, written] =
                co_await asio::async_write(link->server, piece, kQuietly);
            if (write_error) co_return;
        }
    }
    boost::system::error_code ignored;
    link->server.close(ignored);
}

asio::awaitable<void> GarbageFront::answer(std::shared_ptr<Link> link) {
    std::printf("garbage %s\n", options_.kind.c_str());
    std::fflush(stdout);
    std::string bytes = bytes_of(options_.kind);
    if (!bytes.empty()) {
        const auto piece = asio::buffer(bytes);
        (void)co_await asio::async_write(link->client, piece, kQuietly);
    } else if (options_.kind == "slow") {
        co_await answer_slowly(link);
    } else {
        bytes = "HTTP/1.1 200 OK\r\n";
        for (;;) {
            const auto piece = asio::buffer(bytes);
            const auto [error, written] = co_await asio::async_write(link->client, piece, kQuietly);
            if (error) break;
            bytes = "x-filler: " + std::string(100, 'x') + "\r\n";
        }
    }
    boost::system::error_code ignored;
    link->client.shutdown(tcp::socket::shutdown_send, ignored);
    link->server.close(ignored);  // and with it, by the pump, the client's side
}

asio::awaitable<void> GarbageFront::answer_slowly(std::shared_ptr<Link> link) {
    const std::string bytes = std::string(kStreamHead) + chunk_of(kEvent);
    asio::steady_timer timer(loop_);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto piece = asio::buffer(bytes.data() + i, 1);
        const auto [error, written] = co_await asio::async_write(link->client, piece, kQuietly);
        if (error) co_return;
        timer.expires_after(kSlowStep);
        (void)co_await timer.async_wait(kQuietly);
    }
}

}  // namespace fake

#include "proto/client_connection.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/socket_options.h"

namespace proto {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

// Bytes read ahead of the reader; beyond it TCP's own window slows the upstream.
constexpr std::size_t kReadAheadBytes = 64 * kKiB;

ClientError plain_error(ClientErrorKind kind, std::string message) {
    ClientError error;
    error.kind = kind;
    error.message = std::move(message);
    return error;
}

}  // namespace

ClientConnection::ClientConnection(std::shared_ptr<ClientPool> pool, std::string endpoint_key)
    : pool_(std::move(pool)),
      endpoint_key_(std::move(endpoint_key)),
      socket_(pool_->executor),
      resolver_(pool_->executor),
      wake_(pool_->executor) {}

ClientConnection::~ClientConnection() {
    close();
}

asio::awaitable<std::optional<ClientError>> ClientConnection::connect(
    const Endpoint& endpoint, std::chrono::milliseconds timeout) {
    const auto self = shared_from_this();
    is_connecting_ = true;
    asio::steady_timer timer(pool_->executor);
    watch_connect(timer, Deadline(timeout));
    std::vector<tcp::endpoint> targets;
    boost::system::error_code error;
    const asio::ip::address address = asio::ip::make_address(endpoint.host, error);
    if (!error) {
        targets.emplace_back(address, endpoint.port);
    } else {
        auto [resolve_error, results] = co_await resolver_.async_resolve(
            endpoint.host, std::to_string(endpoint.port), asio::as_tuple(asio::use_awaitable));
        for (const auto& entry : results)
            targets.push_back(entry.endpoint());
        error = resolve_error;
    }
    for (const tcp::endpoint& target : targets) {
        if (is_connect_late_ || is_closed_by_us_) break;
        boost::system::error_code ignored;
        socket_.close(ignored);
        auto [connect_error] =
            co_await socket_.async_connect(target, asio::as_tuple(asio::use_awaitable));
        error = connect_error;
        if (!error) break;
    }
    is_connecting_ = false;
    timer.cancel();
    if (is_closed_by_us_) {
        co_return plain_error(ClientErrorKind::kCancelled, "cancelled while connecting");
    }
    if (is_connect_late_) {
        co_return plain_error(ClientErrorKind::kConnectTimeout,
                              "no connection to " + endpoint.text() + " in time");
    }
    if (error) {
        co_return plain_error(ClientErrorKind::kRefused, endpoint.text() + ": " + error.message());
    }
    renew_registration();
    set_close_on_exec(socket_.native_handle());
    set_stream_options(socket_.native_handle());
    socket_.non_blocking(true, error);
    start_read();
    co_return std::nullopt;
}

/// `timer` lives until connect() returns and is cancelled then.
void ClientConnection::watch_connect(asio::steady_timer& timer, Deadline deadline) {
    timer.expires_at(deadline.at());
    timer.async_wait([self = shared_from_this(), &timer,
                      deadline](const boost::system::error_code& error) mutable {
        // An expiry may be queued when the connect completes; it is then nobody's.
        if (error || !self->is_connecting_) return;
        if (!deadline.has_passed(Clock::now())) {
            self->watch_connect(timer, deadline);
            return;
        }
        self->is_connect_late_ = true;
        self->resolver_.cancel();
        boost::system::error_code ignored;
        self->socket_.close(ignored);
    });
}

/// Connecting leaves the socket registered for output as well, and each later wait for input would
/// be answered "you may write" at once: a turn of the loop for every piece of an answer.
void ClientConnection::renew_registration() {
    boost::system::error_code error;
    const tcp protocol = socket_.local_endpoint(error).protocol();
    const int fd = socket_.release(error);
    if (error) return;
    socket_.assign(protocol, fd, error);
    if (error) ::close(fd);  // the first read then ends the connection
}

void ClientConnection::start_read() {
    if (is_reading_ || is_ended_ || input().size() >= kReadAheadBytes) return;
    is_reading_ = true;
    socket_.async_wait(tcp::socket::wait_read,
                       [weak = weak_from_this()](const boost::system::error_code& error) {
                           const auto self = weak.lock();
                           if (!self) return;
                           self->is_reading_ = false;
                           if (!error) self->on_readable();
                       });
}

void ClientConnection::on_readable() {
    if (is_ended_) return;
    auto& scratch = pool_->read_scratch;
    const std::size_t room = kReadAheadBytes - std::min(input().size(), kReadAheadBytes);
    boost::system::error_code error;
    const std::size_t count =
        socket_.read_some(asio::buffer(scratch.data(), std::min(scratch.size(), room)), error);
    if (error == asio::error::would_block || error == asio::error::interrupted) {
        start_read();
        return;
    }
    if (error || is_idle_) {  // bytes on an idle connection answer nothing we asked
        on_end();
        return;
    }
    input_.append(scratch.data(), count);
    received_total_ += count;
    wake_.cancel();
    start_read();
}

void ClientConnection::on_end() {
    is_ended_ = true;
    wake_.cancel();
    if (is_idle_) {
        close();
        leave_pool();
    }
}

void ClientConnection::close() {
    is_closed_by_us_ = true;
    is_ended_ = true;
    resolver_.cancel();
    boost::system::error_code ignored;
    socket_.close(ignored);
    wake_.cancel();
}

asio::awaitable<bool> ClientConnection::wait_input(Deadline& deadline) {
    const std::uint64_t received_before = received_total_;
    while (true) {
        start_read();
        if (received_total_ != received_before || is_ended_) co_return true;
        if (deadline.has_passed(Clock::now())) co_return false;
        wake_.expires_at(deadline.at());
        co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

asio::awaitable<ClientConnection::WriteEnd> ClientConnection::write(
    std::string_view head, std::string_view body, std::chrono::milliseconds stall) {
    const auto self = shared_from_this();
    while (!head.empty() || !body.empty()) {
        if (is_closed_by_us_ || is_ended_) co_return WriteEnd::kEnded;
        const std::array<asio::const_buffer, 2> buffers = {
            asio::const_buffer(head.data(), head.size()),
            asio::const_buffer(body.data(), body.size())};
        boost::system::error_code error;
        const std::size_t count = socket_.write_some(buffers, error);
        if (!error) {
            const std::size_t of_head = std::min(count, head.size());
            head.remove_prefix(of_head);
            body.remove_prefix(count - of_head);
            continue;
        }
        if (error == asio::error::interrupted) continue;
        if (error != asio::error::would_block) co_return WriteEnd::kEnded;
        if (!is_waiting_writable_) {
            is_waiting_writable_ = true;
            socket_.async_wait(tcp::socket::wait_write,
                               [weak = weak_from_this()](const boost::system::error_code&) {
                                   const auto connection = weak.lock();
                                   if (!connection) return;
                                   connection->is_waiting_writable_ = false;
                                   connection->is_writable_ = true;
                                   connection->wake_.cancel();
                               });
        }
        is_writable_ = false;
        Deadline deadline(stall);
        while (!is_writable_ && !is_ended_ && input().empty()) {
            if (deadline.has_passed(Clock::now())) co_return WriteEnd::kStalled;
            wake_.expires_at(deadline.at());
            co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
        }
        if (!input().empty()) co_return WriteEnd::kAnswered;
    }
    co_return WriteEnd::kWritten;
}

void ClientConnection::consume(std::size_t count) {
    input_begin_ += count;
    assert(input_begin_ <= input_.size() && "only what has arrived can be consumed");
    if (input_begin_ == input_.size()) {
        input_.clear();
        input_begin_ = 0;
    } else if (input_begin_ > kReadAheadBytes) {
        input_.erase(0, input_begin_);
        input_begin_ = 0;
    }
}

bool ClientConnection::is_fresh() {
    if (is_ended_ || !input().empty() || !socket_.is_open()) return false;
    // A FIN that this loop has not come to yet: a look now spares a request that would be lost.
    char byte = 0;
    const ssize_t count = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

void ClientConnection::begin_idle(std::chrono::milliseconds idle) {
    is_idle_ = true;
    start_read();
    wake_.expires_after(idle);
    wake_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
        const auto self = weak.lock();
        if (error || !self || !self->is_idle_) return;
        // The timer may have been set anew for another stay in the pool.
        if (self->wake_.expiry() > Clock::now()) return;
        self->on_end();
    });
}

void ClientConnection::end_idle() {
    is_idle_ = false;
    wake_.cancel();
}

void ClientConnection::leave_pool() {
    const auto entry = pool_->endpoints.find(endpoint_key_);
    if (entry == pool_->endpoints.end()) return;
    std::erase_if(entry->second.idle, [this](const auto& kept) { return kept.get() == this; });
}

}  // namespace proto

#include "proto/http_server.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <iterator>
#include <system_error>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/http_connection.h"
#include "proto/socket_options.h"

namespace proto {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;

// After the deadline of stop(), cut handlers get this long to return.
constexpr std::chrono::seconds kAbortGrace{2};
constexpr const char* kUnixPeer = "unix";
// How often ends are looked for behind what is not read: well within the 100 ms of a cancellation.
constexpr std::chrono::milliseconds kEndLook{40};

using Acceptor = asio::basic_socket_acceptor<StreamProtocol>;

Acceptor open_acceptor(const asio::any_io_executor& executor, const HttpServerOptions& options) {
    Acceptor acceptor(executor);
    if (options.listen_fd) {
        sockaddr_storage address{};
        socklen_t size = sizeof(address);
        if (::getsockname(*options.listen_fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
            throw std::system_error(errno, std::generic_category(), "inherited socket");
        }
        acceptor.assign(StreamProtocol(address.ss_family, 0), *options.listen_fd);
        return acceptor;
    }
    try {
        const tcp::endpoint endpoint(asio::ip::make_address(options.address), options.port);
        acceptor.open(StreamProtocol(endpoint.protocol()));
        set_close_on_exec(acceptor.native_handle());
        acceptor.set_option(asio::socket_base::reuse_address(true));
        acceptor.bind(StreamProtocol::endpoint(endpoint));
        acceptor.listen(options.backlog);
    } catch (const boost::system::system_error& error) {
        // The standard type, as promised; its text names the address and not a line of a library.
        throw std::system_error(error.code(), "cannot listen on " + options.address + ":" +
                                                  std::to_string(options.port));
    }
    return acceptor;
}

/// Port 0 for a local socket.
tcp::endpoint to_tcp(const StreamProtocol::endpoint& endpoint) {
    tcp::endpoint result;
    const int family = endpoint.protocol().family();
    if ((family == AF_INET || family == AF_INET6) && endpoint.size() <= result.capacity()) {
        std::memcpy(result.data(), endpoint.data(), endpoint.size());
        result.resize(endpoint.size());
    }
    return result;
}

bool is_local(const std::string& peer) {
    boost::system::error_code error;
    return peer == kUnixPeer || asio::ip::make_address(peer, error).is_loopback();
}

bool is_out_of_descriptors(const boost::system::error_code& error) {
    return error == boost::system::errc::too_many_files_open ||
           error == boost::system::errc::too_many_files_open_in_system ||
           error == boost::system::errc::no_buffer_space ||
           error == boost::system::errc::not_enough_memory;
}

}  // namespace

std::string address_text(const StreamProtocol::endpoint& endpoint) {
    if (endpoint.protocol().family() == AF_UNIX) return kUnixPeer;
    return to_tcp(endpoint).address().to_string();
}

tl::expected<ParsedHead, GateError> parse_request_head(std::string_view bytes) {
    http::request_parser<http::empty_body> parser;
    parser.header_limit(static_cast<std::uint32_t>(bytes.size() + 1));
    parser.body_limit(boost::none);
    boost::system::error_code error;
    parser.put(asio::buffer(bytes.data(), bytes.size()), error);
    if (error || !parser.is_header_done()) {
        return tl::unexpected<GateError>(
            GateError{GateReason::kHeadSyntax,
                      {ErrorCode::kBadRequest, "The request head is malformed.", {}, {}, {}}});
    }
    const auto& message = parser.get();
    ParsedHead head;
    head.method = std::string(message.method_string());
    head.target = std::string(message.target());
    head.version = static_cast<int>(message.version());
    for (const auto& field : message) {
        head.headers.add(std::string(field.name_string()), std::string(field.value()));
    }
    return head;
}

HttpServerCore::HttpServerCore(asio::any_io_executor executor_in, HttpServerOptions options_in,
                               HttpHandler handler_in)
    : executor(std::move(executor_in)),
      options(std::move(options_in)),
      handler(std::move(handler_in)),
      acceptor(open_acceptor(executor, options)),
      accept_pause(executor),
      emptied(executor),
      end_look(executor) {}

HttpServerCore::~HttpServerCore() {
    if (reserve_fd >= 0) ::close(reserve_fd);
}

asio::awaitable<void> HttpServerCore::accept_loop() {
    const auto self = shared_from_this();
    refill_reserve();
    bool is_reserved = false;  // what is accepted next takes the descriptor kept back
    while (is_accepting) {
        const bool is_paused = connections.size() >= options.connections_pause;
        if (is_paused && !is_reserved) {
            is_reserved = spend_reserve();
            if (!is_reserved) {
                ++stats.accept_pauses_total;
                accept_pause.expires_after(options.accept_pause);
                co_await accept_pause.async_wait(asio::as_tuple(asio::use_awaitable));
                continue;
            }
        }
        auto [error, socket] = co_await acceptor.async_accept(asio::as_tuple(asio::use_awaitable));
        // One that the kernel has given us already is ours, also when accepting has just ended.
        if (!is_accepting && (error || is_stopping)) break;
        if (!error) {
            refill_reserve();
            // It may have waited for a client while descriptors became free elsewhere.
            is_reserved = is_reserved && (is_paused || reserve_fd < 0);
            if (!is_reserved) exhausted_since_.reset();
            admit_connection(std::move(socket), std::exchange(is_reserved, false));
        } else if (is_out_of_descriptors(error)) {
            is_reserved = spend_reserve();
            if (is_reserved) continue;
            // The connection stays in the backlog; trying again at once would only spin.
            ++stats.accept_pauses_total;
            accept_pause.expires_after(options.accept_pause);
            co_await accept_pause.async_wait(asio::as_tuple(asio::use_awaitable));
        }
        // Other errors belong to one connection that has already ended.
    }
}

/// Frees the descriptor kept back, if it is time for that; the next accept then has one.
bool HttpServerCore::spend_reserve() {
    const auto now = std::chrono::steady_clock::now();
    if (!exhausted_since_) exhausted_since_ = now;
    if (reserve_fd < 0 || now - *exhausted_since_ < options.reserve_after) return false;
    ::close(std::exchange(reserve_fd, -1));
    return true;
}

void HttpServerCore::refill_reserve() {
    if (!options.reserve_for || reserve_fd >= 0 || is_stopping) return;
    reserve_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void HttpServerCore::admit_connection(StreamProtocol::socket socket, bool is_reserved) {
    boost::system::error_code error;
    const StreamProtocol::endpoint remote = socket.remote_endpoint(error);
    if (error) return;
    set_close_on_exec(socket.native_handle());
    ++stats.connections_total;
    if (connections.size() >= options.connections_max) {
        ++stats.rejected_count_total;
        return;
    }
    const std::string peer = address_text(remote);
    std::size_t& count = connections_of_address[peer];
    const bool is_exempt = options.is_loopback_exempt && is_local(peer);
    if (count >= options.connections_per_address_max && !is_exempt) {
        ++stats.rejected_address_total;
        return;
    }
    ++count;
    set_stream_options(socket.native_handle());
    socket.non_blocking(true, error);
    auto connection =
        std::make_shared<HttpConnection>(shared_from_this(), std::move(socket), peer, is_reserved);
    connections.insert(connection.get());
    stats.connections = connections.size();
    asio::co_spawn(
        executor, [connection] { return connection->run(); },
        [connection](const std::exception_ptr& fault) {
            // run() answers every expected end itself; what is left is memory exhaustion, which
            // costs this connection only.
            if (fault) connection->abort();
            connection->core().forget_connection(*connection);
        });
}

void HttpServerCore::watch_for_end(HttpConnection& connection) {
    if (full.insert(&connection).second && full.size() == 1) look_for_ends();
}

void HttpServerCore::begin_unsent(HttpConnection& connection, std::size_t bytes) {
    unsent.push_back(&connection);
    connection.unsent = {bytes, std::prev(unsent.end())};
    stats.unsent_bytes += bytes;
    while (stats.unsent_bytes > options.unsent_bytes_max) {
        HttpConnection& slowest = *unsent.front();
        end_unsent(slowest);
        ++stats.write_stalls_total;
        slowest.abort();
    }
}

void HttpServerCore::end_unsent(HttpConnection& connection) {
    if (!connection.unsent) return;  // cut meanwhile
    stats.unsent_bytes -= connection.unsent->bytes;
    unsent.erase(connection.unsent->place);
    connection.unsent.reset();
}

void HttpServerCore::look_for_ends() {
    end_look.expires_after(kEndLook);
    end_look.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
        if (error) return;
        std::erase_if(self->full, [](const HttpConnection* one) { return !one->is_full(); });
        std::vector<HttpConnection*> looked_at(self->full.begin(), self->full.end());
        std::vector<pollfd> sockets;
        for (HttpConnection* connection : looked_at)
            sockets.push_back({.fd = connection->descriptor(), .events = POLLRDHUP, .revents = 0});
        if (sockets.empty() || ::poll(sockets.data(), sockets.size(), 0) < 0) sockets.clear();
        for (std::size_t i = 0; i < sockets.size(); ++i) {
            if (sockets[i].revents == 0 || !self->full.contains(looked_at[i])) continue;
            self->full.erase(looked_at[i]);
            looked_at[i]->client_left();
        }
        if (!self->full.empty()) self->look_for_ends();
    });
}

void HttpServerCore::forget_connection(HttpConnection& connection) {
    connections.erase(&connection);
    full.erase(&connection);
    refill_reserve();
    const auto count = connections_of_address.find(connection.peer());
    assert(count != connections_of_address.end() && "each connection was counted once");
    if (--count->second == 0) connections_of_address.erase(count);
    stats.connections = connections.size();
    accept_pause.cancel();
    if (connections.empty()) emptied.cancel();
}

void HttpServerCore::stop_accepting() {
    is_accepting = false;
    // Closed by hand: other processes may hold the socket, so close() alone would leave it in our
    // epoll set, and Asio takes it out only when it gives a descriptor away.
    boost::system::error_code error;
    if (acceptor.is_open()) {
        const int fd = acceptor.release(error);
        if (!error) ::close(fd);
    }
    accept_pause.cancel();
}

void HttpServerCore::abort_all() {
    const std::vector<HttpConnection*> all(connections.begin(), connections.end());
    for (HttpConnection* connection : all)
        connection->abort();
}

const std::string& HttpServerCore::date_line() {
    const std::time_t now = std::time(nullptr);
    if (now != date_second_) {
        std::tm parts{};
        ::gmtime_r(&now, &parts);
        std::array<char, 64> text{};
        const std::size_t size =
            std::strftime(text.data(), text.size(), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
        date_line_.assign(text.data(), size);
        date_second_ = now;
    }
    return date_line_;
}

HttpServer::HttpServer(asio::any_io_executor executor, HttpServerOptions options,
                       HttpHandler handler)
    : core_(std::make_shared<HttpServerCore>(std::move(executor), std::move(options),
                                             std::move(handler))) {}

HttpServer::~HttpServer() {
    core_->is_stopping = true;
    core_->stop_accepting();
    core_->abort_all();
}

void HttpServer::start() {
    assert(!core_->is_accepting && "start() is called once");
    core_->is_accepting = true;
    asio::co_spawn(
        core_->executor, [core = core_] { return core->accept_loop(); }, asio::detached);
}

std::uint16_t HttpServer::port() const {
    boost::system::error_code ignored;
    const StreamProtocol::endpoint endpoint = core_->acceptor.local_endpoint(ignored);
    return to_tcp(endpoint).port();
}

std::string HttpServer::address() const {
    boost::system::error_code ignored;
    return address_text(core_->acceptor.local_endpoint(ignored));
}

void HttpServer::set_tls(std::shared_ptr<const TlsContext> tls) {
    assert(core_->options.tls != nullptr && tls != nullptr && "no port changes its protocol");
    core_->options.tls = std::move(tls);
}

const HttpServerStats& HttpServer::stats() const {
    return core_->stats;
}

void HttpServer::stop_accepting() {
    core_->stop_accepting();
}

void HttpServer::hand_over() {
    core_->is_handed_over = true;
    core_->stop_accepting();
}

std::size_t HttpServer::connections_busy() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        core_->connections, [](const HttpConnection* one) { return !one->is_idle(); }));
}

void HttpServer::abort_all() {
    core_->abort_all();
}

asio::awaitable<void> HttpServer::stop(std::chrono::milliseconds deadline) {
    const std::shared_ptr<HttpServerCore> core = core_;
    core->stop_accepting();
    core->is_stopping = true;
    const std::vector<HttpConnection*> all(core->connections.begin(), core->connections.end());
    for (HttpConnection* connection : all) {
        if (connection->is_idle()) connection->abort();
    }
    core->emptied.expires_after(deadline);
    if (!core->connections.empty()) {
        co_await core->emptied.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    core->abort_all();
    core->emptied.expires_after(kAbortGrace);
    if (!core->connections.empty()) {
        co_await core->emptied.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

}  // namespace proto

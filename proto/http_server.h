// http_server: a strict HTTP/1.1 server for replica and router.
//
//   accept ─▶ connection coroutine, for each request:
//     head bytes ─▶ gate (http_gate.h) ─▶ admit hook ─▶ [100 Continue] ─▶ body (limits, rate)
//       ─▶ handler coroutine(HttpExchange&) ─▶ next request or close
//                     └ meanwhile a read is always pending on the socket: FIN or RST calls
//                       on_disconnect at once, pipelined bytes are kept for the next request
//
// Everything of one server runs on one executor, which must not run two handlers at once (one
// thread, or a strand): hooks, handlers and callbacks need no locks among themselves.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "proto/http_gate.h"
#include "proto/http_message.h"
#include "proto/limits.h"
#include "proto/tls.h"

namespace proto {

class HttpConnection;

/// One request and its answer, given to the handler. Lives until the handler has returned.
/// A handler either sends one whole answer, or starts a stream, writes, and finishes it.
class HttpExchange {
public:
    explicit HttpExchange(HttpConnection& connection, HttpRequest request);
    HttpExchange(const HttpExchange&) = delete;
    HttpExchange& operator=(const HttpExchange&) = delete;

    [[nodiscard]] const HttpRequest& request() const { return request_; }
    /// For handlers that take the body away to free it early.
    [[nodiscard]] HttpRequest& request() { return request_; }
    [[nodiscard]] boost::asio::any_io_executor executor() const;

    /// Sends a whole answer. False: the client is gone.
    boost::asio::awaitable<bool> send(HttpResponse response);

    /// Sends status and headers of a chunked answer (HTTP/1.0: a body that ends by closing), and in
    /// the same write its first bytes where they are known.
    boost::asio::awaitable<bool> start_stream(int status, Headers headers,
                                              std::string_view first = {});
    /// One chunk. Completes when the kernel has taken the bytes, so a slow client holds the writer
    /// back; a client that takes nothing for `write_stall` is cut off. False: the client is gone.
    boost::asio::awaitable<bool> write(std::string_view bytes);
    /// Ends the chunked body properly, in the same write after its last bytes where there are any.
    boost::asio::awaitable<bool> finish(std::string_view last = {});

    /// Called once, on the executor, when the client has left (FIN, RST, write stall, server
    /// abort); at once when it already has. Replaces an earlier callback; {} removes it. Not called
    /// after the handler has returned.
    void on_disconnect(std::function<void()> callback);
    [[nodiscard]] bool is_client_gone() const;

    /// Whether an answer's head has been sent.
    [[nodiscard]] bool is_started() const { return state_ != State::kNothing; }
    [[nodiscard]] bool is_finished() const { return state_ == State::kFinished; }
    /// Close the connection when this answer is complete.
    void close_after() { close_after_ = true; }
    /// Drops the connection now, without ending the answer: the client sees a broken body.
    void abort();

    /// The status sent, 0 before.
    [[nodiscard]] int status() const { return status_; }
    [[nodiscard]] std::uint64_t body_bytes_sent() const { return body_bytes_sent_; }

private:
    friend class HttpConnection;
    enum class State { kNothing, kStreaming, kFinished };

    HttpConnection& connection_;
    HttpRequest request_;
    std::function<void()> on_disconnect_;
    State state_ = State::kNothing;
    int status_ = 0;
    std::uint64_t body_bytes_sent_ = 0;
    bool close_after_ = false;
    bool is_chunked_ = false;
};

/// Runs one request. An exception ends as 500 internal_error, or as a broken stream.
using HttpHandler = std::function<boost::asio::awaitable<void>(HttpExchange&)>;

/// One line of an access log: every request whose head could be read, and every refusal.
struct HttpAccess {
    std::string method, path, request_id, peer;  // method and path empty when the gate refused
    int status = 0;                              // 0: the client left before an answer
    std::optional<GateReason> gate;
    bool client_aborted = false;
    std::string fault;  // what() of an exception that left the handler
    std::uint64_t body_bytes_received = 0, body_bytes_sent = 0;
    std::chrono::steady_clock::duration duration{};
    std::shared_ptr<void> ticket;  // of HttpRequestHead, where admit has left one
};

struct HttpServerOptions {
    /// An inherited, listening socket; otherwise `address`:`port` is bound (port 0: any free one).
    std::optional<int> listen_fd;
    std::string address = "127.0.0.1";
    std::uint16_t port = 0;
    int backlog = 1024;

    std::size_t head_bytes_max = kHeadBytesMax;
    std::size_t head_fields_max = kHeadFieldsMax;
    /// Bytes of body this request may have, asked after admit; empty: `body_bytes_max`.
    std::function<std::size_t(const HttpRequestHead&)> body_limit;
    std::size_t body_bytes_max = kBodyBytesMin;

    std::chrono::milliseconds header_read{10'000};  // from the first byte, or from accept
    std::chrono::milliseconds keepalive_idle{75'000};
    std::chrono::milliseconds body_grace{10'000};  // after it, body_rate_min must hold
    std::size_t body_rate_min = kKiB;              // bytes per second, average after the grace
    std::chrono::milliseconds write_stall{30'000};
    /// Bytes of answers that clients have not taken, of all connections. Beyond it whoever has
    /// taken nothing for the longest time is cut, as if the stall had lasted.
    std::size_t unsent_bytes_max = 256 * kMiB;
    std::chrono::milliseconds accept_pause{100};  // when descriptors run out

    std::size_t connections_max = 8192;  // more are closed at once
    /// At this many connections accepting pauses until one has ended, so that descriptors are left
    /// for others; further clients wait in the backlog.
    std::size_t connections_pause = std::numeric_limits<std::size_t>::max();
    std::size_t connections_per_address_max = 1024;  // loopback is exempt, since proxies come so
    bool is_loopback_exempt = true;
    std::size_t requests_per_connection_max = 1000;  // the last one is answered with close

    /// With `check_host`, a Host that is neither an address of ours, localhost nor in
    /// `allowed_hosts` is answered 421 (DNS rebinding). Set it when no keys are configured.
    bool check_host = false;
    std::vector<std::string> allowed_hosts;

    Headers common_headers;  // on every answer (x-quadriga-instance)

    /// Speaks TLS to every client; empty: plain. The handshake has `header_read` to end.
    std::shared_ptr<const TlsContext> tls;

    /// When the process is out of descriptors, accepting pauses. With this, the server keeps one
    /// in reserve: after `reserve_after` without any it looks at one waiting connection after the
    /// other with it, serves the requests that this names and sends the others away with 429.
    std::function<bool(const HttpRequestHead&)> reserve_for;
    std::chrono::milliseconds reserve_after{1'000};

    /// Decides from the head alone, before the body is read: an answer refuses the request (401,
    /// 404, 405, 415, 429, 503 …). May set head.ticket.
    std::function<std::optional<HttpResponse>(HttpRequestHead&)> admit;
    /// A chunked body is about to need `bytes` of memory in all, more than it was asked for before.
    /// An answer refuses it and closes the connection. What has a length is for admit to count.
    std::function<std::optional<HttpResponse>(const HttpRequestHead&, std::size_t bytes)> grow_body;
    std::function<void(const HttpAccess&)> on_access;
};

/// Counters of one server, for metrics; read on its executor.
struct HttpServerStats {
    std::size_t connections = 0;
    std::size_t requests_running = 0;  // handlers that have not returned
    std::size_t unsent_bytes = 0;      // of answers that clients have not taken
    std::uint64_t connections_total = 0;
    std::uint64_t requests_total = 0;  // heads that passed the gate
    std::uint64_t rejected_count_total = 0, rejected_address_total = 0;  // connections
    std::uint64_t rejected_descriptors_total = 0;  // the same, taken with the reserve
    std::uint64_t accept_pauses_total = 0;
    std::uint64_t client_aborts_total = 0;
    std::uint64_t write_stalls_total = 0;
    std::uint64_t tls_failures_total = 0;  // handshakes that came to nothing
    std::array<std::uint64_t, kGateReasonCount> gate_rejected_total{};
};

class HttpServer {
public:
    /// Binds and listens, or takes the inherited socket; throws std::system_error ("address in
    /// use" …). Nothing is accepted before start().
    HttpServer(boost::asio::any_io_executor executor, HttpServerOptions options,
               HttpHandler handler);
    /// Must run after its executor has stopped, or after stop().
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    void start();
    [[nodiscard]] std::uint16_t port() const;
    /// The address it is bound to, without port; "0.0.0.0" or "::" for all.
    [[nodiscard]] std::string address() const;
    [[nodiscard]] const HttpServerStats& stats() const;

    /// For connections that come from now on. Only for a server that began with TLS.
    void set_tls(std::shared_ptr<const TlsContext> tls);

    /// No new connections; open ones go on. Idempotent.
    void stop_accepting();
    /// Another process goes on with the listening socket: no new connections from now on, and each
    /// open one is closed after its next answer, which says so (Connection: close).
    void hand_over();
    /// Connections in the middle of a request, from its head on; those between requests are not.
    [[nodiscard]] std::size_t connections_busy() const;
    /// Stops accepting, closes idle connections, lets running requests finish (each with
    /// Connection: close) until `deadline` has passed, then cuts the rest. Completes when no
    /// connection is left.
    boost::asio::awaitable<void> stop(std::chrono::milliseconds deadline);
    /// Cuts all connections now; handlers hear it through on_disconnect.
    void abort_all();

private:
    std::shared_ptr<struct HttpServerCore> core_;  // shared with the connections
};

}  // namespace proto

// http_client: HTTP/1.1 to replicas, as coroutines, with a pool of kept connections.
//
//   request() ─▶ idle connection or connect ─▶ write ─▶ head read ─▶ UpstreamResponse
//   UpstreamResponse::read_some() hands out body bytes as they arrive, de-chunked, never waiting
//   for more than is there; read to the end, the connection returns to the pool; dropped or closed
//   before, it is cut at once, which is how a cancellation reaches a replica.
//
// All of one client runs on one executor that never runs two handlers at once. Answers pass the
// same gate as requests (http_gate.h); what fails it is kMalformed and its connection is not
// reused.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <tl/expected.hpp>

#include "proto/http_message.h"

namespace proto {

enum class ClientErrorKind {
    kRefused,  // no listener, unreachable, or no such host
    kConnectTimeout,
    kReset,                // EOF or RST in the middle of an answer
    kClosedWithoutAnswer,  // EOF or RST before the first byte of an answer
    kMalformed,            // the answer broke a rule of the gate
    kTimeout,              // no head, or no body byte, in time
    kCancelled,            // closed by us
    kPoolFull,             // connections_max of this endpoint are in use
};
std::string_view client_error_name(ClientErrorKind kind);

struct ClientError {
    ClientErrorKind kind = ClientErrorKind::kReset;
    std::string message;
    /// The request went out on a kept connection: an end without an answer may only mean that the
    /// server had just closed it. (GET and HEAD are then repeated once on a fresh one by the
    /// client.)
    bool was_reused = false;
    /// Bytes of the request were sent: it may have been executed.
    bool was_sent = false;
};

struct Endpoint {
    Endpoint() = default;
    Endpoint(std::string host_in, std::uint16_t port_in)
        : host(std::move(host_in)), port(port_in) {}

    std::string host;  // address or name
    std::uint16_t port = 0;

    [[nodiscard]] std::string text() const;  // "127.0.0.1:8101", "[::1]:80"
    bool operator==(const Endpoint&) const = default;
};

/// Ends a request from outside, at any point of its life: while connecting, before the head, in the
/// body. Same executor as the client. Safe to call late or twice.
class CancelHandle {
public:
    void cancel();
    [[nodiscard]] bool is_cancelled() const { return is_cancelled_; }

private:
    friend class ClientCall;
    friend class HttpClient;
    bool is_cancelled_ = false;
    std::function<void()> close_;  // set while a request holds a connection
    const void* owner_ = nullptr;  // the call that set it
};

struct ClientTimeouts {
    std::chrono::milliseconds connect{1'000};
    std::chrono::milliseconds head{0};       // until the answer's head; 0: no limit
    std::chrono::milliseconds body_idle{0};  // default of read_some(); 0: no limit
    std::chrono::milliseconds write_stall{30'000};
};

struct HttpClientRequest {
    HttpClientRequest() = default;  // no aggregate, see ApiError

    std::string method = "GET";
    std::string target = "/";  // path and query
    Headers headers;           // Host and Content-Length are added
    std::string body;
    ClientTimeouts timeouts;
    std::shared_ptr<CancelHandle> cancel;  // may be empty
    /// Lives elsewhere until the head is there, in place of `body` (spares a copy for retries).
    std::shared_ptr<const std::string> shared_body;
    /// Called when the kernel has taken all of it, for whoever measures that.
    std::function<void()> on_sent;
};

enum class ReadStatus {
    kData,
    kEnd,      // the body is complete; the connection is back in the pool
    kTimeout,  // nothing in time; reading may go on
    kError,    // see `error`; the connection is closed
};

struct ReadResult {
    ReadStatus status = ReadStatus::kEnd;
    std::string_view data;  // valid until the next read_some() or close()
    bool is_last = false;   // with kData: the body is complete, the next call says kEnd at once
    ClientError error;
};

/// The answer of an upstream. Move-only; destroying it before kEnd closes the connection.
class UpstreamResponse {
public:
    UpstreamResponse(UpstreamResponse&&) noexcept;
    UpstreamResponse& operator=(UpstreamResponse&&) noexcept;
    ~UpstreamResponse();

    int status = 0;
    Headers headers;

    /// The next body bytes. One call at a time.
    boost::asio::awaitable<ReadResult> read_some();
    /// Waits at most `timeout` (0: no limit); kTimeout leaves everything as it was.
    boost::asio::awaitable<ReadResult> read_some(std::chrono::milliseconds timeout);
    /// The rest of the body, at most `bytes_max` (beyond: kMalformed).
    boost::asio::awaitable<tl::expected<std::string, ClientError>> read_all(std::size_t bytes_max);
    /// Closes the connection at once; a pending read_some() ends with kCancelled.
    void close();

private:
    friend class HttpClient;
    explicit UpstreamResponse(std::shared_ptr<class ClientCall> call);
    std::shared_ptr<class ClientCall> call_;
};

struct HttpClientOptions {
    std::size_t connections_max = 4096;      // of one endpoint, in use and idle
    std::size_t idle_max = 64;               // of one endpoint
    std::chrono::milliseconds idle{30'000};  // below the server's 75 s, so that ours close first
};

struct HttpClientStats {
    std::uint64_t connects_total = 0, reuses_total = 0, malformed_total = 0;
    std::size_t connections_busy = 0, connections_idle = 0;
};

class HttpClient {
public:
    explicit HttpClient(boost::asio::any_io_executor executor, HttpClientOptions options = {});
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    /// Completes when the head of the answer has been read (interim answers are skipped).
    boost::asio::awaitable<tl::expected<UpstreamResponse, ClientError>> request(
        Endpoint endpoint, HttpClientRequest request);

    /// Closes kept connections to `endpoint` (its process is gone).
    void forget(const Endpoint& endpoint);
    [[nodiscard]] HttpClientStats stats() const;
    [[nodiscard]] HttpClientStats stats(const Endpoint& endpoint) const;

private:
    std::shared_ptr<struct ClientPool> pool_;  // shared with the calls
};

/// For command line tools: one request on a private loop, blocking.
struct HttpResult {
    int status = 0;  // 0: no answer, see `error`
    Headers headers;
    std::string body;
    ClientError error;
};
struct BlockingRequest {
    std::string url;  // http://host[:port]/path
    std::string method = "GET";
    Headers headers;
    std::string body;
    std::chrono::milliseconds timeout{5'000};  // for the whole exchange; 0: no limit
    std::size_t body_bytes_max = 64 * 1024 * 1024;
    /// Called with body bytes as they arrive, which are then not collected; false stops reading.
    std::function<bool(int status, std::string_view bytes)> on_body;
};
HttpResult http_call(BlockingRequest request);
HttpResult http_get(const std::string& url, std::chrono::milliseconds timeout);

/// Splits "http://host[:port]/target"; none when it is anything else.
struct UrlParts {
    Endpoint endpoint;
    std::string target;
};
std::optional<UrlParts> parse_http_url(std::string_view url);

}  // namespace proto

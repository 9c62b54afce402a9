// http_connection: one client connection of an HttpServer. Inside proto only.
//
// Reading and handling overlap: a wait for readability is pending at all times (unless the read
// ahead is full), its callback moves bytes into `input_` and wakes whoever waits for them. So the
// coroutine never owns a read that would have to be cancelled when a handler starts, and a FIN is
// seen while a handler runs. Bytes are read into a buffer that all connections of the server share:
// an idle connection holds no read buffer.
#pragma once

#include <array>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/chunk_decoder.h"
#include "proto/deadline.h"
#include "proto/http_gate.h"
#include "proto/http_server.h"
#include "proto/server_stream.h"

namespace proto {

/// The address without port; "unix" for a local socket.
std::string address_text(const StreamProtocol::endpoint& endpoint);

/// What the connections of one server share.
struct HttpServerCore : std::enable_shared_from_this<HttpServerCore> {
    HttpServerCore(boost::asio::any_io_executor executor_in, HttpServerOptions options_in,
                   HttpHandler handler_in);
    ~HttpServerCore();
    HttpServerCore(const HttpServerCore&) = delete;
    HttpServerCore& operator=(const HttpServerCore&) = delete;

    boost::asio::awaitable<void> accept_loop();
    void admit_connection(StreamProtocol::socket socket, bool is_reserved);
    void forget_connection(HttpConnection& connection);
    void stop_accepting();
    void abort_all();
    /// The read ahead of this one is full while its request runs, so nobody reads its socket: its
    /// end is looked for until it is read again.
    void watch_for_end(HttpConnection& connection);
    /// The client of this one does not take these bytes of an answer now; until end_unsent.
    void begin_unsent(HttpConnection& connection, std::size_t bytes);
    void end_unsent(HttpConnection& connection);
    /// "Date: …\r\n", made once a second.
    const std::string& date_line();

    boost::asio::any_io_executor executor;
    HttpServerOptions options;
    HttpHandler handler;
    HttpServerStats stats;
    boost::asio::basic_socket_acceptor<StreamProtocol> acceptor;
    boost::asio::steady_timer accept_pause;  // cancelled when a descriptor becomes free
    boost::asio::steady_timer emptied;       // cancelled when the last connection ends
    boost::asio::steady_timer end_look;      // runs while `full` has any
    bool is_accepting = false, is_stopping = false;
    bool is_handed_over = false;  // every answer that begins now is its connection's last
    std::unordered_set<HttpConnection*> connections;
    std::unordered_map<std::string, std::size_t> connections_of_address;
    std::unordered_set<HttpConnection*> full;  // see watch_for_end
    std::list<HttpConnection*> unsent;         // see begin_unsent; who has waited longest is first
    int reserve_fd = -1;                       // a descriptor for worse times; -1: spent, or none
    std::array<char, 64 * kKiB> read_scratch{};

private:
    void look_for_ends();
    bool spend_reserve();
    void refill_reserve();

    std::optional<std::chrono::steady_clock::time_point> exhausted_since_;
    std::string date_line_;
    std::int64_t date_second_ = -1;
};

/// The parsed head, unchecked but for the parser's own rules. Beast stays behind it.
struct ParsedHead {
    std::string method, target;
    int version = 11;
    Headers headers;
};
tl::expected<ParsedHead, GateError> parse_request_head(std::string_view bytes);

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
public:
    HttpConnection(std::shared_ptr<HttpServerCore> core, StreamProtocol::socket socket,
                   std::string peer, bool is_reserved);

    /// Serves requests until the connection ends.
    boost::asio::awaitable<void> run();

    /// Cuts the connection; a running handler hears it through on_disconnect.
    void abort();
    /// No request is in progress: nothing is lost by closing.
    [[nodiscard]] bool is_idle() const { return phase_ == Phase::kIdle; }
    [[nodiscard]] const std::string& peer() const { return peer_; }
    [[nodiscard]] bool is_reserved() const { return is_reserved_; }
    [[nodiscard]] int descriptor() { return stream_.socket().native_handle(); }
    /// The read ahead is full while a request runs.
    [[nodiscard]] bool is_full() const {
        return exchange_ != nullptr && !is_input_ended_ && input().size() >= input_max_;
    }
    /// FIN or RST was seen: as if it had been read.
    void client_left();
    [[nodiscard]] HttpServerCore& core() const { return *core_; }
    struct Unsent {
        std::size_t bytes = 0;
        std::list<HttpConnection*>::iterator place;
    };
    std::optional<Unsent> unsent;  // the core's own

    // For HttpExchange.
    boost::asio::awaitable<bool> send(HttpExchange& exchange, HttpResponse response);
    boost::asio::awaitable<bool> start_stream(HttpExchange& exchange, int status, Headers headers,
                                              std::string_view first);
    boost::asio::awaitable<bool> write_chunk(HttpExchange& exchange, std::string_view bytes);
    boost::asio::awaitable<bool> finish(HttpExchange& exchange, std::string_view last);
    [[nodiscard]] bool is_gone() const { return is_input_ended_ || is_aborted_; }
    [[nodiscard]] boost::asio::any_io_executor executor() const { return core_->executor; }

private:
    enum class Phase { kIdle, kRequest };
    enum class Arrival { kBytes, kEnd, kTimeout };
    using Clock = std::chrono::steady_clock;

    /// True when the session stands. Otherwise the connection is over, answered if it can be.
    boost::asio::awaitable<bool> shake_hands();
    void watch_handshake(Deadline deadline);

    // input
    void start_read();
    void on_readable();
    void take_bytes(std::string_view bytes);
    /// Waits until bytes beyond those already there arrive.
    boost::asio::awaitable<Arrival> wait_input(Deadline& deadline);
    [[nodiscard]] std::string_view input() const {
        return std::string_view(input_).substr(input_begin_);
    }
    void consume(std::size_t count);

    // one request
    struct HeadRead {
        std::optional<HttpRequestHead> head;  // none: close
        std::optional<GateError> refusal;
        std::string request_id;
    };
    boost::asio::awaitable<HeadRead> read_head(bool is_first);
    tl::expected<HttpRequestHead, GateError> take_head(std::string_view bytes,
                                                       std::string& request_id);
    enum class BodyEnd { kComplete, kClientLeft, kRefused };
    struct BodyRead {
        BodyEnd end = BodyEnd::kComplete;
        std::optional<GateError> refusal;
        std::optional<HttpResponse> answer;  // of the hook grow_body, instead of `refusal`
    };
    /// Appends the body to `body`, or counts and drops it when `body` is null.
    boost::asio::awaitable<BodyRead> read_body(const HttpRequestHead& head, std::string* body,
                                               std::size_t bytes_max);
    /// One piece of what has arrived; true when the body is complete.
    struct BodyProgress {
        ChunkDecoder chunks;
        std::uint64_t received = 0;
        std::optional<HttpResponse> answer;  // grow_body has refused the body
    };
    /// Makes room for `more` bytes of a chunked body, if the hook allows it.
    bool grow_body(const HttpRequestHead& head, std::string& body, std::size_t more,
                   std::size_t bytes_max, BodyProgress& progress);
    tl::expected<bool, GateError> take_body(const HttpRequestHead& head, std::string* body,
                                            std::size_t bytes_max, BodyProgress& progress);
    [[nodiscard]] std::size_t body_limit(const HttpRequestHead& head) const;

    /// These return whether the connection may carry another request.
    boost::asio::awaitable<bool> serve_request(HttpRequestHead head, bool is_last);
    boost::asio::awaitable<bool> run_handler(HttpRequest request, bool is_last, HttpAccess access);
    boost::asio::awaitable<bool> refuse_request(HttpRequestHead head, HttpResponse response,
                                                bool is_last, HttpAccess access);
    boost::asio::awaitable<void> refuse_and_close(GateError refusal, std::string request_id,
                                                  HttpAccess access, Headers more);
    boost::asio::awaitable<void> answer_and_close(HttpResponse response, std::string request_id,
                                                  HttpAccess access, Headers more);
    boost::asio::awaitable<void> linger();
    void log(HttpAccess& access, Clock::time_point begin);

    // output
    struct HeadParts {
        int status = 0;
        const Headers& headers;  // of the answer
        const Headers& more;     // that the request asked for (HttpRequestHead::answer_headers)
        std::string_view request_id;
        bool close = false;
        bool is_http_1_0 = false;
        std::string_view framing;
    };
    [[nodiscard]] std::string answer_head(const HeadParts& parts) const;
    boost::asio::awaitable<bool> write_all(ServerStream::Parts parts);
    boost::asio::awaitable<bool> wait_writable();
    void watch_write(std::uint64_t wait_id, Deadline deadline);
    void close_socket();

    std::shared_ptr<HttpServerCore> core_;
    ServerStream stream_;
    std::string peer_;
    bool is_reserved_;  // it has the descriptor kept in reserve
    std::string local_address_;
    Phase phase_ = Phase::kIdle;

    std::string input_;
    std::size_t input_begin_ = 0;
    std::size_t input_max_ = kHeadBytesMax;  // read ahead that this moment allows
    std::uint64_t received_total_ = 0;
    /// While a body of known length is read: where its bytes go without resting in `input_`.
    std::string* body_sink_ = nullptr;
    std::size_t body_sink_left_ = 0;
    bool is_shaking_hands_ = false;
    bool is_reading_ = false;
    bool is_input_ended_ = false;  // FIN, RST or abort
    bool is_aborted_ = false;
    bool has_unread_body_ = false;  // of a request refused early
    boost::asio::steady_timer input_wake_;

    boost::asio::steady_timer write_timer_;
    std::uint64_t write_wait_count_ = 0;
    HttpExchange* exchange_ = nullptr;  // while a handler runs
};

}  // namespace proto

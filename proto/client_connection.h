// client_connection: a connection to an upstream, the calls made over it and the pool that keeps
// it. Inside proto only.
//
// As on the server's side, a wait for readability is always pending and its callback moves bytes
// into `input`, so that the end of a connection is seen whatever else is going on: an idle one
// leaves the pool at once, a busy one wakes its call.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/chunk_decoder.h"
#include "proto/deadline.h"
#include "proto/http_client.h"
#include "proto/limits.h"

namespace proto {

struct ClientPool;

/// One TCP connection: bytes in, bytes out, and when it ended.
class ClientConnection : public std::enable_shared_from_this<ClientConnection> {
public:
    using Clock = std::chrono::steady_clock;

    ClientConnection(std::shared_ptr<ClientPool> pool, std::string endpoint_key);
    ~ClientConnection();

    boost::asio::awaitable<std::optional<ClientError>> connect(const Endpoint& endpoint,
                                                               std::chrono::milliseconds timeout);
    /// Writes head and body; stops early when an answer arrives first. False: ended or stalled.
    enum class WriteEnd { kWritten, kAnswered, kEnded, kStalled };
    boost::asio::awaitable<WriteEnd> write(std::string_view head, std::string_view body,
                                           std::chrono::milliseconds stall);
    /// Until new bytes arrive, the connection ends, or the deadline passes (then false).
    boost::asio::awaitable<bool> wait_input(Deadline& deadline);

    void close();
    /// Open, and nothing has arrived: fit for another request.
    [[nodiscard]] bool is_fresh();
    void start_read();

    [[nodiscard]] std::string_view input() const {
        return std::string_view(input_).substr(input_begin_);
    }
    void consume(std::size_t count);
    [[nodiscard]] bool is_ended() const { return is_ended_; }
    [[nodiscard]] bool is_closed_by_us() const { return is_closed_by_us_; }
    [[nodiscard]] std::uint64_t received_total() const { return received_total_; }
    [[nodiscard]] const std::string& endpoint_key() const { return endpoint_key_; }

    /// In the pool: closes itself and leaves when the peer ends it or `idle` has passed.
    void begin_idle(std::chrono::milliseconds idle);
    void end_idle();

private:
    void watch_connect(boost::asio::steady_timer& timer, Deadline deadline);
    void renew_registration();
    void on_readable();
    void on_end();
    void leave_pool();

    std::shared_ptr<ClientPool> pool_;
    std::string endpoint_key_;
    boost::asio::ip::tcp::socket socket_;
    boost::asio::ip::tcp::resolver resolver_;
    boost::asio::steady_timer wake_;
    std::string input_;
    std::size_t input_begin_ = 0;
    std::uint64_t received_total_ = 0;
    bool is_reading_ = false, is_ended_ = false, is_closed_by_us_ = false, is_idle_ = false;
    bool is_waiting_writable_ = false, is_writable_ = false;
    bool is_connecting_ = false, is_connect_late_ = false;
};

struct ClientPool {
    ClientPool(boost::asio::any_io_executor executor_in, HttpClientOptions options_in)
        : executor(std::move(executor_in)), options(options_in) {}

    struct PerEndpoint {
        std::vector<std::shared_ptr<ClientConnection>> idle;  // most recently used last
        std::size_t busy = 0;
        std::uint64_t connects_total = 0, reuses_total = 0, malformed_total = 0;
    };

    boost::asio::any_io_executor executor;
    HttpClientOptions options;
    std::unordered_map<std::string, PerEndpoint> endpoints;
    std::unordered_set<class ClientCall*> calls;  // cancelled when the client is destroyed
    std::array<char, 64 * kKiB> read_scratch{};
    bool is_closed = false;
};

/// The parsed head of an answer. Beast stays behind it.
struct ParsedAnswerHead {
    int status = 0;
    int version = 11;
    Headers headers;
};
std::optional<ParsedAnswerHead> parse_answer_head(std::string_view bytes);

/// One request and its answer.
class ClientCall : public std::enable_shared_from_this<ClientCall> {
public:
    using Clock = std::chrono::steady_clock;

    ClientCall(std::shared_ptr<ClientPool> pool, Endpoint endpoint, HttpClientRequest request);
    ~ClientCall();

    /// None when the head is there.
    boost::asio::awaitable<std::optional<ClientError>> run();
    boost::asio::awaitable<ReadResult> read_some(std::chrono::milliseconds timeout);
    void cancel();

    ParsedAnswerHead head;
    [[nodiscard]] std::chrono::milliseconds body_idle() const {
        return request_.timeouts.body_idle;
    }

private:
    enum class Framing { kNone, kLength, kChunked, kUntilClose };

    boost::asio::awaitable<std::optional<ClientError>> attempt(bool may_reuse);
    boost::asio::awaitable<std::optional<ClientError>> obtain_connection(bool may_reuse);
    boost::asio::awaitable<std::optional<ClientError>> read_head(Deadline deadline);
    std::optional<ClientError> take_final_head(ParsedAnswerHead parsed);
    [[nodiscard]] std::string request_head(std::size_t body_bytes) const;

    /// Moves what has arrived of the body to `out_`; an error when the answer broke a rule.
    std::optional<ClientError> take_body();
    /// The body has come. An error when more than it has: whoever sends that may mean anything.
    std::optional<ClientError> complete();
    void release(bool reusable);
    ClientError error(ClientErrorKind kind, std::string message) const;
    ClientError malformed(std::string message);
    [[nodiscard]] ClientError end_error(bool in_answer) const;

    std::shared_ptr<ClientPool> pool_;
    Endpoint endpoint_;
    std::string key_;
    HttpClientRequest request_;
    std::shared_ptr<ClientConnection> connection_;  // null before, after, and once released
    bool is_cancelled_ = false, was_reused_ = false, was_sent_ = false;

    Framing framing_ = Framing::kNone;
    bool keep_alive_ = true, is_complete_ = false;
    std::uint64_t body_left_ = 0;
    ChunkDecoder chunks_;
    std::optional<ClientError> failure_;  // the answer broke a rule of the gate
    std::string out_;                     // what the last read_some() handed out
};

}  // namespace proto

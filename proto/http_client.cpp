#include "proto/http_client.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "proto/client_connection.h"
#include "proto/free_string.h"

namespace proto {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

/// Enough for what a router says to a replica.
constexpr std::size_t kRequestHeadBytes = 768;

/// Fields that the client writes itself.
bool is_own_field(std::string_view name) {
    return equal_no_case(name, "host") || equal_no_case(name, "content-length") ||
           equal_no_case(name, "transfer-encoding") || equal_no_case(name, "connection") ||
           equal_no_case(name, "expect");
}

Deadline deadline_after(std::chrono::milliseconds timeout) {
    return timeout.count() == 0 ? Deadline::never() : Deadline(timeout);
}

}  // namespace

std::string_view client_error_name(ClientErrorKind kind) {
    switch (kind) {
        case ClientErrorKind::kRefused:
            return "refused";
        case ClientErrorKind::kConnectTimeout:
            return "connect_timeout";
        case ClientErrorKind::kReset:
            return "reset";
        case ClientErrorKind::kClosedWithoutAnswer:
            return "closed_without_answer";
        case ClientErrorKind::kMalformed:
            return "malformed";
        case ClientErrorKind::kTimeout:
            return "timeout";
        case ClientErrorKind::kCancelled:
            return "cancelled";
        case ClientErrorKind::kPoolFull:
            return "pool_full";
    }
    return "unknown";
}

std::string Endpoint::text() const {
    const bool is_v6 = host.find(':') != std::string::npos;
    return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

void CancelHandle::cancel() {
    is_cancelled_ = true;
    if (auto close = std::exchange(close_, nullptr)) close();
}

std::optional<ParsedAnswerHead> parse_answer_head(std::string_view bytes) {
    http::response_parser<http::empty_body> parser;
    parser.header_limit(static_cast<std::uint32_t>(bytes.size() + 1));
    parser.body_limit(boost::none);
    parser.skip(true);
    boost::system::error_code error;
    parser.put(asio::buffer(bytes.data(), bytes.size()), error);
    if (error || !parser.is_header_done()) return std::nullopt;
    ParsedAnswerHead head;
    head.status = static_cast<int>(parser.get().result_int());
    head.version = static_cast<int>(parser.get().version());
    for (const auto& field : parser.get()) {
        head.headers.add(std::string(field.name_string()), std::string(field.value()));
    }
    return head;
}

// --- ClientCall

ClientCall::ClientCall(std::shared_ptr<ClientPool> pool, Endpoint endpoint,
                       HttpClientRequest request)
    : pool_(std::move(pool)),
      endpoint_(std::move(endpoint)),
      key_(endpoint_.text()),
      request_(std::move(request)) {
    pool_->calls.insert(this);
}

ClientCall::~ClientCall() {
    pool_->calls.erase(this);
    // A handle may meanwhile serve a later attempt.
    if (request_.cancel && request_.cancel->owner_ == this) request_.cancel->close_ = nullptr;
    release(false);
}

ClientError ClientCall::error(ClientErrorKind kind, std::string message) const {
    ClientError result;
    result.kind = kind;
    result.message = std::move(message);
    result.was_reused = was_reused_;
    result.was_sent = was_sent_;
    return result;
}

ClientError ClientCall::malformed(std::string message) {
    ++pool_->endpoints[key_].malformed_total;
    return error(ClientErrorKind::kMalformed, key_ + ": " + std::move(message));
}

ClientError ClientCall::end_error(bool in_answer) const {
    if (is_cancelled_ || (connection_ && connection_->is_closed_by_us())) {
        return error(ClientErrorKind::kCancelled, "cancelled");
    }
    if (in_answer)
        return error(ClientErrorKind::kReset, key_ + " ended in the middle of its answer");
    return error(ClientErrorKind::kClosedWithoutAnswer, key_ + " closed without an answer");
}

void ClientCall::cancel() {
    is_cancelled_ = true;
    if (connection_) connection_->close();
}

asio::awaitable<std::optional<ClientError>> ClientCall::run() {
    if (request_.cancel) {
        if (request_.cancel->is_cancelled()) {
            co_return error(ClientErrorKind::kCancelled, "cancelled before it began");
        }
        request_.cancel->owner_ = this;
        request_.cancel->close_ = [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->cancel();
        };
    }
    std::optional<ClientError> failure = co_await attempt(true);
    const bool is_safe = request_.method == "GET" || request_.method == "HEAD";
    if (failure && failure->kind == ClientErrorKind::kClosedWithoutAnswer && was_reused_ &&
        is_safe && !is_cancelled_) {
        release(false);
        failure = co_await attempt(false);
    }
    if (failure) release(false);
    // It is not needed for the answer, which may take long.
    request_.shared_body.reset();
    free_string(request_.body);
    co_return failure;
}

asio::awaitable<std::optional<ClientError>> ClientCall::attempt(bool may_reuse) {
    std::optional<ClientError> failure = co_await obtain_connection(may_reuse);
    if (failure) co_return failure;
    // Kept here too: cancel() and release() may drop the member while a wait is pending.
    const std::shared_ptr<ClientConnection> connection = connection_;
    const std::string_view body =
        request_.shared_body ? std::string_view(*request_.shared_body) : request_.body;
    const std::string head_text = request_head(body.size());
    was_sent_ = true;
    const ClientConnection::WriteEnd end =
        co_await connection->write(head_text, body, request_.timeouts.write_stall);
    if (end == ClientConnection::WriteEnd::kStalled) {
        co_return error(ClientErrorKind::kTimeout, key_ + " took no bytes in time");
    }
    if (request_.on_sent && end == ClientConnection::WriteEnd::kWritten) request_.on_sent();
    // After kEnded an answer may still lie in the input: servers refuse and close.
    keep_alive_ = end == ClientConnection::WriteEnd::kWritten;
    const Deadline deadline = deadline_after(request_.timeouts.head);
    failure = co_await read_head(deadline);
    co_return failure;
}

asio::awaitable<std::optional<ClientError>> ClientCall::obtain_connection(bool may_reuse) {
    ClientPool::PerEndpoint& entry = pool_->endpoints[key_];
    was_reused_ = false;
    while (may_reuse && !entry.idle.empty()) {
        std::shared_ptr<ClientConnection> kept = std::move(entry.idle.back());
        entry.idle.pop_back();
        kept->end_idle();
        if (!kept->is_fresh()) {
            kept->close();
            continue;
        }
        ++entry.busy;
        ++entry.reuses_total;
        connection_ = std::move(kept);
        was_reused_ = true;
        co_return std::nullopt;
    }
    if (entry.busy + entry.idle.size() >= pool_->options.connections_max) {
        co_return error(ClientErrorKind::kPoolFull, "too many connections to " + key_);
    }
    ++entry.busy;
    ++entry.connects_total;
    const auto connection = std::make_shared<ClientConnection>(pool_, key_);
    connection_ = connection;
    std::optional<ClientError> failure =
        co_await connection->connect(endpoint_, request_.timeouts.connect);
    co_return failure;
}

std::string ClientCall::request_head(std::size_t body_bytes) const {
    std::string text;
    text.reserve(kRequestHeadBytes);
    text.append(request_.method).append(" ").append(request_.target);
    text.append(" HTTP/1.1\r\nHost: ").append(key_).append("\r\n");
    for (const Headers::Field& field : request_.headers) {
        if (is_own_field(field.name)) continue;
        assert(field.value.find_first_of("\r\n") == std::string::npos && "a field is one line");
        text.append(field.name).append(": ").append(field.value).append("\r\n");
    }
    if (body_bytes > 0 || request_.method == "POST" || request_.method == "PUT") {
        text += "Content-Length: " + std::to_string(body_bytes) + "\r\n";
    }
    text += "\r\n";
    return text;
}

asio::awaitable<std::optional<ClientError>> ClientCall::read_head(Deadline deadline) {
    const std::shared_ptr<ClientConnection> connection = connection_;
    for (int interim_count = 0; interim_count <= kInterimAnswersMax;) {
        HeadScanner scanner(HeadScanner::Kind::kResponse);
        std::optional<HeadScanner::Done> done;
        bool has_begun = false;
        while (!done) {
            if (!connection->input().empty()) {
                // Whoever has begun to answer has no reason to stop, however long that took to
                // come: a head without an end has as long as a peer that takes nothing.
                if (!std::exchange(has_begun, true)) {
                    const Deadline end = deadline_after(request_.timeouts.write_stall);
                    if (end.at() < deadline.at()) deadline = end;
                }
                tl::expected<std::optional<HeadScanner::Done>, GateError> scanned =
                    scanner.scan(connection->input());
                if (!scanned) co_return malformed(scanned.error().error.message);
                done = *scanned;
                if (done) break;
            }
            if (is_cancelled_ || connection->is_ended()) {
                co_return end_error(!connection->input().empty() || interim_count > 0);
            }
            const bool is_in_time = co_await connection->wait_input(deadline);
            if (!is_in_time) {
                co_return error(ClientErrorKind::kTimeout, key_ + " did not answer in time");
            }
        }
        std::optional<ParsedAnswerHead> parsed =
            parse_answer_head(connection->input().substr(0, done->size));
        connection->consume(done->size);
        if (!parsed) co_return malformed("a malformed head");
        if (parsed->status == 101) co_return malformed("an upgrade nobody asked for");
        if (parsed->status >= 200) co_return take_final_head(std::move(*parsed));
        ++interim_count;
    }
    co_return malformed("too many interim answers");
}

std::optional<ClientError> ClientCall::take_final_head(ParsedAnswerHead parsed) {
    head = std::move(parsed);
    tl::expected<BodyFraming, GateError> framing = check_framing(head.headers, head.version);
    if (!framing) return malformed(framing.error().error.message);
    const std::string_view connection_field = head.headers.get("connection");
    if (equal_no_case(connection_field, "close") ||
        (head.version == 10 && !equal_no_case(connection_field, "keep-alive"))) {
        keep_alive_ = false;
    }
    if (request_.method == "HEAD" || head.status == 204 || head.status == 304) {
        framing_ = Framing::kNone;
        return complete();
    } else if (framing->is_chunked) {
        framing_ = Framing::kChunked;
    } else if (framing->content_length) {
        framing_ = Framing::kLength;
        body_left_ = *framing->content_length;
        if (body_left_ == 0) return complete();
    } else {
        framing_ = Framing::kUntilClose;
        keep_alive_ = false;
    }
    return std::nullopt;
}

std::optional<ClientError> ClientCall::take_body() {
    ClientConnection& connection = *connection_;
    if (framing_ == Framing::kUntilClose) {
        out_ += connection.input();
        connection.consume(connection.input().size());
        return std::nullopt;
    }
    if (framing_ == Framing::kLength) {
        const std::size_t count = std::min<std::uint64_t>(body_left_, connection.input().size());
        out_ += connection.input().substr(0, count);
        connection.consume(count);
        body_left_ -= count;
        if (body_left_ == 0) return complete();
        return std::nullopt;
    }
    while (!is_complete_ && !connection.input().empty()) {
        tl::expected<ChunkDecoder::Step, GateError> step = chunks_.step(connection.input());
        if (!step) return malformed(step.error().error.message);
        out_ += step->data;
        connection.consume(step->consumed);
        if (step->is_complete) return complete();
    }
    return std::nullopt;
}

std::optional<ClientError> ClientCall::complete() {
    if (!connection_->input().empty()) return malformed("more bytes than the answer has");
    is_complete_ = true;
    release(keep_alive_);
    return std::nullopt;
}

void ClientCall::release(bool reusable) {
    const std::shared_ptr<ClientConnection> connection = std::exchange(connection_, nullptr);
    if (!connection) return;
    ClientPool::PerEndpoint& entry = pool_->endpoints[key_];
    assert(entry.busy > 0 && "each connection was counted once");
    --entry.busy;
    if (!reusable || pool_->is_closed || connection->is_ended() || !connection->input().empty() ||
        entry.idle.size() >= pool_->options.idle_max) {
        connection->close();
        return;
    }
    connection->begin_idle(pool_->options.idle);
    entry.idle.push_back(connection);
}

asio::awaitable<ReadResult> ClientCall::read_some(std::chrono::milliseconds timeout) {
    Deadline deadline = deadline_after(timeout);
    ReadResult result;
    out_.clear();
    while (true) {
        if (is_complete_) co_return result;
        const std::shared_ptr<ClientConnection> connection = connection_;
        if (!connection || is_cancelled_ || connection->is_closed_by_us()) {
            result.status = ReadStatus::kError;
            result.error = error(ClientErrorKind::kCancelled, "cancelled");
            co_return result;
        }
        if (!connection->input().empty()) {
            if (!failure_) failure_ = take_body();
            // Bytes before a fault are still true; the fault is for the next call.
            if (!out_.empty()) {
                result.status = ReadStatus::kData;
                result.data = out_;
                result.is_last = is_complete_;
                co_return result;
            }
            if (failure_) {
                release(false);
                result.status = ReadStatus::kError;
                result.error = *failure_;
                co_return result;
            }
            continue;
        }
        if (connection->is_ended()) {
            if (framing_ == Framing::kUntilClose) {
                (void)complete();  // nothing is left
                co_return result;
            }
            result.status = ReadStatus::kError;
            result.error = end_error(true);
            release(false);
            co_return result;
        }
        const bool is_in_time = co_await connection->wait_input(deadline);
        if (!is_in_time) {
            result.status = ReadStatus::kTimeout;
            co_return result;
        }
    }
}

// --- UpstreamResponse

namespace {

asio::awaitable<ReadResult> read_from(std::shared_ptr<ClientCall> call,
                                      std::chrono::milliseconds timeout) {
    const ReadResult result = co_await call->read_some(timeout);
    co_return result;
}

asio::awaitable<tl::expected<std::string, ClientError>> read_all_from(
    std::shared_ptr<ClientCall> call, std::size_t bytes_max) {
    std::string body;
    while (true) {
        const ReadResult piece = co_await call->read_some(call->body_idle());
        if (piece.status == ReadStatus::kEnd) co_return body;
        if (piece.status == ReadStatus::kError) co_return tl::unexpected(piece.error);
        ClientError failure;
        if (piece.status == ReadStatus::kTimeout) {
            failure.kind = ClientErrorKind::kTimeout;
            failure.message = "the body stalled";
        } else if (body.size() + piece.data.size() > bytes_max) {
            failure.kind = ClientErrorKind::kMalformed;
            failure.message = "the body is too large";
        } else {
            body += piece.data;
            continue;
        }
        failure.was_sent = true;
        call->cancel();
        co_return tl::unexpected(std::move(failure));
    }
}

}  // namespace

UpstreamResponse::UpstreamResponse(std::shared_ptr<ClientCall> call) : call_(std::move(call)) {
    status = call_->head.status;
    headers = std::move(call_->head.headers);
}
UpstreamResponse::UpstreamResponse(UpstreamResponse&&) noexcept = default;
UpstreamResponse& UpstreamResponse::operator=(UpstreamResponse&& other) noexcept {
    if (this != &other) {
        close();
        status = other.status;
        headers = std::move(other.headers);
        call_ = std::move(other.call_);
    }
    return *this;
}
UpstreamResponse::~UpstreamResponse() {
    close();
}

void UpstreamResponse::close() {
    if (call_) call_->cancel();
}

asio::awaitable<ReadResult> UpstreamResponse::read_some() {
    return read_from(call_, call_->body_idle());
}

asio::awaitable<ReadResult> UpstreamResponse::read_some(std::chrono::milliseconds timeout) {
    return read_from(call_, timeout);
}

asio::awaitable<tl::expected<std::string, ClientError>> UpstreamResponse::read_all(
    std::size_t bytes_max) {
    return read_all_from(call_, bytes_max);
}

// --- HttpClient

HttpClient::HttpClient(asio::any_io_executor executor, HttpClientOptions options)
    : pool_(std::make_shared<ClientPool>(std::move(executor), options)) {}

HttpClient::~HttpClient() {
    pool_->is_closed = true;
    const std::vector<ClientCall*> calls(pool_->calls.begin(), pool_->calls.end());
    for (ClientCall* call : calls)
        call->cancel();
    // Idle connections hold the pool, and the pool them.
    for (auto& [key, entry] : pool_->endpoints) {
        for (const auto& connection : std::exchange(entry.idle, {}))
            connection->close();
    }
}

asio::awaitable<tl::expected<UpstreamResponse, ClientError>> HttpClient::request(
    Endpoint endpoint, HttpClientRequest request) {
    const auto call = std::make_shared<ClientCall>(pool_, std::move(endpoint), std::move(request));
    std::optional<ClientError> failure = co_await call->run();
    if (failure) co_return tl::unexpected(std::move(*failure));
    co_return UpstreamResponse(call);
}

void HttpClient::forget(const Endpoint& endpoint) {
    const auto entry = pool_->endpoints.find(endpoint.text());
    if (entry == pool_->endpoints.end()) return;
    for (const auto& connection : std::exchange(entry->second.idle, {})) {
        connection->end_idle();
        connection->close();
    }
}

HttpClientStats HttpClient::stats() const {
    HttpClientStats sum;
    for (const auto& [key, entry] : pool_->endpoints) {
        sum.connects_total += entry.connects_total;
        sum.reuses_total += entry.reuses_total;
        sum.malformed_total += entry.malformed_total;
        sum.connections_busy += entry.busy;
        sum.connections_idle += entry.idle.size();
    }
    return sum;
}

HttpClientStats HttpClient::stats(const Endpoint& endpoint) const {
    const auto found = pool_->endpoints.find(endpoint.text());
    if (found == pool_->endpoints.end()) return {};
    const ClientPool::PerEndpoint& entry = found->second;
    return {entry.connects_total, entry.reuses_total, entry.malformed_total, entry.busy,
            entry.idle.size()};
}

}  // namespace proto

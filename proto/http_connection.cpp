#include "proto/http_connection.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "proto/free_string.h"

namespace proto {
namespace {

namespace asio = boost::asio;

// Read ahead while a body is being received: enough to keep the socket's buffer empty.
constexpr std::size_t kBodyReadAheadBytes = 256 * kKiB;
// After a closing answer, unread bytes are drained for a moment; closing at once would send RST,
// and the peer's kernel may then throw the answer away unread.
constexpr std::chrono::milliseconds kLingerTime{1'000};
constexpr std::size_t kLingerBytesMax = kMiB;
// One that took the descriptor kept in reserve: others wait for it. It has usually waited itself,
// so that its head is there; a handshake takes some turns more.
constexpr std::chrono::milliseconds kReservedHeaderRead{250};
constexpr std::chrono::milliseconds kReservedHandshake{1'000};
constexpr std::chrono::milliseconds kReservedLingerTime{50};
constexpr int kRetryAfterDescriptors = 1;  // seconds

GateError gate_error(GateReason reason, ErrorCode code, std::string message) {
    return GateError{reason, {code, std::move(message), {}, {}, {}}};
}

bool has_body(const HttpRequestHead& head) {
    return head.is_chunked || head.content_length.value_or(0) > 0;
}

bool is_get_or_head(const HttpRequestHead& head) {
    return head.method == "GET" || head.method == "HEAD";
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<HttpServerCore> core, StreamProtocol::socket socket,
                               std::string peer, bool is_reserved)
    : core_(std::move(core)),
      stream_(std::move(socket)),
      peer_(std::move(peer)),
      is_reserved_(is_reserved),
      input_wake_(core_->executor),
      write_timer_(core_->executor) {
    boost::system::error_code ignored;
    local_address_ = address_text(stream_.socket().local_endpoint(ignored));
}

// --- input

void HttpConnection::start_read() {
    if (is_reading_ || is_input_ended_) return;
    if (input().size() >= input_max_) {
        if (exchange_ != nullptr) core_->watch_for_end(*this);
        return;
    }
    is_reading_ = true;
    const auto read = [self = shared_from_this()](const boost::system::error_code& error) {
        self->is_reading_ = false;
        if (!error) self->on_readable();
    };
    if (stream_.may_hold_more()) {
        asio::post(core_->executor, [read] { read({}); });
    } else {
        stream_.socket().async_wait(stream_.read_wait(), read);
    }
}

void HttpConnection::on_readable() {
    if (is_input_ended_) return;
    auto& scratch = core_->read_scratch;
    boost::system::error_code error;
    do {  // TLS hands out a record at a time
        const std::size_t room = input_max_ - std::min(input().size(), input_max_);
        if (room == 0) break;
        const std::size_t count =
            stream_.read_some(scratch.data(), std::min(scratch.size(), room), error);
        if (error == asio::error::would_block || error == asio::error::interrupted) break;
        if (error) {
            client_left();
            return;
        }
        take_bytes({scratch.data(), count});
        received_total_ += count;
        input_wake_.cancel();
    } while (stream_.may_hold_more());
    start_read();
}

void HttpConnection::take_bytes(std::string_view bytes) {
    if (body_sink_ != nullptr && input().empty()) {
        const std::string_view of_body = bytes.substr(0, body_sink_left_);
        body_sink_->append(of_body);
        body_sink_left_ -= of_body.size();
        bytes.remove_prefix(of_body.size());
    }
    input_.append(bytes);
}

void HttpConnection::client_left() {
    if (is_input_ended_) return;
    is_input_ended_ = true;
    input_wake_.cancel();
    if (exchange_ == nullptr) return;
    if (auto callback = std::exchange(exchange_->on_disconnect_, nullptr)) callback();
}

asio::awaitable<HttpConnection::Arrival> HttpConnection::wait_input(Deadline& deadline) {
    const std::uint64_t received_before = received_total_;
    while (true) {
        start_read();
        if (received_total_ != received_before) co_return Arrival::kBytes;
        if (is_input_ended_) co_return Arrival::kEnd;
        if (deadline.has_passed(Clock::now())) co_return Arrival::kTimeout;
        input_wake_.expires_at(deadline.at());
        co_await input_wake_.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

void HttpConnection::consume(std::size_t count) {
    input_begin_ += count;
    assert(input_begin_ <= input_.size() && "only what has arrived can be consumed");
    if (input_begin_ == input_.size()) {
        input_.clear();
        if (input_.capacity() > kPipelineBytesMax) free_string(input_);  // a body came through
        input_begin_ = 0;
    } else if (input_begin_ > 64 * kKiB) {
        input_.erase(0, input_begin_);
        input_begin_ = 0;
    }
}

void HttpConnection::abort() {
    is_aborted_ = true;
    close_socket();
    client_left();
}

void HttpConnection::close_socket() {
    stream_.close();
}

// --- the life of a connection

asio::awaitable<void> HttpConnection::run() {
    const auto self = shared_from_this();
    std::size_t request_count = 0;
    bool may_go_on = true;
    if (core_->options.tls != nullptr) may_go_on = co_await shake_hands();
    while (may_go_on && !is_aborted_ && !(core_->is_stopping && request_count > 0)) {
        phase_ = Phase::kIdle;
        HeadRead read = co_await read_head(request_count == 0);
        if (read.refusal) {
            HttpAccess access;
            access.peer = peer_;
            Headers none;
            co_await refuse_and_close(std::move(*read.refusal), std::move(read.request_id),
                                      std::move(access), std::move(none));
            co_return;
        }
        if (!read.head) break;
        ++core_->stats.requests_total;
        ++request_count;
        const bool is_last = is_reserved_ || core_->is_handed_over ||
                             request_count >= core_->options.requests_per_connection_max;
        may_go_on = co_await serve_request(std::move(*read.head), is_last);
    }
    if (!is_aborted_ && (has_unread_body_ || !input().empty())) co_await linger();
    if (!is_aborted_) stream_.end();
    client_left();
    close_socket();
}

asio::awaitable<bool> HttpConnection::shake_hands() {
    using Status = TlsSession::Status;
    stream_.start_tls(core_->options.tls);
    is_shaking_hands_ = true;
    watch_handshake(Deadline(is_reserved_ ? kReservedHandshake : core_->options.header_read));
    Status status = Status::kWantRead;
    while (!is_aborted_) {
        status = stream_.shake_hands();
        if (status != Status::kWantRead && status != Status::kWantWrite) break;
        const auto readiness = status == Status::kWantRead ? StreamProtocol::socket::wait_read
                                                           : StreamProtocol::socket::wait_write;
        (void)co_await stream_.socket().async_wait(readiness, asio::as_tuple(asio::use_awaitable));
    }
    is_shaking_hands_ = false;
    input_wake_.cancel();
    if (status == Status::kDone && !is_aborted_) co_return true;
    ++core_->stats.tls_failures_total;
    if (status == Status::kPlainHttp && !is_aborted_) {
        stream_.drop_tls();
        HttpAccess access;
        access.peer = peer_;
        GateError refusal = gate_error(GateReason::kPlainOnTls, ErrorCode::kBadRequest,
                                       "This port speaks TLS: use https://.");
        std::string request_id;
        Headers none;
        co_await refuse_and_close(std::move(refusal), std::move(request_id), std::move(access),
                                  std::move(none));
    }
    co_return false;
}

void HttpConnection::watch_handshake(Deadline deadline) {
    input_wake_.expires_at(deadline.at());
    input_wake_.async_wait(
        [self = shared_from_this(), deadline](const boost::system::error_code& error) mutable {
            if (error || !self->is_shaking_hands_) return;
            if (deadline.has_passed(Clock::now())) {
                self->abort();
            } else {
                self->watch_handshake(deadline);
            }
        });
}

asio::awaitable<HttpConnection::HeadRead> HttpConnection::read_head(bool is_first) {
    const HttpServerOptions& options = core_->options;
    HeadRead result;
    input_max_ = options.head_bytes_max + kKiB;  // a little more, to tell "too large" from "exact"
    HeadScanner scanner(HeadScanner::Kind::kRequest,
                        HeadLimits{options.head_bytes_max, options.head_fields_max});
    Deadline deadline(is_reserved_ ? kReservedHeaderRead
                      : is_first   ? options.header_read
                                   : options.keepalive_idle);
    bool has_bytes = is_first && !input().empty();
    while (true) {
        if (!input().empty()) {
            if (!has_bytes && !is_first) deadline = Deadline(options.header_read);
            has_bytes = true;
            tl::expected<std::optional<HeadScanner::Done>, GateError> scanned =
                scanner.scan(input());
            if (!scanned) {
                result.refusal = std::move(scanned.error());
                co_return result;
            }
            if (scanned->has_value()) {
                const HeadScanner::Done done = **scanned;
                phase_ = Phase::kRequest;
                tl::expected<HttpRequestHead, GateError> head =
                    take_head(input().substr(done.skip, done.size), result.request_id);
                consume(done.skip + done.size);
                if (head) {
                    result.head = std::move(*head);
                } else {
                    result.refusal = std::move(head.error());
                }
                co_return result;
            }
        }
        const Arrival arrival = co_await wait_input(deadline);
        if (arrival == Arrival::kBytes) continue;
        if (arrival == Arrival::kTimeout && has_bytes) {
            result.refusal = gate_error(GateReason::kHeaderTimeout, ErrorCode::kRequestTimeout,
                                        "The request head did not arrive in time.");
        } else if (arrival == Arrival::kEnd && has_bytes) {
            ++core_->stats.client_aborts_total;
        }
        co_return result;
    }
}

tl::expected<HttpRequestHead, GateError> HttpConnection::take_head(std::string_view bytes,
                                                                   std::string& request_id) {
    tl::expected<ParsedHead, GateError> parsed = parse_request_head(bytes);
    if (!parsed) return tl::unexpected(parsed.error());
    HttpRequestHead head;
    head.method = std::move(parsed->method);
    head.headers = std::move(parsed->headers);
    head.peer = peer_;
    const std::string_view sent_id = head.headers.get("x-request-id");
    head.request_id = is_valid_request_id(sent_id) ? std::string(sent_id) : make_request_id();
    request_id = head.request_id;
    if (auto checked = check_request_head(head, parsed->target, parsed->version); !checked) {
        return tl::unexpected(checked.error());
    }
    const HttpServerOptions& options = core_->options;
    if ((options.check_host || !options.allowed_hosts.empty()) &&
        !is_host_ours(head.headers.get("host"), local_address_, options.allowed_hosts)) {
        GateError error = gate_error(GateReason::kHost, ErrorCode::kBadRequest,
                                     "This server does not answer for that Host; an address or a "
                                     "name given with --allowed-host is wanted.");
        error.error.status = 421;
        return tl::unexpected(std::move(error));
    }
    return head;
}

// --- body

std::size_t HttpConnection::body_limit(const HttpRequestHead& head) const {
    const HttpServerOptions& options = core_->options;
    const std::size_t limit =
        options.body_limit ? options.body_limit(head) : options.body_bytes_max;
    return is_get_or_head(head) ? std::min(limit, kUnreadBodyBytesMax) : limit;
}

/// What is asked for is what the buffer takes, not what has come: it doubles, so that a body is not
/// copied with each piece.
bool HttpConnection::grow_body(const HttpRequestHead& head, std::string& body, std::size_t more,
                               std::size_t bytes_max, BodyProgress& progress) {
    const std::size_t needed = body.size() + more;
    if (needed <= body.capacity()) return true;
    const std::size_t bytes = std::max(needed, std::min(2 * body.capacity(), bytes_max));
    if (core_->options.grow_body) progress.answer = core_->options.grow_body(head, bytes);
    if (progress.answer) return false;
    body.reserve(bytes);
    return true;
}

tl::expected<bool, GateError> HttpConnection::take_body(const HttpRequestHead& head,
                                                        std::string* body, std::size_t bytes_max,
                                                        BodyProgress& progress) {
    const auto take = [&](std::string_view data) {
        progress.received += data.size();
        if (progress.received > bytes_max) return false;
        if (body != nullptr) body->append(data);
        return true;
    };
    const auto too_large = [] {
        return tl::unexpected<GateError>(gate_error(
            GateReason::kBodyTooLarge, ErrorCode::kBodyTooLarge, "The body is too large."));
    };
    if (!head.is_chunked) {
        const std::uint64_t length = head.content_length.value_or(0);
        if (length > bytes_max) return too_large();
        const std::size_t count =
            std::min<std::uint64_t>(length - progress.received, input().size());
        take(input().substr(0, count));
        consume(count);
        return progress.received == length;
    }
    while (!input().empty()) {
        tl::expected<ChunkDecoder::Step, GateError> step = progress.chunks.step(input());
        if (!step) return tl::unexpected(step.error());
        if (progress.received + step->data.size() <= bytes_max && body != nullptr &&
            !grow_body(head, *body, step->data.size(), bytes_max, progress)) {
            return false;
        }
        if (!take(step->data)) return too_large();
        consume(step->consumed);
        if (step->is_complete) return true;
    }
    return false;
}

asio::awaitable<HttpConnection::BodyRead> HttpConnection::read_body(const HttpRequestHead& head,
                                                                    std::string* body,
                                                                    std::size_t bytes_max) {
    const HttpServerOptions& options = core_->options;
    BodyRead result;
    BodyProgress progress;
    input_max_ = kBodyReadAheadBytes;
    const std::uint64_t length = head.content_length.value_or(0);
    const bool is_direct = !head.is_chunked && body != nullptr && length <= bytes_max;
    if (is_direct) body->reserve(length);  // the hook has counted it, and pages come with bytes
    // The rate is looked at in windows: a body may pause, but not for longer than two of them.
    const double window_s = std::chrono::duration<double>(options.body_grace).count();
    const double window_bytes_min = window_s * static_cast<double>(options.body_rate_min);
    Deadline window_end(options.body_grace);
    std::uint64_t window_begin_bytes = received_total_;
    while (true) {
        tl::expected<bool, GateError> is_complete = take_body(head, body, bytes_max, progress);
        if (!is_complete) {
            result.end = BodyEnd::kRefused;
            result.refusal = std::move(is_complete.error());
            co_return result;
        }
        if (*is_complete) co_return result;
        if (progress.answer) {
            result.end = BodyEnd::kRefused;
            result.answer = std::move(progress.answer);
            co_return result;
        }
        if (is_direct) {
            body_sink_ = body;
            body_sink_left_ = length - progress.received;
        }
        const Arrival arrival = co_await wait_input(window_end);
        if (is_direct) {
            body_sink_ = nullptr;
            progress.received = length - body_sink_left_;
        }
        if (arrival == Arrival::kEnd) {
            result.end = BodyEnd::kClientLeft;
            co_return result;
        }
        if (!window_end.has_passed(Clock::now())) continue;
        if (static_cast<double>(received_total_ - window_begin_bytes) < window_bytes_min) {
            result.end = BodyEnd::kRefused;
            result.refusal = gate_error(GateReason::kBodyTimeout, ErrorCode::kRequestTimeout,
                                        "The body arrives too slowly.");
            co_return result;
        }
        window_begin_bytes = received_total_;
        window_end = Deadline(options.body_grace);
    }
}

// --- requests

asio::awaitable<bool> HttpConnection::serve_request(HttpRequestHead head, bool is_last) {
    const HttpServerOptions& options = core_->options;
    HttpAccess access;
    access.method = head.method;
    access.path = head.path;
    access.request_id = head.request_id;
    access.peer = peer_;
    if (is_reserved_ && !options.reserve_for(head)) {
        ++core_->stats.rejected_descriptors_total;
        HttpResponse refusal = error_response({ErrorCode::kQueueFull,
                                               "The server has no descriptor left for this "
                                               "connection.",
                                               {},
                                               {},
                                               kRetryAfterDescriptors});
        const bool keep = co_await refuse_request(std::move(head), std::move(refusal), is_last,
                                                  std::move(access));
        co_return keep;
    }
    if (options.admit) {
        if (std::optional<HttpResponse> refusal = options.admit(head)) {
            const bool keep = co_await refuse_request(std::move(head), std::move(*refusal), is_last,
                                                      std::move(access));
            co_return keep;
        }
    }
    access.ticket = head.ticket;
    const std::size_t limit = body_limit(head);
    if (head.content_length.value_or(0) > limit) {
        std::string request_id = head.request_id;
        GateError error =
            gate_error(GateReason::kBodyTooLarge, ErrorCode::kBodyTooLarge,
                       "The body has " + std::to_string(*head.content_length) + " bytes; at most " +
                           std::to_string(limit) + " are accepted.");
        co_await refuse_and_close(std::move(error), std::move(request_id), std::move(access),
                                  std::move(head.answer_headers));
        co_return false;
    }
    HttpRequest request;
    static_cast<HttpRequestHead&>(request) = std::move(head);
    if (has_body(request)) {
        if (request.expects_continue) {
            const bool sent = co_await write_all({"HTTP/1.1 100 Continue\r\n\r\n", "", ""});
            if (!sent) co_return false;
        }
        const Clock::time_point begin = Clock::now();
        std::string* body = is_get_or_head(request) ? nullptr : &request.body;
        BodyRead read = co_await read_body(request, body, limit);
        if (read.end == BodyEnd::kClientLeft) {
            ++core_->stats.client_aborts_total;
            access.client_aborted = true;
            log(access, begin);
            co_return false;
        }
        if (read.end == BodyEnd::kRefused) {
            std::string request_id = request.request_id;
            Headers more = std::move(request.answer_headers);
            free_string(request.body);
            request = HttpRequest();  // and with the ticket what is counted of it
            if (read.answer) {
                co_await answer_and_close(std::move(*read.answer), std::move(request_id),
                                          std::move(access), std::move(more));
            } else {
                co_await refuse_and_close(std::move(*read.refusal), std::move(request_id),
                                          std::move(access), std::move(more));
            }
            co_return false;
        }
        access.body_bytes_received = request.body.size();
    }
    const bool keep = co_await run_handler(std::move(request), is_last, std::move(access));
    co_return keep;
}

asio::awaitable<bool> HttpConnection::run_handler(HttpRequest request, bool is_last,
                                                  HttpAccess access) {
    const Clock::time_point begin = Clock::now();
    input_max_ = kPipelineBytesMax;
    HttpExchange exchange(*this, std::move(request));
    exchange.close_after_ = is_last || !exchange.request_.keep_alive;
    exchange_ = &exchange;
    ++core_->stats.requests_running;
    start_read();
    bool has_failed = false;
    try {
        co_await core_->handler(exchange);
    } catch (const std::exception& fault) {
        has_failed = true;
        access.fault = fault.what();
    }
    if (!exchange.is_started() && !is_gone()) {
        if (!has_failed) access.fault = "the handler returned without an answer";
        HttpResponse answer = error_response(
            {ErrorCode::kInternalError, "The server made a mistake while answering.", {}, {}, {}});
        co_await exchange.send(std::move(answer));
    } else if (exchange.is_started() && !exchange.is_finished()) {
        abort();  // the body cannot be ended truthfully
    }
    --core_->stats.requests_running;
    exchange_ = nullptr;
    access.status = exchange.status_;
    access.body_bytes_sent = exchange.body_bytes_sent_;
    access.client_aborted = is_gone() && !exchange.is_finished();
    if (access.client_aborted) ++core_->stats.client_aborts_total;
    log(access, begin);
    co_return exchange.is_finished() && !exchange.close_after_ && !is_gone();
}

asio::awaitable<bool> HttpConnection::refuse_request(HttpRequestHead head, HttpResponse response,
                                                     bool is_last, HttpAccess access) {
    const Clock::time_point begin = Clock::now();
    // An unread body of unknown or large size, or one that was never asked for, ends the
    // connection.
    const bool close = is_last || response.close || !head.keep_alive || core_->is_stopping ||
                       (has_body(head) && (head.expects_continue ||
                                           head.content_length.value_or(0) > kUnreadBodyBytesMax));
    const bool is_head = head.method == "HEAD";
    std::string framing;
    if (response.status != 204) {
        framing = "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
    }
    const HeadParts parts{
        response.status,  response.headers, head.answer_headers, head.request_id, close,
        head.is_http_1_0, framing};
    const std::string answer = answer_head(parts);
    const bool sent =
        co_await write_all({answer, is_head ? std::string_view() : response.body, ""});
    access.status = response.status;
    access.body_bytes_sent = is_head ? 0 : response.body.size();
    access.client_aborted = !sent;
    log(access, begin);
    has_unread_body_ = has_body(head);
    if (close || !sent) co_return false;
    if (!has_unread_body_) co_return true;
    const BodyRead drained = co_await read_body(head, nullptr, kUnreadBodyBytesMax);
    has_unread_body_ = drained.end != BodyEnd::kComplete;
    co_return !has_unread_body_;
}

asio::awaitable<void> HttpConnection::refuse_and_close(GateError refusal, std::string request_id,
                                                       HttpAccess access, Headers more) {
    ++core_->stats.gate_rejected_total[static_cast<std::size_t>(refusal.reason)];
    access.gate = refusal.reason;
    HttpResponse response = error_response(refusal.error);
    co_await answer_and_close(std::move(response), std::move(request_id), std::move(access),
                              std::move(more));
}

asio::awaitable<void> HttpConnection::answer_and_close(HttpResponse response,
                                                       std::string request_id, HttpAccess access,
                                                       Headers more) {
    const Clock::time_point begin = Clock::now();
    if (request_id.empty()) request_id = make_request_id();
    const std::string framing = "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
    const HeadParts parts{response.status, response.headers, more, request_id, true,
                          false,           framing};
    const std::string head = answer_head(parts);
    access.request_id = request_id;
    access.status = response.status;
    access.body_bytes_sent = response.body.size();
    co_await write_all({head, response.body, ""});
    log(access, begin);
    access.ticket.reset();  // nothing of it is held while the client reads
    co_await linger();
    close_socket();
}

asio::awaitable<void> HttpConnection::linger() {
    stream_.end();
    Deadline deadline(is_reserved_ ? kReservedLingerTime : kLingerTime);
    const std::uint64_t received_before = received_total_;
    input_max_ = kBodyReadAheadBytes;
    while (received_total_ - received_before < kLingerBytesMax) {
        consume(input().size());
        const Arrival arrival = co_await wait_input(deadline);
        if (arrival != Arrival::kBytes) break;
    }
}

void HttpConnection::log(HttpAccess& access, Clock::time_point begin) {
    access.duration = Clock::now() - begin;
    if (core_->options.on_access) core_->options.on_access(access);
}

}  // namespace proto

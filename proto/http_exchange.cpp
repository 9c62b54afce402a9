// The answering half of a connection, and HttpExchange, its face to handlers.
#include <array>
#include <cassert>
#include <charconv>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "proto/http_connection.h"

namespace proto {
namespace {

namespace asio = boost::asio;

/// Fields that describe this hop are the server's own business.
bool is_hop_field(std::string_view name) {
    return equal_no_case(name, "connection") || equal_no_case(name, "content-length") ||
           equal_no_case(name, "transfer-encoding") || equal_no_case(name, "keep-alive") ||
           equal_no_case(name, "x-request-id") || equal_no_case(name, "date");
}

/// A line break in a value would let its author write fields of his own.
void append_field(std::string& out, std::string_view name, std::string_view value) {
    out += name;
    out += ": ";
    for (const char c : value) {
        const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
        out += is_control && c != '\t' ? '?' : c;
    }
    out += "\r\n";
}

/// The line before a chunk. Lives in the writer's frame until the write is done.
class ChunkSize {
public:
    explicit ChunkSize(std::size_t bytes) {
        char* end = std::to_chars(text_.data(), text_.data() + 16, bytes, 16).ptr;
        *end++ = '\r';
        *end++ = '\n';
        size_ = static_cast<std::size_t>(end - text_.data());
    }
    [[nodiscard]] std::string_view line() const { return {text_.data(), size_}; }

private:
    std::array<char, 20> text_{};
    std::size_t size_ = 0;
};

}  // namespace

std::string HttpConnection::answer_head(const HeadParts& parts) const {
    std::string head;
    head.reserve(512);
    head += "HTTP/1.1 ";
    head += std::to_string(parts.status);
    head += ' ';
    head += status_reason(parts.status);
    head += "\r\n";
    head += core_->date_line();
    for (const Headers::Field& field : parts.headers) {
        if (!is_hop_field(field.name)) append_field(head, field.name, field.value);
    }
    for (const Headers::Field& field : core_->options.common_headers) {
        if (!parts.headers.contains(field.name)) append_field(head, field.name, field.value);
    }
    for (const Headers::Field& field : parts.more)
        append_field(head, field.name, field.value);
    append_field(head, "x-request-id", parts.request_id);
    head += parts.framing;
    if (parts.close) {
        head += "Connection: close\r\n";
    } else if (parts.is_http_1_0) {
        head += "Connection: keep-alive\r\n";
    }
    head += "\r\n";
    return head;
}

void HttpConnection::watch_write(std::uint64_t wait_id, Deadline deadline) {
    write_timer_.expires_at(deadline.at());
    write_timer_.async_wait([self = shared_from_this(), wait_id,
                             deadline](const boost::system::error_code& error) mutable {
        // The count tells a late expiry, already queued when the wait ended, from a stall.
        if (error || self->write_wait_count_ != wait_id) return;
        if (!deadline.has_passed(Clock::now())) {
            self->watch_write(wait_id, deadline);
            return;
        }
        ++self->core_->stats.write_stalls_total;
        self->abort();
    });
}

asio::awaitable<bool> HttpConnection::wait_writable() {
    const std::uint64_t wait_id = ++write_wait_count_;
    watch_write(wait_id, Deadline(core_->options.write_stall));
    auto [error] = co_await stream_.socket().async_wait(StreamProtocol::socket::wait_write,
                                                        asio::as_tuple(asio::use_awaitable));
    ++write_wait_count_;
    write_timer_.cancel();
    co_return !error && !is_aborted_;
}

asio::awaitable<bool> HttpConnection::write_all(ServerStream::Parts parts) {
    std::size_t part = 0;
    while (!is_aborted_) {
        while (part < parts.size() && parts[part].empty())
            ++part;
        if (part == parts.size()) co_return true;
        boost::system::error_code error;
        std::size_t count = stream_.write_some(parts, error);
        if (error == asio::error::would_block) {
            std::size_t unsent_bytes = 0;
            for (const std::string_view rest : parts)
                unsent_bytes += rest.size();
            core_->begin_unsent(*this, unsent_bytes);
            bool is_writable = false;  // it may be itself that is cut
            if (!is_aborted_) is_writable = co_await wait_writable();
            core_->end_unsent(*this);
            if (!is_writable) co_return false;
            continue;
        }
        if (error == asio::error::interrupted) continue;
        if (error) {
            client_left();
            co_return false;
        }
        while (count > 0) {
            const std::size_t taken = std::min(count, parts[part].size());
            parts[part].remove_prefix(taken);
            count -= taken;
            if (parts[part].empty()) ++part;
        }
    }
    co_return false;
}

asio::awaitable<bool> HttpConnection::send(HttpExchange& exchange, HttpResponse response) {
    assert(exchange.state_ == HttpExchange::State::kNothing && "one answer to a request");
    const HttpRequest& request = exchange.request_;
    exchange.close_after_ = exchange.close_after_ || response.close || core_->is_stopping;
    exchange.state_ = HttpExchange::State::kStreaming;
    exchange.status_ = response.status;
    const bool has_no_body = response.status == 204 || request.method == "HEAD";
    std::string framing;
    if (response.status != 204) {
        framing = "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
    }
    const HeadParts parts{response.status,
                          response.headers,
                          request.answer_headers,
                          request.request_id,
                          exchange.close_after_,
                          request.is_http_1_0,
                          framing};
    const std::string head = answer_head(parts);
    const std::string_view body = has_no_body ? std::string_view() : response.body;
    // A client that has only closed its sending half can still read a whole answer.
    const bool sent = co_await write_all({head, body, ""});
    if (!sent) co_return false;
    exchange.body_bytes_sent_ = body.size();
    exchange.state_ = HttpExchange::State::kFinished;
    co_return !is_gone();
}

asio::awaitable<bool> HttpConnection::start_stream(HttpExchange& exchange, int status,
                                                   Headers headers, std::string_view first) {
    assert(exchange.state_ == HttpExchange::State::kNothing && "one answer to a request");
    const HttpRequest& request = exchange.request_;
    exchange.is_chunked_ = !request.is_http_1_0;
    exchange.close_after_ = exchange.close_after_ || !exchange.is_chunked_ || core_->is_stopping;
    exchange.state_ = HttpExchange::State::kStreaming;
    exchange.status_ = status;
    const HeadParts parts{status,
                          headers,
                          request.answer_headers,
                          request.request_id,
                          exchange.close_after_,
                          false,
                          exchange.is_chunked_ ? "Transfer-Encoding: chunked\r\n" : ""};
    const std::string head = answer_head(parts);
    if (is_gone()) co_return false;
    if (first.empty() || request.method == "HEAD") {
        const bool sent = co_await write_all({head, "", ""});
        co_return sent;
    }
    bool sent = false;
    if (exchange.is_chunked_) {
        const ChunkSize size(first.size());
        sent = co_await write_all({head, size.line(), first, "\r\n"});
    } else {
        sent = co_await write_all({head, first, ""});
    }
    if (sent) exchange.body_bytes_sent_ += first.size();
    co_return sent;
}

asio::awaitable<bool> HttpConnection::write_chunk(HttpExchange& exchange, std::string_view bytes) {
    assert(exchange.state_ == HttpExchange::State::kStreaming && "start_stream() comes first");
    if (is_gone()) co_return false;
    if (bytes.empty() || exchange.request_.method == "HEAD") co_return true;
    bool sent = false;
    if (exchange.is_chunked_) {
        const ChunkSize size(bytes.size());
        sent = co_await write_all({size.line(), bytes, "\r\n"});
    } else {
        sent = co_await write_all({bytes, "", ""});
    }
    if (sent) exchange.body_bytes_sent_ += bytes.size();
    co_return sent;
}

asio::awaitable<bool> HttpConnection::finish(HttpExchange& exchange, std::string_view last) {
    assert(exchange.state_ == HttpExchange::State::kStreaming && "a stream ends once");
    if (is_gone()) co_return false;
    if (exchange.request_.method == "HEAD") last = {};
    bool sent = true;
    if (exchange.is_chunked_ && !last.empty()) {
        const ChunkSize size(last.size());
        sent = co_await write_all({size.line(), last, "\r\n0\r\n\r\n"});
    } else if (exchange.is_chunked_ && exchange.request_.method != "HEAD") {
        sent = co_await write_all({"0\r\n\r\n", "", ""});
    } else if (!last.empty()) {
        sent = co_await write_all({last, "", ""});
    }
    if (!sent) co_return false;
    exchange.body_bytes_sent_ += last.size();
    exchange.state_ = HttpExchange::State::kFinished;
    co_return true;
}

// --- HttpExchange

HttpExchange::HttpExchange(HttpConnection& connection, HttpRequest request)
    : connection_(connection), request_(std::move(request)) {}

asio::any_io_executor HttpExchange::executor() const {
    return connection_.executor();
}

asio::awaitable<bool> HttpExchange::send(HttpResponse response) {
    return connection_.send(*this, std::move(response));
}

asio::awaitable<bool> HttpExchange::start_stream(int status, Headers headers,
                                                 std::string_view first) {
    return connection_.start_stream(*this, status, std::move(headers), first);
}

asio::awaitable<bool> HttpExchange::write(std::string_view bytes) {
    return connection_.write_chunk(*this, bytes);
}

asio::awaitable<bool> HttpExchange::finish(std::string_view last) {
    return connection_.finish(*this, last);
}

void HttpExchange::on_disconnect(std::function<void()> callback) {
    if (callback && is_client_gone()) {
        callback();
        return;
    }
    on_disconnect_ = std::move(callback);
}

bool HttpExchange::is_client_gone() const {
    return connection_.is_gone();
}

void HttpExchange::abort() {
    connection_.abort();
}

}  // namespace proto

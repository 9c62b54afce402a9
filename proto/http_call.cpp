// The blocking helper of http_client.h: one exchange on a private loop.
#include <algorithm>
#include <charconv>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "proto/http_client.h"

namespace proto {
namespace {

namespace asio = boost::asio;

asio::awaitable<void> exchange(HttpClient& client, UrlParts url, BlockingRequest& request,
                               std::shared_ptr<CancelHandle> cancel, HttpResult& result) {
    HttpClientRequest sent;
    sent.method = request.method;
    sent.target = std::move(url.target);
    sent.headers = request.headers;
    sent.body = std::move(request.body);
    sent.cancel = std::move(cancel);
    if (request.timeout.count() > 0) sent.timeouts.connect = request.timeout;
    tl::expected<UpstreamResponse, ClientError> answer =
        co_await client.request(std::move(url.endpoint), std::move(sent));
    if (!answer) {
        result.error = std::move(answer.error());
        co_return;
    }
    result.headers = answer->headers;
    while (true) {
        const ReadResult piece = co_await answer->read_some();
        if (piece.status == ReadStatus::kError) {
            result.error = piece.error;
            co_return;
        }
        if (piece.status == ReadStatus::kEnd) break;
        if (request.on_body) {
            if (!request.on_body(answer->status, piece.data)) break;
        } else if (result.body.size() + piece.data.size() > request.body_bytes_max) {
            result.error.kind = ClientErrorKind::kMalformed;
            result.error.message = "the body is too large";
            co_return;
        } else {
            result.body += piece.data;
        }
    }
    result.status = answer->status;
}

/// The characters of names and addresses; what a resolver makes of others is anybody's guess.
bool is_host(std::string_view host, bool has_brackets) {
    return !host.empty() && std::all_of(host.begin(), host.end(), [has_brackets](char c) {
        const bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                             (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
        return is_word || (has_brackets && (c == ':' || c == '%'));
    });
}

}  // namespace

std::optional<UrlParts> parse_http_url(std::string_view url) {
    constexpr std::string_view kScheme = "http://";
    if (!url.starts_with(kScheme)) return std::nullopt;
    url.remove_prefix(kScheme.size());
    const std::string_view authority = url.substr(0, url.find('/'));
    UrlParts parts;
    parts.target = url.substr(authority.size());
    if (parts.target.empty()) parts.target = "/";
    std::string_view port = "80";
    std::string_view host = authority;
    const std::size_t colon = authority.rfind(':');
    const std::size_t bracket = authority.rfind(']');
    if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
        host = authority.substr(0, colon);
        port = authority.substr(colon + 1);
    }
    const bool has_brackets = host.starts_with('[') && host.ends_with(']');
    if (has_brackets) host = host.substr(1, host.size() - 2);
    parts.endpoint.host = host;
    const char* const end = port.data() + port.size();
    const auto [last, error] = std::from_chars(port.data(), end, parts.endpoint.port);
    if (!is_host(host, has_brackets) || error != std::errc{} || last != end) return std::nullopt;
    return parts;
}

HttpResult http_call(BlockingRequest request) {
    HttpResult result;
    std::optional<UrlParts> url = parse_http_url(request.url);
    if (!url) {
        result.error.kind = ClientErrorKind::kRefused;
        result.error.message = "not an http:// address: " + printable(request.url);
        return result;
    }
    asio::io_context context(1);
    const auto cancel = std::make_shared<CancelHandle>();
    bool is_late = false;
    {
        HttpClient client(context.get_executor());
        asio::steady_timer timer(context);
        if (request.timeout.count() > 0) {
            timer.expires_after(request.timeout);
            timer.async_wait([&](const boost::system::error_code& error) {
                if (error) return;
                is_late = true;
                cancel->cancel();
            });
        }
        std::exception_ptr fault;
        asio::co_spawn(context, exchange(client, std::move(*url), request, cancel, result),
                       [&](std::exception_ptr thrown) {
                           fault = std::move(thrown);
                           context.stop();
                       });
        context.run();
        if (fault) std::rethrow_exception(fault);
    }
    if (is_late && result.status == 0) {
        result.error.kind = ClientErrorKind::kTimeout;
        result.error.message = "no complete answer in time";
    }
    return result;
}

HttpResult http_get(const std::string& url, std::chrono::milliseconds timeout) {
    BlockingRequest request;
    request.url = url;
    request.timeout = timeout;
    return http_call(std::move(request));
}

}  // namespace proto

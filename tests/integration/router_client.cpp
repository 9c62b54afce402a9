#include "tests/integration/router_client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include <arpa/inet.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/http_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

namespace asio = boost::asio;

/// Takes the chunk framing off; the bool says whether the final chunk was there.
std::pair<std::string, bool> without_chunks(const std::string& bytes) {
    std::string body;
    for (std::size_t at = 0;;) {
        const std::size_t end = bytes.find("\r\n", at);
        if (end == std::string::npos) return {body, false};
        const std::size_t size = std::strtoul(bytes.c_str() + at, nullptr, 16);
        at = end + 2;
        if (size == 0) return {body, bytes.compare(at, 2, "\r\n") == 0};
        if (at + size + 2 > bytes.size()) {
            body += bytes.substr(at, size);
            return {body, false};
        }
        body += bytes.substr(at, size);
        at += size + 2;
    }
}

std::string lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

/// Whoever is sent away is told when to come back, whatever the reason was.
void expect_retry_after(const Answer& answer) {
    if (answer.status != 429 && answer.status != 503) return;
    const std::string text = answer.header("retry-after");
    const int wait_s = std::atoi(text.c_str());
    EXPECT_TRUE(wait_s >= 1 && wait_s <= 3600)
        << answer.status << " with Retry-After '" << text << "': " << answer.body;
}

asio::awaitable<void> post_one(proto::HttpClient& client, proto::Endpoint endpoint,
                               proto::HttpClientRequest request, Answer& answer) {
    auto response = co_await client.request(std::move(endpoint), std::move(request));
    if (!response) co_return;
    auto body = co_await response->read_all(std::size_t{16} << 20);
    if (!body) co_return;
    answer.status = response->status;
    answer.head = "\r\n";
    for (const auto& field : response->headers)
        answer.head += field.name + ": " + field.value + "\r\n";
    answer.body = std::move(*body);
    answer.is_complete = true;
    expect_retry_after(answer);
}

asio::awaitable<void> cancel_later(std::shared_ptr<proto::CancelHandle> cancel,
                                   asio::steady_timer& timer) {
    (void)co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    cancel->cancel();
}

}  // namespace

std::string Answer::header(const std::string& name) const {
    const std::string wanted = lower_case(name);
    for (std::size_t at = head.find("\r\n"); at != std::string::npos;
         at = head.find("\r\n", at + 2)) {
        const std::size_t begin = at + 2;
        const std::size_t colon = head.find(": ", begin);
        if (colon == std::string::npos) break;
        if (lower_case(head.substr(begin, colon - begin)) == wanted) {
            return head.substr(colon + 2, head.find("\r\n", begin) - colon - 2);
        }
    }
    return "";
}

RawClient::RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        throw std::runtime_error("cannot connect to the router");
    }
}

RawClient::RawClient(const std::string& socket_path)
    : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
    is_closed_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0;
}

RawClient::~RawClient() {
    close();
}

void RawClient::post(const std::string& path, const std::string& body,
                     const std::vector<std::string>& fields) {
    std::string head =
        "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" +
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    for (const std::string& field : fields)
        head += field + "\r\n";
    send(head + "\r\n" + body);
}

void RawClient::ask(const std::string& method, const std::string& path,
                    const std::vector<std::string>& fields) {
    std::string head = method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    for (const std::string& field : fields)
        head += field + "\r\n";
    send(head + "\r\n");
}

void RawClient::send(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t sent = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
        if (sent <= 0) return;  // the answer, or its absence, tells
        at += static_cast<std::size_t>(sent);
    }
}

bool RawClient::read_more() {
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) <= 0) {
        return false;
    }
    std::array<char, 16384> buffer;
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
    is_closed_ = got <= 0;
    if (got > 0) received_.append(buffer.data(), static_cast<std::size_t>(got));
    return got > 0;
}

Answer RawClient::parse() const {
    Answer answer;
    answer.is_closed = is_closed_;
    const std::size_t end = received_.find("\r\n\r\n");
    if (end == std::string::npos) return answer;
    answer.head = received_.substr(0, end + 2);
    answer.status = std::atoi(received_.c_str() + sizeof "HTTP/1.1");
    const std::string rest = received_.substr(end + 4);
    if (answer.header("transfer-encoding") == "chunked") {
        std::tie(answer.body, answer.is_complete) = without_chunks(rest);
    } else {
        answer.body = rest;
        answer.is_complete =
            rest.size() == std::strtoul(answer.header("content-length").c_str(), nullptr, 10);
    }
    return answer;
}

Answer RawClient::read_answer() {
    for (;;) {
        Answer answer = parse();
        const bool must_close = answer.header("connection") == "close";
        if (answer.is_closed || (answer.is_complete && !must_close)) {
            expect_retry_after(answer);
            return answer;
        }
        if (!read_more() && !is_closed_) return answer;
    }
}

Answer RawClient::read_to_end() {
    while (read_more()) {
    }
    Answer answer = parse();
    expect_retry_after(answer);
    return answer;
}

bool RawClient::read_body_bytes(std::size_t bytes) {
    while (parse().body.size() < bytes) {
        if (!read_more()) return false;
    }
    return true;
}

void RawClient::close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawClient::reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
}

Answer post(int port, const std::string& path, const std::string& body,
            const std::vector<std::string>& fields) {
    RawClient client(port);
    client.post(path, body, fields);
    return client.read_answer();
}

Answer ask_unix(const std::string& socket_path, const std::string& method, const std::string& path,
                const std::string& body) {
    RawClient client(socket_path);
    client.send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    return client.read_answer();
}

Answer get(int port, const std::string& path, const std::vector<std::string>& fields) {
    RawClient client(port);
    client.ask("GET", path, fields);
    return client.read_answer();
}

std::vector<Answer> post_all(int port, const std::string& path,
                             const std::vector<std::string>& bodies,
                             const std::vector<std::chrono::milliseconds>& cancel_after) {
    asio::io_context loop(1);
    proto::HttpClientOptions options;
    options.connections_max = bodies.size();  // each on its own, all at once
    proto::HttpClient client(loop.get_executor(), options);
    std::vector<Answer> answers(bodies.size());
    std::vector<std::unique_ptr<asio::steady_timer>> timers;
    std::size_t pending = bodies.size();
    for (std::size_t i = 0; i < bodies.size(); ++i) {
        proto::HttpClientRequest request;
        request.method = "POST";
        request.target = path;
        request.headers.add("content-type", "application/json");
        request.body = bodies[i];
        request.cancel = std::make_shared<proto::CancelHandle>();
        request.timeouts.connect = kPatience;
        if (!cancel_after.empty()) {
            timers.push_back(std::make_unique<asio::steady_timer>(loop, cancel_after[i]));
            asio::co_spawn(loop, cancel_later(request.cancel, *timers.back()),
                           [](std::exception_ptr) {});
        }
        asio::co_spawn(loop,
                       post_one(client, {"127.0.0.1", static_cast<std::uint16_t>(port)},
                                std::move(request), answers[i]),
                       [&](std::exception_ptr) {
                           if (--pending == 0) loop.stop();
                       });
    }
    loop.run_for(3 * kPatience);
    return answers;
}

}  // namespace fleet

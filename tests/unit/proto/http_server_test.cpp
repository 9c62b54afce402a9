// The server's behaviour beyond the gate: answers, keep-alive, pipelining, bodies, timers, limits,
// and the routes' standard answers.
#include <algorithm>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/route_table.h"
#include "tests/unit/proto/support/running_server.h"

namespace proto_test {
namespace {

namespace asio = boost::asio;
using proto::HttpExchange;
using proto::HttpServerOptions;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

std::string get(std::string_view path, std::string_view lines = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(lines) +
           "\r\n";
}
std::string post(std::string_view lines, std::string_view body = "") {
    return "POST /echo HTTP/1.1\r\nHost: localhost\r\n" + std::string(lines) + "\r\n" +
           std::string(body);
}

TEST(HttpServerTest, AnswersWithLengthDateRequestIdAndCommonHeaders) {
    HttpServerOptions options;
    options.common_headers.add("x-quadriga-instance", "0123456789abcdef");
    RunningServer server(std::move(options), echo);
    RawSocket socket = server.connect();
    socket.send(get("/a?b=c", "x-request-id: my-id.1:2_3\r\n"));
    const std::string answer = socket.read_answer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nDate: "));
    EXPECT_THAT(answer, HasSubstr("Content-Length: 11\r\n"));
    EXPECT_THAT(answer, HasSubstr("x-request-id: my-id.1:2_3\r\n"));
    EXPECT_THAT(answer, HasSubstr("x-quadriga-instance: 0123456789abcdef\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr("Connection:")));
    EXPECT_THAT(answer, HasSubstr("\r\n\r\nGET /a?b=c\n"));
}

TEST(HttpServerTest, MakesARequestIdInPlaceOfABadOne) {
    RunningServer server({}, echo);
    RawSocket socket = server.connect();
    socket.send(get("/", "x-request-id: no spaces\r\n"));
    const std::string answer = socket.read_answer();
    EXPECT_THAT(answer, HasSubstr("x-request-id: req-"));
    EXPECT_THAT(answer, Not(HasSubstr("no spaces")));
}

TEST(HttpServerTest, AValueWithALineBreakCannotAddAHeader) {
    RunningServer server({}, [](HttpExchange& exchange) -> asio::awaitable<void> {
        proto::HttpResponse response = proto::text_response("x");
        response.headers.add("x-note", "a\r\nSet-Cookie: b");
        co_await exchange.send(std::move(response));
    });
    RawSocket socket = server.connect();
    socket.send(get("/"));
    EXPECT_THAT(socket.read_answer(), HasSubstr("x-note: a??Set-Cookie: b\r\n"));
}

TEST(HttpServerTest, AnswersPipelinedRequestsInOrder) {
    RunningServer server({}, echo);
    RawSocket socket = server.connect();
    socket.send(get("/1") + post("Content-Length: 3\r\n", "two") + get("/3"));
    EXPECT_THAT(socket.read_answer(), HasSubstr("GET /1?"));
    EXPECT_THAT(socket.read_answer(), HasSubstr("\ntwo"));
    EXPECT_THAT(socket.read_answer(), HasSubstr("GET /3?"));
}

TEST(HttpServerTest, ReadsAtMost16KiBAheadOfARunningRequest) {
    asio::io_context* context = nullptr;
    Mailbox<int> started;
    std::optional<asio::steady_timer> gate;
    RunningServer server({}, [&](HttpExchange& exchange) -> asio::awaitable<void> {
        if (exchange.request().path == "/first") {
            started.put(1);
            boost::system::error_code ignored;
            co_await gate->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        }
        co_await echo(exchange);
    });
    context = &server.loop.context;
    server.loop.call([&] { gate.emplace(*context, std::chrono::hours(1)); });
    RawSocket socket = server.connect();
    socket.send(get("/first"));
    started.take();
    // 40 requests of about 1 KiB: more than may be read ahead, all answered in the end.
    std::string many;
    for (int i = 0; i < 40; ++i) {
        many += get("/" + std::to_string(i), "a: " + std::string(1000, 'b') + "\r\n");
    }
    socket.send(many);
    server.loop.call([&] { gate->cancel(); });
    EXPECT_THAT(socket.read_answer(), HasSubstr("GET /first?"));
    for (int i = 0; i < 40; ++i) {
        EXPECT_THAT(socket.read_answer(), HasSubstr("GET /" + std::to_string(i) + "?"));
    }
    server.loop.call([&] { gate.reset(); });
}

TEST(HttpServerTest, ClosesAfterTheLastAllowedRequestAndSaysSo) {
    HttpServerOptions options;
    options.requests_per_connection_max = 2;
    RunningServer server(std::move(options), echo);
    const std::string answers = server.exchange(get("/1") + get("/2") + get("/3"));
    EXPECT_THAT(answers, HasSubstr("/2?"));
    EXPECT_THAT(answers, Not(HasSubstr("/3?")));
    EXPECT_THAT(answers, HasSubstr("Connection: close\r\n"));
}

TEST(HttpServerTest, Http10ClosesUnlessKeepAliveIsAsked) {
    RunningServer server({}, echo);
    EXPECT_THAT(server.exchange("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"),
                HasSubstr("Connection: close\r\n"));
    RawSocket socket = server.connect();
    socket.send("GET / HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_THAT(socket.read_answer(), HasSubstr("Connection: keep-alive\r\n"));
    socket.send("GET /2 HTTP/1.0\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(socket.read_answer(), HasSubstr("/2?"));
}

TEST(HttpServerTest, SendsContinueOnlyAfterAdmissionAndLengthChecks) {
    HttpServerOptions options;
    options.admit = [](proto::HttpRequestHead& head) -> std::optional<proto::HttpResponse> {
        if (head.headers.contains("x-key")) return std::nullopt;
        return proto::error_response({proto::ErrorCode::kInvalidApiKey, "No.", {}, {}, {}});
    };
    RunningServer server(std::move(options), echo);
    RawSocket good = server.connect();
    good.send(post("x-key: 1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n"));
    EXPECT_EQ(good.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    good.send("abc");
    EXPECT_THAT(good.read_answer(), HasSubstr("\nabc"));
    const std::string refused =
        server.exchange(post("Expect: 100-continue\r\nContent-Length: 3\r\n"));
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(refused, HasSubstr("Connection: close\r\n"));
}

TEST(HttpServerTest, AnEarlyRefusalKeepsTheConnectionWhenTheBodyIsSmall) {
    HttpServerOptions options;
    options.admit = [](proto::HttpRequestHead& head) -> std::optional<proto::HttpResponse> {
        if (head.method == "GET") return std::nullopt;
        proto::ApiError error{proto::ErrorCode::kQueueFull, "Full.", {}, {}, 2};
        return proto::error_response(error);
    };
    RunningServer server(std::move(options), echo);
    RawSocket socket = server.connect();
    socket.send(post("Content-Length: 65536\r\n", std::string(65536, 'x')) + get("/next"));
    const std::string refused = socket.read_answer();
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 429"));
    EXPECT_THAT(refused, HasSubstr("Retry-After: 2\r\n"));
    EXPECT_THAT(socket.read_answer(), HasSubstr("/next?"));
    EXPECT_THAT(server.exchange(post("Content-Length: 65537\r\n")),
                HasSubstr("Connection: close\r\n"));
}

TEST(HttpServerTest, TheTicketOfAdmissionLivesAsLongAsTheRequest) {
    auto place = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = place;
    HttpServerOptions options;
    options.admit = [&](proto::HttpRequestHead& head) -> std::optional<proto::HttpResponse> {
        head.ticket = std::move(place);
        return std::nullopt;
    };
    RunningServer server(std::move(options), [&](HttpExchange& exchange) -> asio::awaitable<void> {
        EXPECT_FALSE(watched.expired());
        co_await echo(exchange);
    });
    RawSocket socket = server.connect();
    socket.send(get("/"));
    socket.read_answer();
    server.accesses.take();
    server.loop.call([] {});
    EXPECT_TRUE(watched.expired());
}

TEST(HttpServerTest, AChunkedBodyAsksForItsMemoryAsItComesAndEndsWhereThatIsRefused) {
    std::vector<std::size_t> asked;
    std::weak_ptr<int> held;
    HttpServerOptions options;
    options.admit = [&](proto::HttpRequestHead& head) -> std::optional<proto::HttpResponse> {
        const auto ticket = std::make_shared<int>(0);
        held = ticket;
        head.ticket = ticket;
        return std::nullopt;
    };
    options.grow_body = [&](const proto::HttpRequestHead&,
                            std::size_t bytes) -> std::optional<proto::HttpResponse> {
        asked.push_back(bytes);
        if (bytes <= 6000) return std::nullopt;
        return proto::error_response({proto::ErrorCode::kQueueFull, "No memory."});
    };
    RunningServer server(std::move(options), echo);
    const std::string head =
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    const std::string chunk = "3e8\r\n" + std::string(1000, 'x') + "\r\n";
    RawSocket good = server.connect();
    good.send(head + chunk + chunk + chunk + "0\r\n\r\n");
    EXPECT_THAT(good.read_answer(), HasSubstr("HTTP/1.1 200"));
    RawSocket greedy = server.connect();
    std::string much = head;
    for (int i = 0; i < 8; ++i)
        much += chunk;
    greedy.send(much);  // and no end
    const std::string answer = greedy.read_answer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 429 "));
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    (void)server.accesses.take();
    (void)server.accesses.take();
    const bool is_held = server.loop.call([&] { return !held.expired(); });
    EXPECT_FALSE(is_held) << "the memory is free while the client may still send";
    EXPECT_EQ(std::count_if(asked.begin(), asked.end(), [](std::size_t n) { return n > 6000; }), 1);
    EXPECT_LE(asked.size(), 10U) << "doubling, not a question for each piece";
}

TEST(HttpServerTest, ASlowHeadAndASlowBodyEndWith408) {
    HttpServerOptions options;
    options.header_read = 50ms;
    options.body_grace = 50ms;
    RunningServer server(std::move(options), echo);
    EXPECT_THAT(server.exchange("GET / HTTP/1.1\r\nHost: loc"), StartsWith("HTTP/1.1 408"));
    const std::string slow = server.exchange(post("Content-Length: 1000\r\n", "abc"));
    EXPECT_THAT(slow, StartsWith("HTTP/1.1 408"));
    EXPECT_THAT(slow, HasSubstr("request_timeout"));
    EXPECT_EQ(server.exchange(""), "");  // nobody to answer
}

TEST(HttpServerTest, AnIdleConnectionIsClosedQuietly) {
    HttpServerOptions options;
    options.keepalive_idle = 50ms;
    RunningServer server(std::move(options), echo);
    RawSocket socket = server.connect();
    socket.send(get("/"));
    socket.read_answer();
    EXPECT_EQ(socket.read_to_end(), "");
}

TEST(HttpServerTest, ABodyOfExactlyTheLimitIsAccepted) {
    HttpServerOptions options;
    options.body_limit = [](const proto::HttpRequestHead&) { return std::size_t{300'000}; };
    RunningServer server(std::move(options), echo);
    RawSocket socket = server.connect();
    socket.send(post("Content-Length: 300000\r\n", std::string(300'000, 'x')));
    EXPECT_THAT(socket.read_answer(), HasSubstr("Content-Length: 300012\r\n"));
}

TEST(HttpServerTest, AHandlerThatThrowsOrForgetsToAnswerGives500) {
    RunningServer server({}, [](HttpExchange& exchange) -> asio::awaitable<void> {
        if (exchange.request().path == "/throw") throw std::runtime_error("broken");
        co_return;
    });
    RawSocket socket = server.connect();
    socket.send(get("/throw") + get("/forget"));
    EXPECT_THAT(socket.read_answer(), HasSubstr("internal_error"));
    EXPECT_EQ(status_of(socket.read_answer()), 500);
    EXPECT_EQ(server.accesses.take().fault, "broken");
}

TEST(HttpServerTest, CountsConnectionsAndTurnsAwayThoseOverTheLimit) {
    HttpServerOptions options;
    options.connections_max = 1;
    RunningServer server(std::move(options), echo);
    RawSocket first = server.connect();
    first.send(get("/"));
    first.read_answer();
    EXPECT_EQ(server.exchange(get("/")), "");
    EXPECT_EQ(server.stats().rejected_count_total, 1U);
    EXPECT_EQ(server.stats().connections, 1U);
}

TEST(HttpServerTest, AnAddressHasItsShareOfTheConnectionsAndOthersGoOn) {
    HttpServerOptions options;
    options.connections_per_address_max = 2;
    options.is_loopback_exempt = false;
    RunningServer server(std::move(options), echo);
    const std::uint16_t port = server.server->port();
    const auto is_served = [](RawSocket& socket) {
        socket.send(get("/"));
        return !socket.read_answer().empty();
    };
    RawSocket first = server.connect();
    EXPECT_TRUE(is_served(first));
    RawSocket second = server.connect();
    EXPECT_TRUE(is_served(second));
    EXPECT_EQ(server.exchange(get("/")), "") << "a third of the same address";
    EXPECT_EQ(server.stats().rejected_address_total, 1U);
    RawSocket other = RawSocket::from(2, port);
    EXPECT_TRUE(is_served(other)) << "another address has its own";
    EXPECT_TRUE(is_served(second)) << "those that are there stay";
    first.close();
    while (server.stats().connections != 2) {
    }
    RawSocket next = server.connect();
    EXPECT_TRUE(is_served(next)) << "a place is free again";
    EXPECT_EQ(server.stats().rejected_address_total, 1U);
    EXPECT_EQ(server.stats().rejected_count_total, 0U);
}

TEST(HttpServerTest, ThisMachineIsExemptFromTheShareOfAnAddress) {
    HttpServerOptions options;
    options.connections_per_address_max = 1;
    RunningServer server(std::move(options), echo);
    std::vector<RawSocket> all;
    for (int i = 0; i < 3; ++i) {
        all.push_back(server.connect());
        all.back().send(get("/"));
        EXPECT_NE(all.back().read_answer(), "");
    }
    EXPECT_EQ(server.stats().rejected_address_total, 0U);
}

TEST(HttpServerTest, ServesOnAnInheritedListeningSocket) {
    RawListener listener;
    const std::uint16_t port = listener.port();
    RawSocket early(port);  // waits in the backlog
    early.send(get("/early"));
    HttpServerOptions options;
    options.listen_fd = listener.release();
    RunningServer server(std::move(options), echo);
    EXPECT_EQ(server.server->port(), port);
    EXPECT_THAT(early.read_answer(), HasSubstr("/early?"));
}

TEST(HttpServerTest, ATakenPortThrowsAtOnce) {
    const RawListener listener;
    HttpServerOptions options;
    options.port = listener.port();
    asio::io_context context;
    EXPECT_THROW(proto::HttpServer(context.get_executor(), std::move(options), echo),
                 std::system_error);
}

// --- routes

class RouteTest : public testing::Test {
protected:
    RouteTest() {
        routes.add("GET", "/health", plain);
        routes.add("GET", "/v1/models/{id}", plain);
        routes.add("POST", "/echo", plain);
    }
    static asio::awaitable<void> plain(HttpExchange& exchange, std::string rest) {
        co_await exchange.send(proto::text_response("[" + rest + "]"));
    }
    std::string ask(std::string_view method, std::string_view target) {
        RawSocket socket = server.connect();
        socket.send(std::string(method) + " " + std::string(target) +
                    " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        return socket.read_answer();
    }
    proto::RouteTable routes;
    RunningServer server{{}, [this](HttpExchange& exchange) { return routes.serve(exchange); }};
};

TEST_F(RouteTest, MatchesExactPathsAndTheRestOfAPrefix) {
    EXPECT_THAT(ask("GET", "/health"), HasSubstr("[]"));
    EXPECT_THAT(ask("GET", "/v1/models/org/name"), HasSubstr("[org/name]"));
    EXPECT_EQ(status_of(ask("GET", "/v1/models/")), 404);
    EXPECT_EQ(routes.label("/v1/models/org/name"), "/v1/models/{id}");
    EXPECT_EQ(routes.label("/nothing"), "other");
}

TEST_F(RouteTest, AnUnknownPathIs404WithTheErrorBody) {
    const std::string answer = ask("GET", "//health");
    EXPECT_EQ(status_of(answer), 404);
    EXPECT_THAT(answer, HasSubstr("\"code\":\"unknown_url\""));
}

TEST_F(RouteTest, AWrongMethodIs405WithAllow) {
    for (const char* method : {"POST", "get", "TRACE", "BREW"}) {
        const std::string answer = ask(method, "/health");
        EXPECT_THAT(answer, HasSubstr("is not allowed here; allowed are GET, HEAD, OPTIONS."));
        EXPECT_EQ(status_of(answer), 405) << method;
        EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD, OPTIONS\r\n"));
        EXPECT_THAT(answer, HasSubstr("method_not_allowed"));
    }
    const std::string connect = ask("CONNECT", "example.com:443");
    EXPECT_EQ(status_of(connect), 405);
    EXPECT_THAT(connect, HasSubstr("Allow: GET, HEAD, OPTIONS, POST\r\n"));
}

TEST_F(RouteTest, OptionsIs204WithAllowAndNoLength) {
    RawSocket socket = server.connect();
    socket.send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const std::string answer = socket.read_until("\r\n\r\n");
    EXPECT_EQ(status_of(answer), 204);
    EXPECT_THAT(answer, HasSubstr("Allow: OPTIONS, POST\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr("Content-Length")));
    socket.send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(socket.read_until("\r\n\r\n"), HasSubstr("Allow: GET, HEAD, OPTIONS, POST\r\n"));
}

TEST_F(RouteTest, HeadHasTheLengthButNoBody) {
    RawSocket socket = server.connect();
    socket.send("HEAD /v1/models/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(socket.read_until("\r\n\r\n"), HasSubstr("Content-Length: 3\r\n"));
    socket.send(get("/health"));
    EXPECT_THAT(socket.read_answer(), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace proto_test

// The client against a real server and against raw sockets that misbehave: reuse, streaming reads,
// cancellation at every stage, each kind of error, and answers that break the gate's rules.
#include "proto/http_client.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/sse.h"
#include "tests/unit/proto/support/running_server.h"

namespace proto_test {
namespace {

namespace asio = boost::asio;
using proto::ClientErrorKind;
using proto::HttpClientRequest;
using proto::HttpExchange;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

/// What a whole exchange gave, as plain values for the test's thread.
struct Outcome {
    int status = 0;
    std::string body;
    std::optional<ClientErrorKind> failure;
    bool was_reused = false, was_sent = false;
    std::string message;

    void note(const proto::ClientError& error) {
        failure = error.kind;
        was_reused = error.was_reused;
        was_sent = error.was_sent;
        message = error.message;
    }
};

asio::awaitable<Outcome> fetch(proto::HttpClient& client, std::uint16_t port,
                               HttpClientRequest request) {
    Outcome outcome;
    auto answer = co_await client.request(proto::Endpoint{"127.0.0.1", port}, std::move(request));
    if (!answer) {
        outcome.note(answer.error());
        co_return outcome;
    }
    outcome.status = answer->status;
    auto body = co_await answer->read_all(64 * 1024 * 1024);
    if (body) {
        outcome.body = std::move(*body);
    } else {
        outcome.note(body.error());
    }
    co_return outcome;
}

HttpClientRequest get(std::string target) {
    HttpClientRequest request;
    request.target = std::move(target);
    return request;
}
HttpClientRequest post(std::string body) {
    HttpClientRequest request;
    request.method = "POST";
    request.target = "/echo";
    request.body = std::move(body);
    return request;
}

class HttpClientTest : public testing::Test {
protected:
    ~HttpClientTest() override {
        loop.call([&] { client.reset(); });
    }
    Outcome run(std::uint16_t port, HttpClientRequest request) {
        return loop.run(fetch(*client, port, std::move(request)));
    }
    std::future<Outcome> begin(std::uint16_t port, HttpClientRequest request) {
        return asio::co_spawn(loop.context, fetch(*client, port, std::move(request)),
                              asio::use_future);
    }
    /// The outcome when an upstream sends exactly these bytes and closes.
    Outcome answered_with(std::string_view bytes) {
        const RawListener listener;
        auto outcome = begin(listener.port(), get("/"));
        RawSocket peer = listener.accept();
        peer.read_until("\r\n\r\n");
        peer.send(bytes);
        peer.close();
        return outcome.get();
    }
    Loop loop;
    std::optional<proto::HttpClient> client{std::in_place, loop.context.get_executor()};
};

TEST_F(HttpClientTest, ReusesAConnectionForTheNextRequest) {
    RunningServer server({}, echo);
    for (int i = 0; i < 5; ++i) {
        const Outcome outcome = run(server.server->port(), post("body " + std::to_string(i)));
        EXPECT_EQ(outcome.status, 200);
        EXPECT_THAT(outcome.body, HasSubstr("\nbody " + std::to_string(i)));
    }
    EXPECT_EQ(server.stats().connections_total, 1U);
    const proto::HttpClientStats stats = loop.call([&] { return client->stats(); });
    EXPECT_EQ(stats.connects_total, 1U);
    EXPECT_EQ(stats.reuses_total, 4U);
    EXPECT_EQ(stats.connections_idle, 1U);
    EXPECT_EQ(stats.connections_busy, 0U);
}

TEST_F(HttpClientTest, SendsABodyLargerThanTheSocketBuffers) {
    proto::HttpServerOptions options;
    options.body_bytes_max = 64 * 1024 * 1024;
    RunningServer server(std::move(options), echo);
    const auto body = std::make_shared<const std::string>(16 * 1024 * 1024, 'x');
    HttpClientRequest request = post("");
    request.shared_body = body;
    EXPECT_EQ(run(server.server->port(), std::move(request)).body.size(), body->size() + 12);
}

TEST_F(HttpClientTest, AnIdleConnectionThatTheServerEndsLeavesThePool) {
    proto::HttpServerOptions options;
    options.keepalive_idle = 20ms;
    RunningServer server(std::move(options), echo);
    EXPECT_EQ(run(server.server->port(), post("1")).status, 200);
    while (loop.call([&] { return client->stats().connections_idle; }) != 0) {
        std::this_thread::yield();
    }
    EXPECT_EQ(run(server.server->port(), post("2")).status, 200);
}

TEST_F(HttpClientTest, ForgetClosesKeptConnections) {
    RunningServer server({}, echo);
    const std::uint16_t port = server.server->port();
    run(port, get("/"));
    loop.call([&] { client->forget({"127.0.0.1", port}); });
    EXPECT_EQ(loop.call([&] { return client->stats().connections_idle; }), 0U);
}

TEST_F(HttpClientTest, BodyBytesComeAsTheyArrive) {
    const RawListener listener;
    Mailbox<std::string> pieces;
    auto done = asio::co_spawn(
        loop.context,
        [&]() -> asio::awaitable<void> {
            auto answer =
                co_await client->request(proto::Endpoint{"127.0.0.1", listener.port()}, get("/"));
            while (answer) {
                const proto::ReadResult piece = co_await answer->read_some();
                pieces.put(piece.status == proto::ReadStatus::kData ? std::string(piece.data)
                                                                    : "<end>");
                if (piece.status != proto::ReadStatus::kData) break;
            }
        },
        asio::use_future);
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    peer.send("3\r\nab");
    EXPECT_EQ(pieces.take(), "ab");
    peer.send("c\r\n2;x=y\r\nde\r\n");
    EXPECT_EQ(pieces.take(), "cde");
    peer.send("0\r\n\r\n");
    EXPECT_EQ(pieces.take(), "<end>");
    done.get();
    EXPECT_EQ(loop.call([&] { return client->stats().connections_idle; }), 1U);
}

TEST_F(HttpClientTest, LastBytesSayThatTheyAre) {
    const RawListener listener;
    auto done = asio::co_spawn(
        loop.context,
        [&]() -> asio::awaitable<std::string> {
            auto answer =
                co_await client->request(proto::Endpoint{"127.0.0.1", listener.port()}, get("/"));
            std::string seen;
            for (bool is_last = false; !is_last;) {
                const proto::ReadResult piece = co_await answer->read_some();
                if (piece.status != proto::ReadStatus::kData) co_return "too late";
                is_last = piece.is_last;
                seen += std::string(piece.data) + (is_last ? "." : ",");
            }
            const proto::ReadResult end = co_await answer->read_some();
            co_return seen + (end.status == proto::ReadStatus::kEnd ? "end" : "?");
        },
        asio::use_future);
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
    EXPECT_EQ(done.get(), "ab.end");
}

TEST_F(HttpClientTest, AReadTimeoutLeavesTheAnswerReadable) {
    const RawListener listener;
    Mailbox<int> timed_out;
    auto done = asio::co_spawn(
        loop.context,
        [&]() -> asio::awaitable<std::string> {
            auto answer =
                co_await client->request(proto::Endpoint{"127.0.0.1", listener.port()}, get("/"));
            const proto::ReadResult none = co_await answer->read_some(1ms);
            EXPECT_EQ(none.status, proto::ReadStatus::kTimeout);
            timed_out.put(1);
            auto body = co_await answer->read_all(100);
            co_return body.value_or("failed");
        },
        asio::use_future);
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
    timed_out.take();
    peer.send("ok");
    EXPECT_EQ(done.get(), "ok");
}

// --- ends of every kind

TEST_F(HttpClientTest, APortWithoutListenerIsRefused) {
    std::uint16_t port = 0;
    {
        const RawListener listener;
        port = listener.port();
    }
    const Outcome outcome = run(port, get("/"));
    EXPECT_EQ(outcome.failure, ClientErrorKind::kRefused);
    EXPECT_FALSE(outcome.was_sent);
}

TEST_F(HttpClientTest, AcceptAndCloseIsClosedWithoutAnswer) {
    const RawListener listener;
    auto outcome = begin(listener.port(), post("x"));
    listener.accept().close();
    EXPECT_EQ(outcome.get().failure, ClientErrorKind::kClosedWithoutAnswer);
}

TEST_F(HttpClientTest, AnEndInsideHeadOrBodyIsAReset) {
    EXPECT_EQ(answered_with("HTTP/1.1 200 OK\r\nConte").failure, ClientErrorKind::kReset);
    EXPECT_EQ(answered_with("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab").failure,
              ClientErrorKind::kReset);
    EXPECT_EQ(answered_with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").failure,
              ClientErrorKind::kReset);
    const Outcome whole = answered_with("HTTP/1.1 200 OK\r\n\r\nto the end");
    EXPECT_EQ(whole.failure, std::nullopt);
    EXPECT_EQ(whole.body, "to the end");
}

TEST_F(HttpClientTest, NoHeadInTimeIsATimeout) {
    const RawListener listener;
    HttpClientRequest request = get("/");
    request.timeouts.head = 20ms;
    const Outcome outcome = run(listener.port(), std::move(request));
    EXPECT_EQ(outcome.failure, ClientErrorKind::kTimeout);
    EXPECT_TRUE(outcome.was_sent);
}

TEST_F(HttpClientTest, AHeadThatHasBegunAndDoesNotEndIsATimeout) {
    const RawListener listener;
    HttpClientRequest request = get("/");
    request.timeouts.write_stall = 20ms;
    auto outcome = begin(listener.port(), std::move(request));
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\nConte");
    EXPECT_EQ(outcome.get().failure, ClientErrorKind::kTimeout);
}

TEST_F(HttpClientTest, AFullPoolRefusesToConnect) {
    proto::HttpClientOptions options;
    options.connections_max = 1;
    loop.call([&] { client.emplace(loop.context.get_executor(), options); });
    const RawListener listener;
    auto first = begin(listener.port(), get("/"));
    RawSocket peer = listener.accept();
    EXPECT_EQ(run(listener.port(), get("/")).failure, ClientErrorKind::kPoolFull);
    peer.send("HTTP/1.1 204 No Content\r\n\r\n");
    EXPECT_EQ(first.get().status, 204);
}

TEST_F(HttpClientTest, RepeatsOnlySafeRequestsWhenAKeptConnectionTurnsOutDead) {
    const RawListener listener;
    for (const bool is_safe : {true, false}) {
        auto first = begin(listener.port(), get("/1"));
        RawSocket peer = listener.accept();
        peer.read_until("\r\n\r\n");
        peer.send("HTTP/1.1 204 No Content\r\n\r\n");
        EXPECT_EQ(first.get().status, 204);
        auto second = begin(listener.port(), is_safe ? get("/2") : post("2"));
        peer.read_until("\r\n\r\n");  // the request has arrived; then the peer goes
        peer.close();
        if (!is_safe) {
            const Outcome outcome = second.get();
            EXPECT_EQ(outcome.failure, ClientErrorKind::kClosedWithoutAnswer);
            EXPECT_TRUE(outcome.was_reused);
            continue;
        }
        RawSocket again = listener.accept();
        EXPECT_THAT(again.read_until("\r\n\r\n"), StartsWith("GET /2 HTTP/1.1\r\n"));
        again.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        EXPECT_EQ(second.get().status, 200);
    }
}

TEST_F(HttpClientTest, AnAnswerBeforeTheBodyWasSentIsTaken) {
    const RawListener listener;
    auto outcome = begin(listener.port(), post(std::string(32 * 1024 * 1024, 'x')));
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
    const Outcome refused = outcome.get();
    EXPECT_EQ(refused.status, 413);
    EXPECT_EQ(refused.body, "no");
    EXPECT_EQ(loop.call([&] { return client->stats().connections_idle; }), 0U);
}

// --- cancellation

class CancelTest : public HttpClientTest {
protected:
    std::shared_ptr<proto::CancelHandle> handle = std::make_shared<proto::CancelHandle>();
    HttpClientRequest request_with_handle() {
        HttpClientRequest request = get("/");
        request.cancel = handle;
        return request;
    }
    void cancel() {
        loop.call([&] { handle->cancel(); });
    }
};

TEST_F(CancelTest, BeforeTheHeadClosesTheUpstreamAtOnce) {
    const RawListener listener;
    auto outcome = begin(listener.port(), request_with_handle());
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    cancel();
    EXPECT_EQ(outcome.get().failure, ClientErrorKind::kCancelled);
    EXPECT_EQ(peer.read_to_end(), "");
}

TEST_F(CancelTest, InTheBodyClosesTheUpstreamAtOnce) {
    const RawListener listener;
    auto outcome = begin(listener.port(), request_with_handle());
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
    loop.call([] {});
    cancel();
    EXPECT_EQ(outcome.get().failure, ClientErrorKind::kCancelled);
    EXPECT_EQ(peer.read_to_end(), "");
}

TEST_F(CancelTest, BeforeItBeganNothingIsConnected) {
    cancel();
    const RawListener listener;
    EXPECT_EQ(run(listener.port(), request_with_handle()).failure, ClientErrorKind::kCancelled);
    EXPECT_EQ(loop.call([&] { return client->stats().connects_total; }), 0U);
}

TEST_F(CancelTest, AfterTheEndDoesNothing) {
    RunningServer server({}, echo);
    EXPECT_EQ(run(server.server->port(), request_with_handle()).status, 200);
    cancel();
    EXPECT_EQ(run(server.server->port(), get("/")).status, 200);
}

TEST_F(CancelTest, DestroyingTheClientEndsItsRequests) {
    const RawListener listener;
    auto outcome = begin(listener.port(), get("/"));
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    loop.call([&] { client.reset(); });
    EXPECT_EQ(outcome.get().failure, ClientErrorKind::kCancelled);
}

TEST_F(CancelTest, ADroppedAnswerClosesTheConnection) {
    const RawListener listener;
    auto done = asio::co_spawn(
        loop.context,
        [&]() -> asio::awaitable<int> {
            auto answer =
                co_await client->request(proto::Endpoint{"127.0.0.1", listener.port()}, get("/"));
            co_return answer ? answer->status : 0;
        },
        asio::use_future);
    RawSocket peer = listener.accept();
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
    EXPECT_EQ(done.get(), 200);
    EXPECT_EQ(peer.read_to_end(), "");
}

// --- answers that break the rules

TEST_F(HttpClientTest, MalformedAnswersAreRefusedAndTheirConnectionIsNotReused) {
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    const std::vector<std::string> answers = {
        "garbage\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 700 No\r\n\r\n",
        ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ok + "Content-Length: -2\r\n\r\nab",
        ok + "Transfer-Encoding: gzip\r\n\r\nab",
        ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ok + "A: b\r\n c\r\n\r\n",
        ok + "no colon\r\n\r\n",
        ok + "A: " + std::string(40'000, 'x') + "\r\n\r\n",
        ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    };
    for (const std::string& answer : answers) {
        EXPECT_EQ(answered_with(answer).failure, ClientErrorKind::kMalformed)
            << answer.substr(0, 80);
    }
    const proto::HttpClientStats stats = loop.call([&] { return client->stats(); });
    EXPECT_EQ(stats.malformed_total, answers.size());
    EXPECT_EQ(stats.connections_idle, 0U);
    EXPECT_EQ(stats.connections_busy, 0U);
}

TEST_F(HttpClientTest, SkipsEightInterimAnswersButNotNine) {
    const std::string interim = "HTTP/1.1 102 Processing\r\n\r\n";
    std::string bytes;
    for (int i = 0; i < 8; ++i)
        bytes += interim;
    const std::string final_answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    EXPECT_EQ(answered_with(bytes + final_answer).body, "ok");
    EXPECT_EQ(answered_with(bytes + interim + final_answer).failure, ClientErrorKind::kMalformed);
}

TEST_F(HttpClientTest, AnAnswerLongerThanDeclaredIsMalformed) {
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    for (const std::string& answer :
         {ok + "Content-Length: 2\r\n\r\nokEXTRA", ok + "Content-Length: 0\r\n\r\nEXTRA",
          ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nEXTRA",
          std::string("HTTP/1.1 204 No Content\r\n\r\nEXTRA")}) {
        EXPECT_EQ(answered_with(answer).failure, ClientErrorKind::kMalformed) << answer;
    }
    const proto::HttpClientStats stats = loop.call([&] { return client->stats(); });
    EXPECT_EQ(stats.malformed_total, 4U);
    EXPECT_EQ(stats.connections_idle, 0U);
    EXPECT_EQ(stats.connections_busy, 0U);
}

// --- the blocking helper

TEST(HttpCallTest, GetsABodyAndReportsFailures) {
    RunningServer server({}, echo);
    const std::string url = "http://127.0.0.1:" + std::to_string(server.server->port());
    const proto::HttpResult good = proto::http_get(url + "/x?y=z", 10s);
    EXPECT_EQ(good.status, 200);
    EXPECT_EQ(good.body, "GET /x?y=z\n");
    const proto::HttpResult by_name =
        proto::http_get("http://localhost:" + std::to_string(server.server->port()), 10s);
    EXPECT_EQ(by_name.status, 200);
    EXPECT_EQ(proto::http_get("ftp://x", 1s).status, 0);
    const RawListener silent;
    const proto::HttpResult late =
        proto::http_get("http://127.0.0.1:" + std::to_string(silent.port()) + "/", 20ms);
    EXPECT_EQ(late.status, 0);
    EXPECT_EQ(late.error.kind, ClientErrorKind::kTimeout);
}

TEST(HttpCallTest, HandsOutAStreamAsItComes) {
    RunningServer server({}, [](HttpExchange& exchange) -> asio::awaitable<void> {
        co_await exchange.start_stream(200, {});
        for (int i = 0; i < 3; ++i) {
            const std::string event = proto::sse_data(std::to_string(i));
            co_await exchange.write(event);
        }
        co_await exchange.finish();
    });
    proto::BlockingRequest request;
    request.url = "http://127.0.0.1:" + std::to_string(server.server->port()) + "/";
    std::string text;
    request.on_body = [&](int, std::string_view bytes) {
        text += bytes;
        return true;
    };
    EXPECT_EQ(proto::http_call(std::move(request)).status, 200);
    EXPECT_EQ(text, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
}

TEST(HttpCallTest, SplitsAddresses) {
    const auto parts = proto::parse_http_url("http://[::1]:8080/a?b");
    ASSERT_TRUE(parts);
    EXPECT_EQ(parts->endpoint.text(), "[::1]:8080");
    EXPECT_EQ(parts->target, "/a?b");
    EXPECT_EQ(proto::parse_http_url("http://host")->endpoint.port, 80);
    for (const char* bad : {"https://host/", "http://", "http://host:x/", "http://host:99999/"}) {
        EXPECT_FALSE(proto::parse_http_url(bad)) << bad;
    }
}

}  // namespace
}  // namespace proto_test

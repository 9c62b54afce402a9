// Streams and endings: chunked answers, back-pressure, disconnect notice, graceful stop, running
// out of descriptors. Everything waits for events; nothing waits for time to pass.
#include <atomic>
#include <thread>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/sse.h"
#include "tests/unit/proto/support/running_server.h"

namespace proto_test {
namespace {

namespace asio = boost::asio;
using proto::HttpExchange;
using proto::HttpServerOptions;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Waits inside a handler until the client has left.
asio::awaitable<void> wait_for_disconnect(HttpExchange& exchange) {
    asio::steady_timer never(exchange.executor(), std::chrono::hours(1));
    exchange.on_disconnect([&] { never.cancel(); });
    boost::system::error_code ignored;
    if (!exchange.is_client_gone()) {
        co_await never.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    exchange.on_disconnect({});
}

asio::awaitable<void> stream_three(HttpExchange& exchange) {
    proto::Headers headers{{"Content-Type", "text/event-stream"}};
    co_await exchange.start_stream(200, std::move(headers));
    for (const char* text : {"one", "two", "three"}) {
        const std::string event = proto::sse_data(text);
        co_await exchange.write(event);
    }
    co_await exchange.finish();
}

TEST(HttpStreamTest, ChunksEachWriteAndKeepsTheConnection) {
    RunningServer server({}, stream_three);
    RawSocket socket = server.connect();
    for (int i = 0; i < 2; ++i) {
        socket.send(kGet);
        const std::string head = socket.read_until("\r\n\r\n");
        EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
        EXPECT_THAT(head, Not(HasSubstr("Content-Length")));
        EXPECT_EQ(socket.read_until("0\r\n\r\n"),
                  "b\r\ndata: one\n\n\r\nb\r\ndata: two\n\n\r\nd\r\ndata: three\n\n\r\n0\r\n\r\n");
    }
}

TEST(HttpStreamTest, TheEndOfABodyLeavesWithItsLastBytes) {
    const auto handler = [](HttpExchange& exchange) -> asio::awaitable<void> {
        co_await exchange.start_stream(200, {}, "one;");
        co_await exchange.finish("two;");
        EXPECT_EQ(exchange.body_bytes_sent(), exchange.request().method == "HEAD" ? 0U : 8U);
    };
    RunningServer server({}, handler);
    RawSocket socket = server.connect();
    socket.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(socket.read_until("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
    for (int i = 0; i < 2; ++i) {
        socket.send(kGet);
        socket.read_until("\r\n\r\n");
        EXPECT_EQ(socket.read_until("0\r\n\r\n"), "4\r\none;\r\n4\r\ntwo;\r\n0\r\n\r\n");
    }
    EXPECT_THAT(server.exchange("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"),
                EndsWith("\r\n\r\none;two;"));
}

TEST(HttpStreamTest, Http10GetsTheBareBodyAndAClose) {
    RunningServer server({}, stream_three);
    const std::string answer = server.exchange("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(answer, EndsWith("\r\n\r\ndata: one\n\ndata: two\n\ndata: three\n\n"));
}

TEST(HttpStreamTest, EachWriteLeavesAtOnce) {
    // The handler goes on only when the test has seen the event before.
    std::optional<asio::steady_timer> turn;
    RunningServer server({}, [&](HttpExchange& exchange) -> asio::awaitable<void> {
        co_await exchange.start_stream(200, {});
        for (int i = 0; i < 3; ++i) {
            const std::string text = "event " + std::to_string(i) + ";";
            co_await exchange.write(text);
            boost::system::error_code ignored;
            turn->expires_after(std::chrono::hours(1));
            co_await turn->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        }
        co_await exchange.finish();
    });
    server.loop.call([&] { turn.emplace(server.loop.context); });
    RawSocket socket = server.connect();
    socket.send(kGet);
    for (int i = 0; i < 3; ++i) {
        EXPECT_THAT(socket.read_until(";"), EndsWith("event " + std::to_string(i) + ";"));
        server.loop.call([&] { turn->cancel(); });
    }
    EXPECT_THAT(socket.read_until("0\r\n\r\n"), EndsWith("0\r\n\r\n"));
    server.loop.call([&] { turn.reset(); });
}

TEST(HttpStreamTest, ASlowClientHoldsTheWriterBack) {
    constexpr std::size_t kPieceBytes = 256 * 1024;
    constexpr int kPieces = 128;  // 32 MiB: more than any socket buffer of loopback
    std::atomic<int> written{0};
    Mailbox<bool> done;
    RunningServer server({}, [&](HttpExchange& exchange) -> asio::awaitable<void> {
        const std::string piece(kPieceBytes, 'x');
        bool is_there = co_await exchange.start_stream(200, {});
        for (int i = 0; i < kPieces && is_there; ++i) {
            is_there = co_await exchange.write(piece);
            if (is_there) ++written;
        }
        if (is_there) co_await exchange.finish();
        done.put(is_there);
    });
    RawSocket socket = server.connect();
    socket.set_receive_buffer(64 * 1024);
    socket.send(kGet);
    socket.read_until("\r\n\r\n");
    // The loop still turns while the writer waits.
    EXPECT_EQ(server.stats().requests_running, 1U);
    EXPECT_LT(written.load(), kPieces);
    const std::string body = socket.read_until("\r\n0\r\n\r\n");
    EXPECT_GT(body.size(), kPieceBytes * kPieces);
    EXPECT_TRUE(done.take());
}

TEST(HttpStreamTest, WhenTooMuchIsUnsentWhoHasTakenNothingForLongestIsCutOff) {
    constexpr std::size_t kBodyBytes = std::size_t{32} << 20;  // more than any socket buffer
    HttpServerOptions options;
    options.unsent_bytes_max = std::size_t{40} << 20;
    Mailbox<bool> began;
    Mailbox<bool> ended;
    RunningServer server(std::move(options), [&](HttpExchange& exchange) -> asio::awaitable<void> {
        proto::HttpResponse answer = proto::text_response(std::string(kBodyBytes, 'x'));
        began.put(true);  // and in the same turn the socket is full
        const bool is_there = co_await exchange.send(std::move(answer));
        ended.put(is_there);
    });
    RawSocket first = server.connect();
    first.set_receive_buffer(64 * 1024);
    first.send(kGet);
    EXPECT_TRUE(began.take());
    RawSocket second = server.connect();
    second.set_receive_buffer(64 * 1024);
    second.send(kGet);
    EXPECT_TRUE(began.take());
    EXPECT_FALSE(ended.take()) << "the first";
    EXPECT_LT(first.read_to_end().size(), kBodyBytes);
    EXPECT_GT(second.read_answer().size(), kBodyBytes);
    EXPECT_TRUE(ended.take());
    EXPECT_EQ(server.stats().write_stalls_total, 1U);
    const std::size_t left = server.loop.call([&] { return server.server->stats().unsent_bytes; });
    EXPECT_EQ(left, 0U);
}

TEST(HttpStreamTest, AClientThatTakesNothingIsCutOff) {
    HttpServerOptions options;
    options.write_stall = 50ms;
    Mailbox<bool> done;
    RunningServer server(std::move(options), [&](HttpExchange& exchange) -> asio::awaitable<void> {
        bool heard = false;
        exchange.on_disconnect([&] { heard = true; });
        const std::string piece(1024 * 1024, 'x');
        bool is_there = co_await exchange.start_stream(200, {});
        while (is_there)
            is_there = co_await exchange.write(piece);
        done.put(heard);
    });
    const RawSocket socket = server.connect();
    socket.send(kGet);
    EXPECT_TRUE(done.take());
    EXPECT_EQ(server.stats().write_stalls_total, 1U);
}

// --- disconnect

class DisconnectTest : public testing::Test {
protected:
    Mailbox<int> started, left;
    RunningServer server{{}, [this](HttpExchange& exchange) -> asio::awaitable<void> {
                             if (exchange.request().path == "/stream") {
                                 co_await exchange.start_stream(200, {});
                             }
                             started.put(1);
                             co_await wait_for_disconnect(exchange);
                             const bool can_write =
                                 exchange.is_started() && co_await exchange.write("x");
                             left.put(can_write ? -1 : 1);
                         }};
};

TEST_F(DisconnectTest, FinIsHeardWhileTheHandlerRuns) {
    RawSocket socket = server.connect();
    socket.send(kGet);
    started.take();
    socket.close();
    EXPECT_EQ(left.take(), 1);
    EXPECT_TRUE(server.accesses.take().client_aborted);
}

TEST_F(DisconnectTest, RstIsHeardWhileAStreamRuns) {
    RawSocket socket = server.connect();
    socket.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    started.take();
    socket.reset();
    EXPECT_EQ(left.take(), 1);
}

TEST_F(DisconnectTest, HalfCloseCountsAsLeaving) {
    const RawSocket socket = server.connect();
    socket.send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    started.take();
    socket.shutdown_send();
    EXPECT_EQ(left.take(), 1);
    EXPECT_THAT(socket.read_to_end(), Not(HasSubstr("0\r\n\r\n")));
}

TEST_F(DisconnectTest, PipelinedBytesDoNotHideTheFin) {
    RawSocket socket = server.connect();
    socket.send(kGet + kGet + "GET /");
    started.take();
    socket.close();
    EXPECT_EQ(left.take(), 1);
}

TEST_F(DisconnectTest, AFinThatCameBeforeTheHandlerIsHeardAtOnce) {
    const RawSocket socket = server.connect();
    socket.send(kGet);
    socket.shutdown_send();
    EXPECT_EQ(left.take(), 1);
}

TEST_F(DisconnectTest, AbortAllReachesRunningHandlers) {
    const RawSocket socket = server.connect();
    socket.send(kGet);
    started.take();
    server.loop.call([&] { server.server->abort_all(); });
    EXPECT_EQ(left.take(), 1);
    EXPECT_EQ(socket.read_to_end(), "");
}

TEST(HttpStreamTest, AnEndBehindMoreThanMayBeReadAheadIsHeard) {
    Mailbox<int> started, left;
    RunningServer server({}, [&](HttpExchange& exchange) -> asio::awaitable<void> {
        started.put(1);
        co_await wait_for_disconnect(exchange);
        left.put(1);
    });
    for (const bool by_reset : {false, true}) {
        RawSocket socket = server.connect();
        socket.send(kGet);
        started.take();
        socket.send(std::string(20'000, 'x'));  // 16 KiB of it are read
        if (by_reset) {
            socket.reset();
        } else {
            socket.shutdown_send();
        }
        EXPECT_EQ(left.take(), 1);
    }
}

TEST(HttpStreamTest, AHandlerThatLeavesAStreamOpenBreaksItVisibly) {
    RunningServer server({}, [](HttpExchange& exchange) -> asio::awaitable<void> {
        co_await exchange.start_stream(200, {});
        co_await exchange.write("part");
    });
    const std::string answer = server.exchange(kGet);
    EXPECT_THAT(answer, HasSubstr("part"));
    EXPECT_THAT(answer, Not(HasSubstr("0\r\n\r\n")));
}

// --- stopping

TEST(HttpStopTest, LetsRunningRequestsFinishAndClosesIdleConnections) {
    Mailbox<int> started;
    std::optional<asio::steady_timer> gate;
    RunningServer server({}, [&](HttpExchange& exchange) -> asio::awaitable<void> {
        started.put(1);
        boost::system::error_code ignored;
        co_await gate->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        co_await echo(exchange);
    });
    server.loop.call([&] { gate.emplace(server.loop.context, std::chrono::hours(1)); });
    const RawSocket idle = server.connect();
    RawSocket busy = server.connect();
    busy.send(kGet);
    started.take();
    auto stopped = asio::co_spawn(server.loop.context, server.server->stop(10s), asio::use_future);
    EXPECT_EQ(idle.read_to_end(), "");
    server.loop.call([&] { gate->cancel(); });
    const std::string answer = busy.read_to_end();
    EXPECT_EQ(status_of(answer), 200);
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    stopped.get();
    EXPECT_EQ(server.stats().connections, 0U);
    server.loop.call([&] { gate.reset(); });
}

TEST(HttpStopTest, CutsWhatIsLeftAtTheDeadline) {
    Mailbox<int> started, left;
    RunningServer server({}, [&](HttpExchange& exchange) -> asio::awaitable<void> {
        started.put(1);
        co_await wait_for_disconnect(exchange);
        left.put(1);
    });
    const RawSocket busy = server.connect();
    busy.send(kGet);
    started.take();
    server.loop.run(server.server->stop(20ms));
    EXPECT_EQ(left.take(), 1);
    EXPECT_EQ(server.stats().connections, 0U);
}

/// No descriptor can be made while this lives.
class NoDescriptors {
public:
    NoDescriptors() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit none_free = before_;
        const int lowest_free = ::dup(0);
        ::close(lowest_free);
        none_free.rlim_cur = static_cast<rlim_t>(lowest_free);
        ::setrlimit(RLIMIT_NOFILE, &none_free);
    }
    ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;

private:
    rlimit before_{};
};

TEST(HttpStopTest, AcceptPausesWithoutSpinningWhenDescriptorsRunOut) {
    HttpServerOptions options;
    options.accept_pause = std::chrono::hours(1);  // only a freed descriptor can end the pause
    RunningServer server(std::move(options), echo);
    RawSocket first = server.connect();
    first.send(kGet);
    first.read_answer();
    RawSocket late = RawSocket::unconnected();
    std::optional<NoDescriptors> none(std::in_place);
    late.connect(server.server->port());
    late.send(kGet);
    while (server.stats().accept_pauses_total == 0)
        std::this_thread::yield();
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(server.stats().accept_pauses_total, 1U);
    first.close();
    EXPECT_EQ(status_of(late.read_answer()), 200);
    none.reset();
    EXPECT_EQ(server.stats().accept_pauses_total, 1U);
}

TEST(HttpStopTest, OneDescriptorIsKeptForWhatMustBeServed) {
    HttpServerOptions options;
    options.reserve_for = [](const proto::HttpRequestHead& head) { return head.path == "/kept"; };
    options.reserve_after = 0ms;
    options.accept_pause = 1ms;
    RunningServer server(std::move(options), echo);
    RawSocket first = server.connect();
    first.send(kGet);
    first.read_answer();
    std::vector<RawSocket> late;
    for (int i = 0; i < 4; ++i)
        late.push_back(RawSocket::unconnected());
    {
        const NoDescriptors none;
        for (int i = 0; i < 3; ++i) {  // one after the other, again and again
            const bool is_kept = i != 1;
            late[static_cast<std::size_t>(i)].connect(server.server->port());
            late[static_cast<std::size_t>(i)].send(
                is_kept ? "GET /kept HTTP/1.1\r\nHost: localhost\r\n\r\n" : kGet);
            const std::string answer = late[static_cast<std::size_t>(i)].read_to_end();
            EXPECT_EQ(status_of(answer), is_kept ? 200 : 429);
            EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
        }
        EXPECT_EQ(server.stats().rejected_descriptors_total, 1U);
        // Who says nothing does not keep it from others.
        late[3].connect(server.server->port());
        EXPECT_EQ(late[3].read_to_end(), "");
    }
    RawSocket later = server.connect();
    later.send(kGet);
    EXPECT_EQ(status_of(later.read_answer()), 200);
    first.send(kGet);
    EXPECT_EQ(status_of(first.read_answer()), 200) << "those inside are not concerned";
}

}  // namespace
}  // namespace proto_test

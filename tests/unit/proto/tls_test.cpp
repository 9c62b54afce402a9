// The server over TLS: who may connect, what the session does to streams, cancellation and ends,
// and what happens to clients that are slow, old, or not TLS at all. Real sockets, OpenSSL as the
// client, an issuer made by the test.
#include "proto/tls.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/support/tls/tls_client.h"
#include "tests/unit/proto/support/running_server.h"

namespace proto_test {
namespace {

namespace asio = boost::asio;
using proto::HttpExchange;
using proto::HttpServerOptions;
using test_tls::TlsClient;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

struct Issued {
    explicit Issued(const test_tls::IssuedFiles& files)
        : certificate(folder.write("cert.pem", files.certificate)),
          key(folder.write("key.pem", files.key)) {}

    test_support::TempFolder folder;
    std::string certificate, key;
};

std::shared_ptr<const proto::TlsContext> context_of(const test_tls::IssuedFiles& files) {
    const Issued issued(files);
    auto context = proto::TlsContext::load(issued.certificate, issued.key);
    EXPECT_TRUE(context.has_value()) << context.error();
    return *context;
}

struct TlsServer {
    explicit TlsServer(proto::HttpHandler handler = echo, HttpServerOptions options = {})
        : server(with_tls(std::move(options), ca), std::move(handler)) {}

    static HttpServerOptions with_tls(HttpServerOptions options, const test_tls::TestCa& ca) {
        options.tls = context_of(ca.issue("first"));
        return options;
    }
    [[nodiscard]] std::uint16_t port() const { return server.server->port(); }

    test_tls::TestCa ca;
    RunningServer server;
};

std::string get(std::string_view path, std::string_view fields = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) +
           "\r\n";
}

TEST(TlsTest, AClientOfEitherVersionIsServedOnAKeptConnection) {
    TlsServer tls;
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
        TlsClient client(tls.port(), tls.ca, {.version_max = version, .protocol = "http/1.1"});
        ASSERT_EQ(client.failure(), "");
        EXPECT_EQ(client.version(), version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
        EXPECT_EQ(client.protocol(), "http/1.1");
        for (int i = 0; i < 3; ++i) {
            client.send(get("/a"));
            EXPECT_THAT(client.read_answer(), HasSubstr("GET /a?\n"));
        }
        client.send(get("/b", "Connection: close\r\n"));
        EXPECT_THAT(client.read_to_end(), HasSubstr("GET /b?\n"));
        EXPECT_TRUE(client.was_ended_properly());
    }
}

TEST(TlsTest, OldVersionsAndOtherProtocolsAreRefused) {
    TlsServer tls;
    TlsClient old(tls.port(), tls.ca, {.version_max = TLS1_1_VERSION});
    EXPECT_NE(old.failure(), "");
    TlsClient other(tls.port(), tls.ca, {.protocol = "h2"});
    EXPECT_THAT(other.failure(), HasSubstr("no application protocol"));
    const test_tls::TestCa stranger;
    TlsClient distrustful(tls.port(), stranger);
    EXPECT_THAT(distrustful.failure(), HasSubstr("certificate verify failed"));
    TlsClient good(tls.port(), tls.ca);
    good.send(get("/", "Connection: close\r\n"));
    EXPECT_THAT(good.read_to_end(), StartsWith("HTTP/1.1 200 OK"));
    EXPECT_EQ(tls.server.stats().tls_failures_total, 3U);
}

TEST(TlsTest, PlainHttpGetsAnAnswerThatSaysSoAndAnEnd) {
    TlsServer tls;
    const std::string answer = tls.server.exchange(get("/"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(answer, HasSubstr("https://"));
    EXPECT_EQ(tls.server.accesses.take().gate, proto::GateReason::kPlainOnTls);
    EXPECT_EQ(tls.server.exchange(std::string(400, '\0')).substr(0, 8), "") << "no TLS, no HTTP";
}

TEST(TlsTest, ASlowHandshakeIsCutByTheTimerOfTheHead) {
    HttpServerOptions options;
    options.header_read = 50ms;
    TlsServer tls(echo, std::move(options));
    const RawSocket silent = tls.server.connect();
    const RawSocket begun = tls.server.connect();
    begun.send(std::string("\x16\x03\x01\x02\x00\x01", 6));  // the first bytes of a hello
    EXPECT_EQ(silent.read_to_end(), "");
    EXPECT_EQ(begun.read_to_end(), "");
    EXPECT_EQ(tls.server.stats().connections_total, 2U);
}

TEST(TlsTest, BodiesOfAnySizePassBothWaysByteForByte) {
    HttpServerOptions options;
    options.body_bytes_max = 8 << 20;
    TlsServer tls(
        [](HttpExchange& exchange) -> asio::awaitable<void> {
            std::string body = std::move(exchange.request().body);
            co_await exchange.send(proto::text_response(std::move(body)));
        },
        std::move(options));
    TlsClient client(tls.port(), tls.ca);
    for (const std::size_t size : {1UL, 16'383UL, 16'384UL, 16'385UL, 3'000'000UL}) {
        std::string body(size, '\0');
        for (std::size_t i = 0; i < size; ++i)
            body[i] = static_cast<char>(i * 31 + i / 251);
        client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                    std::to_string(size) + "\r\n\r\n" + body);
        const std::string answer = client.read_answer();
        const std::size_t begin = answer.find("\r\n\r\n");
        ASSERT_NE(begin, std::string::npos) << size;
        EXPECT_TRUE(answer.substr(begin + 4) == body) << size;
    }
}

TEST(TlsTest, EachEventOfAStreamArrivesBeforeTheNextIsMade) {
    Mailbox<int> read_by_client;
    TlsServer tls([&](HttpExchange& exchange) -> asio::awaitable<void> {
        proto::Headers headers;
        (void)co_await exchange.start_stream(200, std::move(headers));
        for (int i = 0; i < 3; ++i) {
            const std::string event = "data: " + std::to_string(i) + "\n\n";
            (void)co_await exchange.write(event);
            asio::steady_timer look(exchange.executor());
            while (read_by_client.empty()) {
                look.expires_after(1ms);
                (void)co_await look.async_wait(asio::use_awaitable);
            }
            (void)read_by_client.take();
        }
        (void)co_await exchange.finish();
    });
    TlsClient client(tls.port(), tls.ca);
    client.send(get("/"));
    for (int i = 0; i < 3; ++i) {
        EXPECT_THAT(client.read_until("\n\n"), HasSubstr("data: " + std::to_string(i)));
        read_by_client.put(i);
    }
    EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("0\r\n\r\n"));
}

TEST(TlsTest, KeysMayChangeInTheMiddle) {
    TlsServer tls;
    TlsClient client(tls.port(), tls.ca, {.version_max = TLS1_3_VERSION});
    client.send(get("/1"));
    EXPECT_THAT(client.read_answer(), HasSubstr("GET /1?"));
    client.update_keys();
    client.send(get("/2"));
    EXPECT_THAT(client.read_answer(), HasSubstr("GET /2?"));
}

TEST(TlsTest, EveryWayToLeaveIsHeardWhileAHandlerRuns) {
    Mailbox<int> started;
    Mailbox<int> left;
    TlsServer tls([&](HttpExchange& exchange) -> asio::awaitable<void> {
        asio::steady_timer forever(exchange.executor(), asio::steady_timer::time_point::max());
        exchange.on_disconnect([&] {
            left.put(1);
            forever.cancel();
        });
        started.put(1);
        boost::system::error_code ended;
        co_await forever.async_wait(asio::redirect_error(asio::use_awaitable, ended));
    });
    const std::vector<void (*)(TlsClient&)> ways = {
        [](TlsClient& client) { client.send_close_notify(); },
        [](TlsClient& client) { client.shutdown_send(); },
        [](TlsClient& client) { client.reset(); },
    };
    for (const auto leave : ways) {
        TlsClient client(tls.port(), tls.ca);
        client.send(get("/"));
        EXPECT_EQ(started.take(), 1);
        leave(client);
        EXPECT_EQ(left.take(), 1);
    }
}

TEST(TlsTest, AClientThatReadsNothingIsCut) {
    HttpServerOptions options;
    options.write_stall = 50ms;
    Mailbox<int> ended;
    TlsServer tls(
        [&](HttpExchange& exchange) -> asio::awaitable<void> {
            proto::Headers headers;
            (void)co_await exchange.start_stream(200, std::move(headers));
            const std::string much(100'000, 'x');
            bool is_there = true;
            while (is_there)
                is_there = co_await exchange.write(much);
            ended.put(1);
        },
        std::move(options));
    TlsClient client(tls.port(), tls.ca);
    client.send(get("/"));
    EXPECT_EQ(ended.take(), 1);
    EXPECT_EQ(tls.server.stats().write_stalls_total, 1U);
}

TEST(TlsTest, AnotherCertificateIsForNewConnectionsOnly) {
    TlsServer tls;
    TlsClient before(tls.port(), tls.ca);
    EXPECT_EQ(before.server_name(), "first");
    const auto second = context_of(tls.ca.issue("second"));
    tls.server.loop.call([&] { tls.server.server->set_tls(second); });
    TlsClient after(tls.port(), tls.ca);
    EXPECT_EQ(after.server_name(), "second");
    for (TlsClient* client : {&before, &after}) {
        client->send(get("/"));
        EXPECT_THAT(client->read_answer(), StartsWith("HTTP/1.1 200 OK"));
    }
}

TEST(TlsContextTest, FilesThatDoNotFitAreRefusedByName) {
    const test_tls::TestCa ca;
    const Issued one(ca.issue("one"));
    const Issued two(ca.issue("two"));
    const test_support::TempFolder folder;
    const std::string junk = folder.write("junk.pem", "no PEM at all");
    const auto error = [](const std::string& certificate, const std::string& key) {
        const auto context = proto::TlsContext::load(certificate, key);
        return context ? std::string() : context.error();
    };
    EXPECT_EQ(error(one.certificate, one.key), "");
    EXPECT_THAT(error(one.certificate, two.key), HasSubstr(two.key));
    EXPECT_THAT(error(one.certificate, two.key), HasSubstr("was made for another key"));
    EXPECT_THAT(error(junk, one.key), HasSubstr("certificate '" + junk));
    EXPECT_THAT(error(junk, one.key), HasSubstr("there is no certificate in it; wanted"));
    EXPECT_THAT(error(one.certificate, junk), HasSubstr("key '" + junk));
    EXPECT_THAT(error(one.certificate, junk), HasSubstr("there is no private key in it; wanted"));
    EXPECT_THAT(error(one.key, one.certificate), HasSubstr("may be swapped"));
    EXPECT_THAT(error(one.certificate, one.certificate), HasSubstr("may be swapped"));
    const std::string secret = folder.write("secret.pem",
                                            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n"
                                            "-----END ENCRYPTED PRIVATE KEY-----\n");
    EXPECT_THAT(error(one.certificate, secret), HasSubstr("openssl pkey"));
    const std::string torn =
        folder.write("torn.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    EXPECT_THAT(error(torn, one.key), HasSubstr("is damaged"));
    EXPECT_THAT(error("/no/such/file", one.key), HasSubstr("/no/such/file"));
    EXPECT_THAT(error(one.certificate, "/no/such/file"), HasSubstr("/no/such/file"));
}

TEST(TlsContextTest, KnowsWhenItsCertificateEnds) {
    const test_tls::TestCa ca;
    const auto now = std::chrono::system_clock::now();
    const auto good = context_of(ca.issue("good", 5));
    EXPECT_GE(good->days_left(now), 4);
    EXPECT_EQ(good->days_left(good->ends_at()), 0);
    EXPECT_EQ(good->days_left(good->ends_at() - std::chrono::hours(25)), 1);
    EXPECT_EQ(good->days_left(good->ends_at() + std::chrono::hours(1)), -1) << "counted when asked";
    EXPECT_LT(context_of(ca.issue("ended", -3))->days_left(now), 0);
}

}  // namespace
}  // namespace proto_test

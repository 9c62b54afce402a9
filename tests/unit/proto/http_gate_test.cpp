// The table of raw inputs (one row per case, the number is the row of the rules) against a running
// server: which status each gets, whether the connection is closed, and that nothing after a bad
// request is executed. A new version of the parser library shows here what it changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/proto/support/running_server.h"

namespace proto_test {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Case {
    const char* row;
    std::string bytes;
    int status;             // 0: no answer, the connection just ends
    const char* code = "";  // of the error body
};

std::string repeat(std::string_view text, std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i)
        out += text;
    return out;
}

/// A POST with these extra header lines (each with its CR LF) and this body.
std::string post(std::string_view lines, std::string_view body = "") {
    return "POST /echo HTTP/1.1\r\nHost: localhost\r\n" + std::string(lines) + "\r\n" +
           std::string(body);
}
std::string get(std::string_view lines) {
    return "GET /echo HTTP/1.1\r\nHost: localhost\r\n" + std::string(lines) + "\r\n";
}
std::string chunked(std::string_view framing) {
    return post("Transfer-Encoding: chunked\r\n", framing);
}
constexpr std::string_view kSmuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

class GateTable : public testing::TestWithParam<Case> {
protected:
    static void SetUpTestSuite() {
        proto::HttpServerOptions options;
        options.body_bytes_max = 100'000;
        options.header_read = std::chrono::milliseconds(300);
        options.body_grace = std::chrono::milliseconds(300);
        server = new RunningServer(std::move(options), echo);
    }
    static void TearDownTestSuite() {
        delete server;
        server = nullptr;
    }
    static RunningServer* server;
};
RunningServer* GateTable::server = nullptr;

TEST_P(GateTable, RefusesAndCloses) {
    const Case& row = GetParam();
    const std::string answer = server->exchange(row.bytes + std::string(kSmuggled));
    EXPECT_EQ(status_of(answer), row.status) << answer;
    EXPECT_THAT(answer, Not(HasSubstr("/smuggled")));
    if (row.status == 0) {
        EXPECT_EQ(answer, "");
        return;
    }
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(answer, HasSubstr("x-request-id: "));
    EXPECT_THAT(answer, HasSubstr("\"code\":\"" + std::string(row.code) + "\""));
    EXPECT_THAT(answer, HasSubstr("\"param\":null"));
}

const char* const kBad = "bad_request";
const char* const kCoding = "transfer_encoding_unsupported";
const char* const kTooLarge = "body_too_large";
const char* const kHead = "headers_too_large";

INSTANTIATE_TEST_SUITE_P(
    Lengths, GateTable,
    testing::Values(
        Case{"1a", post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400,
             kBad},
        Case{"1b", post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "0\r\n\r\n"), 400,
             kBad},
        Case{"1c", post("Content-Length: 4\r\nContent-Length: 5\r\n", "12345"), 400, kBad},
        Case{"1d", post("Content-Length: +4\r\n", "1234"), 400, kBad},
        Case{"1e", post("Content-Length: -1\r\n"), 400, kBad},
        Case{"1f", post("Content-Length: 0x4\r\n", "1234"), 400, kBad},
        Case{"1g", post("Content-Length:\r\n"), 400, kBad},
        Case{"1h", post("Content-Length: 18446744073709551617\r\n"), 400, kBad},
        Case{"2a", post("Content-Length: 4\r\nContent-Length: 4\r\n", "1234"), 400, kBad},
        Case{"2b", post("Content-Length: 4, 4\r\n", "1234"), 400, kBad},
        Case{"3", post("Content-Length: 00000000000000000003\r\n", "123"), 400, kBad},
        Case{"22", get("Content-Length: 65537\r\n"), 413, kTooLarge},
        Case{"24a", post("Content-Length: 100001\r\n"), 413, kTooLarge},
        Case{"24b", chunked("186a1\r\n" + repeat("x", 100'001) + "\r\n0\r\n\r\n"), 413, kTooLarge},
        Case{"24c", post("Expect: 100-continue\r\nContent-Length: 100001\r\n"), 413, kTooLarge}));

INSTANTIATE_TEST_SUITE_P(
    Codings, GateTable,
    testing::Values(
        Case{"4a", post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), 501, kCoding},
        Case{"4b", post("Transfer-Encoding: gzip\r\n"), 501, kCoding},
        Case{"4c", post("Transfer-Encoding: identity\r\n"), 501, kCoding},
        Case{"4d", post("Transfer-Encoding:\r\n"), 501, kCoding},
        Case{"4e", post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), 501, kCoding},
        Case{"4f", post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), 400, kBad},
        Case{"4g", post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 400, kBad},
        Case{"5a", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 501, kCoding},
        Case{"5b",
             post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
             501, kCoding},
        Case{"5c", post("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), 501, kCoding},
        Case{"6a",
             post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400,
             kBad},
        Case{"6b", post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), 400, kBad},
        Case{"6c", post("Transfer-Encoding: \vchunked\r\n", "0\r\n\r\n"), 400, kBad},
        Case{"7", "POST /echo HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
             400, kBad}));

INSTANTIATE_TEST_SUITE_P(
    Chunks, GateTable,
    testing::Values(
        Case{"8a", chunked("3;" + repeat("e", 100'000) + "\r\nabc\r\n0\r\n\r\n"), 400, kBad},
        Case{"8b", chunked("3;" + repeat("e", 257) + "\r\nabc\r\n0\r\n\r\n"), 400, kBad},
        Case{"8c", chunked(repeat("0", 2'000) + "3\r\nabc\r\n0\r\n\r\n"), 400, kBad},
        Case{"8d", chunked(repeat("1\r\nx\r\n", 100'000) + "0\r\n\r\n"), 400, kBad},
        Case{"9a", chunked("-3\r\nabc\r\n0\r\n\r\n"), 400, kBad},
        Case{"9b", chunked("0x3\r\nabc\r\n0\r\n\r\n"), 400, kBad},
        Case{"9c", chunked(" 3\r\nabc\r\n0\r\n\r\n"), 400, kBad},
        Case{"9d", chunked("3 \r\nabc\r\n0\r\n\r\n"), 400, kBad},
        Case{"9e", chunked("10000000000000003\r\nabc\r\n0\r\n\r\n"), 400, kBad},
        Case{"9f", chunked("3\r\nabcd\r\n0\r\n\r\n"), 400, kBad},
        Case{"9g", chunked("3\r\nabc0\r\n\r\n"), 400, kBad},
        // The parser library would wait for more here; our own decoder need not.
        Case{"10a", chunked("3\nabc\n0\n\n"), 400, kBad},
        Case{"10b", chunked("3\r\nabc\n0\r\n\r\n"), 400, kBad},
        Case{"11a", chunked("0\r\n" + repeat("a: b\r\n", 33) + "\r\n"), 431, kHead},
        Case{"11b", chunked("0\r\na: " + repeat("b", 8192) + "\r\n\r\n"), 431, kHead},
        Case{"12a", chunked("0\r\nContent-Length: 5\r\n\r\n"), 400, kBad},
        Case{"12b", chunked("0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, kBad},
        Case{"12c", chunked("0\r\nno colon\r\n\r\n"), 400, kBad}));

INSTANTIATE_TEST_SUITE_P(
    HostsAndTargets, GateTable,
    testing::Values(
        Case{"13a", "GET /echo HTTP/1.1\r\n\r\n", 400, kBad},
        Case{"13b", "GET /echo HTTP/1.1\r\nHost:\r\n\r\n", 400, kBad},
        Case{"13c", "GET /echo HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, kBad},
        Case{"13d", "GET /echo HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, kBad},
        Case{"13e", "GET /echo HTTP/1.1\r\nHost: a b\r\n\r\n", 400, kBad},
        Case{"13f", "GET /echo HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, kBad},
        Case{"13g", "GET /echo HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, kBad},
        Case{"15", "GET http://other/echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"15", "GET https://other/echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"15", "GET ftp://localhost/echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"16a", "GET echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"16b", "GET /echo#x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"16c", "GET /ech\xC3\xB6 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"16d", "GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"17", repeat("M", 5'000) + " /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"20a", "GET /echo HTTP/1.1\r\nHost: l\xC3\xB6st\r\n\r\n", 400, kBad},
        Case{"20b", get("Authorization: Bearer \xC3\xB6\r\n"), 400, kBad},
        Case{"20c", get("traceparent: \xC3\xB6\r\n"), 400, kBad},
        Case{"20d", get("x-request-id: \xC3\xB6\r\n"), 400, kBad},
        Case{"23", post("Expect: 200-maybe\r\nContent-Length: 4\r\n", "1234"), 417,
             "expectation_failed"}));

INSTANTIATE_TEST_SUITE_P(
    Heads, GateTable,
    testing::Values(
        Case{"18a", get("A: b\r\n c\r\n"), 400, kBad},
        Case{"18b", "GET /echo HTTP/1.1\r\n Host: localhost\r\n\r\n", 400, kBad},
        Case{"19a", get(repeat("a: b\r\n", 5'000)), 431, kHead},
        Case{"19b", get(repeat("a: b\r\n", 100)), 431, kHead},  // with Host: 101 fields
        Case{"19c", get("a: " + repeat("b", 40'000) + "\r\n"), 431, kHead},
        Case{"25a", "GET /echo\r\n\r\n", 505, kBad},
        Case{"25b", "GET /echo HTTP/1.2\r\nHost: localhost\r\n\r\n", 505, kBad},
        Case{"25c", "GET /echo HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, kBad},
        Case{"25d", "GET /echo http/1.1\r\nHost: localhost\r\n\r\n", 505, kBad},
        Case{"25e", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, kBad},
        Case{"25f", "GET /echo HTTP/0.9\r\n\r\n", 505, kBad},
        Case{"26a", get(std::string("A: b\0c\r\n", 8)), 400, kBad},
        Case{"26b", get("A: b\rc\r\n"), 400, kBad}, Case{"26c", get("A: b\x01\r\n"), 400, kBad},
        Case{"26d", "GET /echo HTTP/1.1\nHost: localhost\n\n", 400, kBad},
        Case{"26e", get("A b: c\r\n"), 400, kBad}, Case{"26f", get("\xC3\xB6: c\r\n"), 400, kBad},
        Case{"26g", get("no colon\r\n"), 400, kBad},
        Case{"26h", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03", 11), 400, kBad},
        Case{"26i", get(": c\r\n"), 400, kBad},
        Case{"26j", "GET  /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, kBad},
        Case{"27", "\r\n\r\n" + get(""), 400, kBad}));

// --- rows that are accepted, or answered without closing

class GateTest : public testing::Test {
protected:
    std::string last_answer(std::string_view bytes) const {
        RawSocket socket = server.connect();
        socket.send(bytes);
        return socket.read_answer();
    }
    RunningServer server{proto::HttpServerOptions{}, echo};
};

TEST_F(GateTest, Row3ReadsLengthsAsDecimalWithSpacesAround) {
    EXPECT_THAT(last_answer(post("Content-Length:   003  \r\n", "abc")), HasSubstr("\nabc"));
}

TEST_F(GateTest, Row8AcceptsChunkExtensionsWithinTheBudget) {
    EXPECT_THAT(last_answer(chunked("3;" + repeat("e", 256) + "\r\nabc\r\n0\r\n\r\n")),
                HasSubstr("\nabc"));
    EXPECT_THAT(last_answer(chunked("0000000000000003\r\nabc\r\n0\r\n\r\n")), HasSubstr("\nabc"));
    // Large chunks pay for many small ones.
    EXPECT_EQ(status_of(last_answer(chunked("30d40\r\n" + repeat("x", 200'000) + "\r\n" +
                                            repeat("1\r\nx\r\n", 20'000) + "0\r\n\r\n"))),
              200);
}

TEST_F(GateTest, Row11DropsTrailerFields) {
    const std::string answer =
        last_answer(chunked("3\r\nabc\r\n0\r\nAuthorization: Bearer x\r\nHost: evil\r\n\r\n"));
    EXPECT_EQ(status_of(answer), 200);
    EXPECT_THAT(answer, HasSubstr("\nabc"));
}

TEST_F(GateTest, Row15UsesThePathOfAnAbsoluteTarget) {
    EXPECT_THAT(last_answer("GET http://localhost/a?b=c HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                HasSubstr("GET /a?b=c\n"));
    EXPECT_THAT(last_answer("GET HTTPS://localhost/a HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                HasSubstr("GET /a?\n"));
    EXPECT_THAT(last_answer("GET http://LOCALHOST HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                HasSubstr("GET /?\n"));
}

TEST_F(GateTest, Row16NeverDecodesOrNormalisesPaths) {
    EXPECT_THAT(last_answer("GET /%2e%2e//a/../%00 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                HasSubstr("GET /%2e%2e//a/../%00?\n"));
}

TEST_F(GateTest, Row19AcceptsAHundredFieldsAndAHeadOfExactlyTheLimit) {
    EXPECT_EQ(status_of(last_answer(get(repeat("a: b\r\n", 99)))), 200);
    std::string bytes = get("a: \r\n");
    bytes.insert(bytes.size() - 4, repeat("b", proto::kHeadBytesMax - bytes.size()));
    ASSERT_EQ(bytes.size(), proto::kHeadBytesMax);
    EXPECT_EQ(status_of(last_answer(bytes)), 200);
    bytes.insert(bytes.size() - 4, "b");
    EXPECT_EQ(status_of(last_answer(bytes)), 431);
}

TEST_F(GateTest, Row20IgnoresHighBytesInOtherValues) {
    EXPECT_EQ(status_of(last_answer(get("x-name: J\xC3\xB6rg\r\n"))), 200);
}

TEST_F(GateTest, Row21GivesNoMeaningToLookalikesAndUpgrades) {
    EXPECT_THAT(last_answer(get("Content_Length: 5\r\nConnection: content-length\r\n"
                                "Upgrade: h2c\r\n")),
                HasSubstr("GET /echo?\n"));
}

TEST_F(GateTest, Row22ReadsAndIgnoresASmallBodyOfGet) {
    RawSocket socket = server.connect();
    socket.send(get("Content-Length: 3\r\n") + "abc" + get(""));
    const std::string first = socket.read_answer();
    EXPECT_THAT(first, HasSubstr("GET /echo?\n"));
    EXPECT_THAT(first, Not(HasSubstr("abc")));
    EXPECT_EQ(status_of(socket.read_answer()), 200);
}

TEST_F(GateTest, Row27SkipsOneEmptyLineBeforeTheRequest) {
    EXPECT_EQ(status_of(last_answer("\r\n" + get(""))), 200);
}

TEST_F(GateTest, Row28DropsAShortBodyQuietly) {
    const RawSocket socket = server.connect();
    socket.send(post("Content-Length: 10\r\n", "abc"));
    socket.shutdown_send();
    EXPECT_EQ(socket.read_to_end(), "");
    EXPECT_TRUE(server.accesses.take().client_aborted);
    EXPECT_EQ(server.stats().client_aborts_total, 1U);
}

TEST_F(GateTest, FindsABareLineFeedBeforeTheHeadIsComplete) {
    RawSocket socket = server.connect();
    socket.send("GET /echo HTTP/1.1\nHost");
    EXPECT_EQ(status_of(socket.read_answer()), 400);
}

TEST_F(GateTest, CountsRefusalsByReason) {
    EXPECT_EQ(status_of(server.exchange("GET /echo HTTP/1.1\r\n\r\n")), 400);
    const auto reason = static_cast<std::size_t>(proto::GateReason::kHost);
    EXPECT_EQ(server.stats().gate_rejected_total[reason], 1U);
    EXPECT_EQ(proto::gate_reason_name(proto::GateReason::kHost), "host");
}

TEST_F(GateTest, EveryRowHoldsWhenTheBytesArriveOneByOne) {
    RawSocket socket = server.connect();
    const std::string bytes = chunked("3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nt: u\r\n\r\n") + get("");
    for (const char c : bytes)
        socket.send(std::string_view(&c, 1));
    EXPECT_THAT(socket.read_answer(), HasSubstr("\nabcde"));
    EXPECT_EQ(status_of(socket.read_answer()), 200);
}

TEST(GateHostTest, Row14Answers421ForForeignHosts) {
    proto::HttpServerOptions options;
    options.check_host = true;
    options.allowed_hosts = {"gpu.example"};
    RunningServer server(std::move(options), echo);
    const auto ask = [&](const std::string& host) {
        RawSocket socket = server.connect();
        socket.send("GET /echo HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
        return status_of(socket.read_answer());
    };
    EXPECT_EQ(ask("attacker.example"), 421);
    EXPECT_EQ(ask("localhost.attacker.example"), 421);
    EXPECT_EQ(ask("127.0.0.1:8080"), 200);
    EXPECT_EQ(ask("[::1]:8080"), 200);
    EXPECT_EQ(ask("LocalHost"), 200);
    EXPECT_EQ(ask("gpu.example:443"), 200);
}

}  // namespace
}  // namespace proto_test

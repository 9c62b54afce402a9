// The running router over TLS: streams byte for byte, clients that leave, certificates that are
// replaced while it runs. OpenSSL as the client, an issuer made by the test.
#include <chrono>
#include <csignal>
#include <iostream>

#include <gmock/gmock.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tls/tls_client.h"

namespace fleet {
namespace {

using test_support::TempFolder;
using test_tls::TlsClient;
using testing::HasSubstr;
constexpr const char* kChat = "/v1/chat/completions";

struct TlsFleet {
    TlsFleet() {
        install(ca.issue("first"));
        router = std::make_unique<Router>(
            std::vector<std::string>{"--replica", replica.url(), "--tls-cert", certificate(),
                                     "--tls-key", folder.path("key.pem")});
        if (!router->wait_state(0, "READY")) throw std::runtime_error("the replica is not READY");
    }

    void install(const test_tls::IssuedFiles& files) const {
        folder.write("cert.pem", files.certificate);
        folder.write("key.pem", files.key);
    }
    [[nodiscard]] std::string certificate() const { return folder.path("cert.pem"); }
    [[nodiscard]] std::uint16_t port() const { return static_cast<std::uint16_t>(router->port()); }
    [[nodiscard]] std::string name_seen() const { return TlsClient(port(), ca).server_name(); }

    test_tls::TestCa ca;
    TempFolder folder;
    Fake replica{0};
    std::unique_ptr<Router> router;
};

std::string post_text(const std::string& body, const std::string& fields = "") {
    return std::string("POST ") + kChat + " HTTP/1.1\r\nHost: localhost\r\n" + fields +
           "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
}

/// As the fake writes it into its lines.
std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::int64_t at_us(const std::string& line) {
    return std::stoll(line.substr(line.find("at_us=") + 6));
}

std::string body_of(const std::string& answer) {
    const std::size_t at = answer.find("\r\n\r\n");
    return at == std::string::npos ? "" : answer.substr(at + 4);
}

TEST(RouterTlsTest, AStreamIsTheSameAsTheReplicasOwn) {
    TlsFleet fleet;
    EXPECT_THAT(fleet.router->process().text(), HasSubstr("listening on https://"));
    const std::string body = chat_body("tokens=50", true);
    RawClient direct(fleet.replica.port());
    direct.post(kChat, body);
    const std::string wanted = direct.read_answer().body;
    TlsClient client(fleet.port(), fleet.ca);
    ASSERT_EQ(client.failure(), "");
    for (int i = 0; i < 2; ++i) {  // on one connection
        client.send(post_text(body));
        std::string got = body_of(client.read_until("\r\n0\r\n\r\n"));
        std::string whole;
        while (!got.empty() && got[0] != '0') {
            const std::size_t size = std::strtoul(got.c_str(), nullptr, 16);
            whole += got.substr(got.find("\r\n") + 2, size);
            got.erase(0, got.find("\r\n") + 2 + size + 2);
        }
        EXPECT_EQ(whole.size(), wanted.size());
        EXPECT_THAT(whole, HasSubstr("[DONE]"));
    }
}

TEST(RouterTlsTest, AClientThatLeavesInAnyWayIsGoneAtTheReplica) {
    TlsFleet fleet;
    int number = 0;
    const std::vector<void (*)(TlsClient&)> ways = {
        [](TlsClient& client) { client.send_close_notify(); },
        [](TlsClient& client) { client.shutdown_send(); },
        [](TlsClient& client) { client.reset(); },
    };
    for (const auto leave : ways) {
        for (const char* text : {"ttft_ms=600000", "tokens=100000 token_ms=5"}) {
            const std::string id = "leaver-" + std::to_string(++number);
            TlsClient client(fleet.port(), fleet.ca);
            client.send(post_text(chat_body(text, true), "x-request-id: " + id + "\r\n"));
            ASSERT_TRUE(fleet.replica.process().wait_line({"arrival", "request_id=" + id}));
            if (std::string(text).find("token_ms") != std::string::npos) {
                EXPECT_THAT(client.read_until("data: "), HasSubstr("data: "));
            }
            const std::int64_t left_us = now_us();
            leave(client);
            const auto line = fleet.replica.process().wait_line({"abort", "request_id=" + id});
            ASSERT_TRUE(line) << id;
            const std::int64_t took_us = at_us(*line) - left_us;
            std::cout << "[ MEASURED ] " << text << ", way " << (number + 1) / 2 << ": " << took_us
                      << " us from leaving to the replica's abort\n";
            EXPECT_LT(took_us, 1'000'000) << "100 ms, and room for a loaded machine";
        }
    }
}

TEST(RouterTlsTest, FilesAreReadAgainOnHangupAndBadOnesChangeNothing) {
    TlsFleet fleet;
    Child& router = fleet.router->process();
    TlsClient early(fleet.port(), fleet.ca);
    EXPECT_EQ(early.server_name(), "first");
    fleet.install(fleet.ca.issue("second"));
    router.signal(SIGHUP);
    ASSERT_TRUE(router.wait_line({"event=reloaded", "subject=tls"}));
    EXPECT_EQ(fleet.name_seen(), "second");
    fleet.folder.write("key.pem", fleet.ca.issue("third").key);  // of another certificate
    router.signal(SIGHUP);
    ASSERT_TRUE(router.wait_line({"event=reload_failed", "subject=tls", "kept=old"}));
    EXPECT_EQ(fleet.name_seen(), "second");
    early.send(post_text(chat_body("hi", false)));
    EXPECT_THAT(early.read_answer(), HasSubstr("HTTP/1.1 200 OK"));
    const std::size_t from = router.line_count();
    fleet.install(fleet.ca.issue("fourth"));
    router.signal(SIGHUP);
    ASSERT_TRUE(router.wait_line({"event=reloaded", "subject=tls"}, from));
    EXPECT_EQ(fleet.name_seen(), "fourth");
}

TEST(RouterTlsTest, TheEndOfTheCertificateIsInTheLogTheMetricsAndTheDashboard) {
    TlsFleet fleet;  // its certificate has two days
    const auto line = fleet.router->process().wait_line({"event=certificate_ends"});
    ASSERT_TRUE(line);
    EXPECT_THAT(*line, HasSubstr(" days_left=1 "));
    const auto answer_to = [&fleet](const std::string& path) {
        TlsClient client(fleet.port(), fleet.ca);
        client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        return body_of(client.read_answer());
    };
    EXPECT_THAT(answer_to("/dashboard/state"), HasSubstr("The TLS certificate ends in 1 day:"));
    const std::string text = answer_to("/metrics");
    const std::string name = "\nquadriga_router_tls_certificate_end_timestamp_seconds ";
    const std::size_t at = text.find(name);
    ASSERT_NE(at, std::string::npos);
    const double left_s =
        std::stod(text.substr(at + name.size())) -
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    EXPECT_GT(left_s, 24 * 3600);
    EXPECT_LE(left_s, 48 * 3600);
    // Another one is told of at once.
    Child& router = fleet.router->process();
    const std::size_t from = router.line_count();
    fleet.install(fleet.ca.issue("ended", -3));
    router.signal(SIGHUP);
    EXPECT_TRUE(router.wait_line({"event=certificate_ends", "days_left=-"}, from));
}

TEST(RouterTlsTest, PlainHttpIsToldAndEnded) {
    TlsFleet fleet;
    const Answer answer = get(fleet.port(), "/health");
    EXPECT_EQ(answer.status, 400);
    EXPECT_TRUE(answer.is_closed);
    EXPECT_THAT(answer.body, HasSubstr("TLS"));
}

TEST(RouterTlsTest, FilesThatCannotBeUsedPreventTheStart) {
    TempFolder folder;
    const test_tls::TestCa ca;
    const std::string certificate = folder.write("cert.pem", ca.issue("one").certificate);
    const std::string other = folder.write("other.pem", ca.issue("two").key);
    const auto refusal = [](std::vector<std::string> flags) {
        flags.insert(flags.begin(),
                     {std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router", "--port", "0"});
        Child router(flags, Child::Listen::kStderr);
        EXPECT_EQ(router.wait_exit(), 2);
        return router.text();
    };
    EXPECT_THAT(refusal({"--tls-cert", certificate}), HasSubstr("--tls-key"));
    EXPECT_THAT(refusal({"--tls-cert", certificate, "--tls-key", other}), HasSubstr(other));
    EXPECT_THAT(refusal({"--tls-cert", "/no/such", "--tls-key", other}), HasSubstr("/no/such"));
}

}  // namespace
}  // namespace fleet

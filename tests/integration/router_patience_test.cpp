// Time that is nobody's fault: clients that read slowly, stops of the router itself, replicas that
// are known by polls only, and decisions that errors still tell.
#include <array>
#include <csignal>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using testing::HasSubstr;
constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kBodies = "quadriga_router_body_bytes";

/// A client for whom the kernels keep little: small segments make the sender's buffer small too.
class SlowClient {
public:
    SlowClient(int port, const std::string& body)
        : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const int segment_bytes = 536;
        const int buffer_bytes = 4096;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes, sizeof segment_bytes);
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const std::string request =
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: " +
            std::to_string(body.size()) + "\r\n\r\n" + body;
        EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(::send(fd_, request.data(), request.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(request.size()));
    }
    ~SlowClient() { ::close(fd_); }
    SlowClient(const SlowClient&) = delete;
    SlowClient& operator=(const SlowClient&) = delete;

    /// Now it reads.
    std::string read_all() {
        std::string text;
        std::array<char, 16384> buffer;
        for (;;) {
            const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), 0);
            if (count <= 0) return text;
            text.append(buffer.data(), static_cast<std::size_t>(count));
        }
    }

private:
    int fd_;
};

TEST(RouterPatienceTest, AClientThatReadsSlowlyKeepsNobodyFromThePlaceItsAnswerHad) {
    // The whole answer, or the whole stream, leaves the replica while its client reads nothing.
    struct Case {
        std::string text;
        bool is_stream;
        std::string end;
    };
    const std::vector<Case> cases = {{"tokens=100000", false, "}"},
                                     {"tokens=20", true, "0\r\n\r\n"}};
    for (const auto& [text, is_stream, end] : cases) {
        Fleet fleet(1, {"--slots", "1", "--event-bytes", "20000"});
        SlowClient slow(fleet.router->port(), chat_body(text, is_stream));
        ASSERT_TRUE(fleet.fakes[0]->process().wait_line({"end "}));
        const Answer next = post(fleet.router->port(), kChat, chat_body("hi", false));
        EXPECT_EQ(next.status, 200) << text;
        EXPECT_EQ(fleet.router->metric(kBodies), 0);
        EXPECT_EQ(fleet.router->metric("quadriga_router_requests_inflight{phase=\"decode\"}"), 1)
            << "the slow one is still there";
        const std::string late = slow.read_all();
        EXPECT_THAT(late, testing::StartsWith("HTTP/1.1 200 "));
        EXPECT_THAT(late, testing::EndsWith(end)) << late.size();
        EXPECT_EQ(fleet.wait_idle(), "");
    }
}

TEST(RouterPatienceTest, AStopOfTheRouterIsTakenFromNobodysTime) {
    Fleet fleet(1, {"--slots", "1"}, {"--queue-wait-s", "2.5", "--header-read-s", "2.5"});
    const int port = fleet.router->port();
    RawClient streaming(port);
    streaming.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(streaming.read_body_bytes(100));
    RawClient waiting(port);
    waiting.post(kChat, chat_body("hi", false));
    while (fleet.router->metric("quadriga_router_queue_requests{class=\"default\"}") != 1) {
    }
    RawClient in_its_head(port);
    in_its_head.send("GET /health HTTP/1.1\r\n");
    (void)get(port, "/health");  // behind it, so that those bytes have been read
    fleet.router->process().signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(5000));  // the stop itself, not a wait
    fleet.router->process().signal(SIGCONT);
    ASSERT_TRUE(fleet.router->process().wait_line({"event=was_stopped"}));
    EXPECT_EQ(fleet.router->metric("quadriga_router_queue_requests{class=\"default\"}"), 1)
        << "it waits on";
    in_its_head.send("Host: 127.0.0.1\r\n\r\n");
    EXPECT_EQ(in_its_head.read_answer().status, 200);
    streaming.close();
    EXPECT_EQ(waiting.read_answer().status, 200);
}

TEST(RouterPatienceTest, AReplicaWithoutAStreamIsKnownByItsPolls) {
    Fleet fleet(1, {"--no-stream"});
    while (get(fleet.router->port(), "/v1/models").body.find("\"fake\"") == std::string::npos) {
    }
    EXPECT_GT(fleet.router->metric("quadriga_router_status_fallback_total{replica=\"0\"}"), 0);
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", false)).status, 200);
    const std::string unknown = R"({"model":"nobody","messages":[{"role":"user","content":"x"}]})";
    EXPECT_EQ(post(fleet.router->port(), kChat, unknown).status, 404);
}

TEST(RouterPatienceTest, InfoThatFailsOftenIsStillAskedFor) {
    Fleet fleet(1, {"--info-fails", "6"});
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::string models;
    while (models.find("\"fake\"") == std::string::npos) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
        models = get(fleet.router->port(), "/v1/models").body;
    }
}

TEST(RouterPatienceTest, AnErrorOfTheRoutersOwnTellsTheDecisionBeforeIt) {
    Fleet fleet(1, {"--drop-on", "drop"});
    const Answer lost = post(fleet.router->port(), kChat, chat_body("drop", false));
    EXPECT_EQ(lost.status, 502);
    EXPECT_THAT(lost.header("x-quadriga-decision"), HasSubstr("replica=0; reason="));
    EXPECT_THAT(lost.header("x-quadriga-decision"), HasSubstr("; attempt=1; "));
    const Router empty({});
    const Answer refused = post(empty.port(), kChat, chat_body("hi", false));
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.header("x-quadriga-decision"), "") << "nothing was decided";
    Fleet quiet(1, {"--drop-on", "drop"}, {"--no-decision-header"});
    EXPECT_EQ(
        post(quiet.router->port(), kChat, chat_body("drop", false)).header("x-quadriga-decision"),
        "");
}

}  // namespace
}  // namespace fleet

// What clients, Prometheus and the launcher see of a router: relay byte for byte, endpoints,
// announcements, inherited sockets, and the way out.
#include <array>
#include <csignal>
#include <fstream>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/http_client.h"
#include "proto/json.h"
#include "tests/integration/router_announcer.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"
#include "tests/support/temp_folder.h"

namespace fleet {
namespace {

using testing::HasSubstr;
using testing::Not;
constexpr const char* kChat = "/v1/chat/completions";

proto::HttpResult get(const Router& router, const std::string& path) {
    return proto::http_get(router.url(path), kPatience);
}

/// A chat of about `bytes` in many parts, which takes a while to read.
std::string long_chat(std::size_t bytes) {
    std::string body = R"({"messages":[{"role":"user","content":"hi"})";
    std::string text;
    for (int i = 0; i < 64; ++i)
        text += "word\\n\\u00e9 ";
    while (body.size() + text.size() < bytes)
        body += R"(,{"role":"user","content":")" + text + "\"}";
    return body + "]}";
}

TEST(RouterSurfaceTest, R7_AStreamInOneByteSegmentsArrivesByteForByte) {
    Fleet fleet(1, {"--segment-bytes", "1", "--tokens", "30"});
    for (const std::string path : {"/v1/chat/completions", "/v1/completions"}) {
        const std::string body =
            path == kChat ? chat_body("hi", true)
                          : R"({"model":"fake","prompt":"hi","max_tokens":30,"stream":true})";
        const Answer direct = post(fleet.fakes[0]->port(), path, body);
        const Answer relayed = post(fleet.router->port(), path, body);
        ASSERT_EQ(direct.status, 200) << direct.head << direct.body;
        EXPECT_TRUE(relayed.is_complete);
        EXPECT_EQ(relayed.body, direct.body);
        EXPECT_THAT(relayed.body, HasSubstr("四頭の馬"));
        EXPECT_THAT(relayed.body, Not(HasSubstr("\xEF\xBF\xBD")));
        EXPECT_EQ(relayed.header("content-type"), "text/event-stream");
        EXPECT_EQ(relayed.header("x-quadriga-instance"), fleet.fakes[0]->instance());
        EXPECT_THAT(relayed.header("x-quadriga-decision"),
                    HasSubstr("replica=0; reason=only; attempt=1; queue_ms="));
    }
    // Usage is accounted from the replica's own `done` events, and what went past us is not ours.
    ASSERT_TRUE(fleet.fakes[0]->process().wait_count("end ", 4));
    const std::string generated = "quadriga_router_generation_tokens_total{replica=\"0\"}";
    while (fleet.router->metric(generated).value_or(0) < 60) {  // each look is a round trip
    }
    EXPECT_EQ(fleet.router->metric(generated), 60);
}

TEST(RouterSurfaceTest, TheTokensOfAPolledReplicaAreReadFromItsAnswers) {
    Fleet fleet(1, {"--no-stream", "--tokens", "6"});
    const int port = fleet.router->port();
    const auto total = [&](const std::string& name, const std::string& labels) {
        return fleet.router->metric("quadriga_router_" + name + "{" + labels + "replica=\"0\"}");
    };
    ASSERT_EQ(post(port, kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(total("generation_tokens_total", ""), 6) << "by the usage";
    EXPECT_EQ(total("prompt_tokens_total", "cached=\"false\","), 1);
    ASSERT_EQ(post(port, kChat, chat_body("hi", true)).status, 200);
    const double by_events = total("generation_tokens_total", "").value_or(0) - 6;
    EXPECT_GE(by_events, 6) << "about one an event, where a stream has no usage";
    EXPECT_LE(by_events, 8);
    EXPECT_EQ(total("prompt_tokens_total", "cached=\"false\","), 2);
    EXPECT_EQ(fleet.router->metric("quadriga_router_answer_ends_unread_total"), 0);
}

TEST(RouterSurfaceTest, APlainAnswerIsTheReplicasOwn) {
    Fleet fleet(1);
    const std::string body = chat_body("hi", false);
    const Answer direct = post(fleet.fakes[0]->port(), kChat, body);
    const Answer relayed = post(fleet.router->port(), kChat, body, {"x-request-id: mine.1"});
    EXPECT_EQ(relayed.status, 200);
    EXPECT_EQ(relayed.body, direct.body);
    EXPECT_EQ(relayed.header("x-request-id"), "mine.1");
    EXPECT_TRUE(fleet.fakes[0]->process().wait_line({"request_id=mine.1"})) << "passed on";
    EXPECT_NE(post(fleet.router->port(), kChat, body, {"x-request-id: b@d"}).header("x-request-id"),
              "b@d");
}

TEST(RouterSurfaceTest, BadRequestsAreAnsweredBeforeAnyReplicaSeesThem) {
    Fleet fleet(1);
    const int port = fleet.router->port();
    while (get(*fleet.router, "/v1/models").body.find("fake") == std::string::npos) {
    }
    const Answer unknown =
        post(port, kChat, R"({"model":"gpt-9","messages":[{"role":"user","content":"x"}]})");
    EXPECT_EQ(unknown.status, 404);
    EXPECT_THAT(unknown.body, HasSubstr("\"model_not_found\""));
    EXPECT_THAT(unknown.body, HasSubstr("fake")) << "names what there is";
    const Answer hot =
        post(port, kChat, R"({"messages":[{"role":"user","content":"x"}],"temperature":9})");
    EXPECT_EQ(hot.status, 400);
    EXPECT_THAT(hot.body, HasSubstr("\"param\":\"temperature\""));
    EXPECT_EQ(post(port, kChat, "{\"messages\":").status, 400);
    EXPECT_EQ(post(port, kChat, "[1]").status, 400);
    EXPECT_EQ(post(port, kChat, std::string(1000, '[')).status, 400);
    EXPECT_EQ(post(port, "/v1/embeddings", "{}").status, 404);
    EXPECT_EQ(get(*fleet.router, kChat).status, 405);
    EXPECT_EQ(post(port, kChat, chat_body("x", false), {"x-quadriga-priority: high"}).status, 400);
    EXPECT_EQ(post(port, kChat, R"({"model":"default","messages":[{"role":"user","content":"x"}]})")
                  .status,
              200)
        << "an alias";
    EXPECT_EQ(fleet.fakes[0]->arrivals(), 1U);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterSurfaceTest, ModelsInfoAndQuestionsComeFromTheReplicas) {
    Fleet fleet(2);
    while (get(*fleet.router, "/v1/models").body.find("fake") == std::string::npos) {
    }
    const proto::Json models = proto::Json::parse(get(*fleet.router, "/v1/models").body);
    EXPECT_EQ(models["data"].size(), 1U) << "two replicas, one model";
    EXPECT_EQ(models["data"][0]["id"], "fake");
    EXPECT_EQ(get(*fleet.router, "/v1/models/fake").status, 200);
    EXPECT_EQ(get(*fleet.router, "/v1/models/nope").status, 404);
    const proto::Json info = proto::Json::parse(get(*fleet.router, "/info").body);
    EXPECT_EQ(info["role"], "router");
    EXPECT_EQ(info["replicas"].size(), 2U);
    EXPECT_EQ(info["replicas"][0]["state"], "READY");
    EXPECT_EQ(post(fleet.router->port(), "/tokenize", R"({"content":"x"})").body,
              R"({"tokens":[1,2,3],"count":3})");
    const proto::Json targets = proto::Json::parse(get(*fleet.router, "/sd/prometheus").body);
    EXPECT_EQ(targets[1]["targets"][0], "127.0.0.1:" + std::to_string(fleet.fakes[1]->port()));
    EXPECT_EQ(get(*fleet.router, "/ready").body, R"({"status":"ready"})");
}

TEST(RouterSurfaceTest, R12_AScrapeOfAllAnswersWhileOneReplicaIsDownAndOneStandsStill) {
    Fleet fleet(4);
    fleet.fakes[1]->process().signal(SIGSTOP);
    fleet.fakes[3]->process().signal(SIGKILL);
    ASSERT_TRUE(fleet.router->wait_state(3, "DOWN"));
    const auto began = std::chrono::steady_clock::now();
    const std::string text = get(*fleet.router, "/metrics/all").body;
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_LT(took, std::chrono::milliseconds(500))
        << "50 ms are the router's, the rest is the machine's";
    EXPECT_THAT(text, HasSubstr("quadriga_replica_requests_running{replica=\"0\"} 0"));
    EXPECT_THAT(text, HasSubstr("quadriga_replica_requests_running{replica=\"2\"} 0"));
    EXPECT_THAT(text, Not(HasSubstr("quadriga_replica_requests_running{replica=\"1\"}")));
    EXPECT_THAT(text, Not(HasSubstr("quadriga_replica_requests_running{replica=\"3\"}")));
    EXPECT_THAT(text, HasSubstr("quadriga_router_replica_up{replica=\"1\"} 0"))
        << "it was READY a moment ago, but it was asked and did not answer";
    EXPECT_THAT(text, HasSubstr("quadriga_router_replica_up{replica=\"3\"} 0"));
    EXPECT_THAT(text, HasSubstr("quadriga_router_replica_up{replica=\"0\"} 1"));
    const std::string type = "# TYPE quadriga_replica_requests_running ";
    EXPECT_EQ(text.find(type), text.rfind(type)) << "one family, one type line";
    EXPECT_THAT(get(*fleet.router, "/metrics").body, Not(HasSubstr("quadriga_replica_")));
    fleet.fakes[1]->process().signal(SIGCONT);
}

TEST(RouterSurfaceTest, AStreamThatIsSilentBeforeItsFirstTokenGetsPings) {
    Fleet fleet(1, {}, {"--ping-s", "0.1"});
    const Answer answer =
        post(fleet.router->port(), kChat, chat_body("ttft_ms=350 tokens=1", true));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.rfind(": ping\n\n", 0), 0U) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("data: [DONE]\n\n"));
}

TEST(RouterSurfaceTest, ASilenceBetweenEventsGetsPingsAndNothingElseIsChanged) {
    Fleet fleet(1, {}, {"--ping-s", "0.1"});
    const std::string body = chat_body("token_ms=350 tokens=3", true);
    std::string relayed = post(fleet.router->port(), kChat, body).body;
    const std::string direct = post(fleet.fakes[0]->port(), kChat, body).body;
    const std::string ping = ": ping\n\n";
    int pings = 0;
    const std::size_t first_event = relayed.find("data: ");
    for (std::size_t at = relayed.find(ping); at != std::string::npos; at = relayed.find(ping)) {
        EXPECT_GT(at, first_event) << "the stream had begun";
        EXPECT_EQ(relayed.substr(at - 2, 2), "\n\n") << "at the end of an event";
        relayed.erase(at, ping.size());
        ++pings;
    }
    EXPECT_GE(pings, 3) << "each of three silences is longer than three intervals";
    EXPECT_EQ(relayed, direct);
}

TEST(RouterSurfaceTest, ARefusalAfterAPingArrivesAsAnErrorEvent) {
    Fleet fleet(1, {"--slots", "1"},
                {"--ping-s", "0.1", "--queue-wait-s", "0.3", "--dispatch-ahead", "0"});
    RawClient first(fleet.router->port());
    first.post(kChat, chat_body("ttft_ms=60000", true));
    ASSERT_TRUE(fleet.fakes[0]->process().wait_line({"arrival "}));
    const Answer answer = post(fleet.router->port(), kChat, chat_body("hi", true));
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.is_complete);
    EXPECT_THAT(answer.body, HasSubstr("event: error\n"));
    EXPECT_THAT(answer.body, HasSubstr("\"queue_timeout\""));
}

TEST(RouterSurfaceTest, AnnouncedReplicasAreWaitedForUsedAndDropped) {
    Announcer announcer;
    Fake fake(0);
    Router router({"--announce-fd", "10"}, {announcer.inherited()});
    announcer.say(fake, 0, proto::ReplicaState::kLoading, fake.instance());
    while (get(router, "/ready").body.find("loading") == std::string::npos) {
    }
    RawClient early(router.port());
    early.post(kChat, chat_body("hi", false));
    while (router.metric("quadriga_router_queue_requests{class=\"default\"}") != 1) {
    }
    announcer.say(fake, 0, proto::ReplicaState::kReady, fake.instance());
    EXPECT_EQ(early.read_answer().status, 200) << "it waited for the start";
    announcer.say(fake, 0, proto::ReplicaState::kStopping, fake.instance());
    ASSERT_TRUE(router.wait_state(0, "DOWN"));
    announcer.say(fake, 0, proto::ReplicaState::kQuarantined, "");
    for (int status = 0; status != 503;) {  // the grace of a sudden death passes first
        status = post(router.port(), kChat, chat_body("hi", false)).status;
        EXPECT_EQ(status, 503);
    }
}

TEST(RouterSurfaceTest, AnAnnouncedReplicaIsDrainedHereButOnlyTheLauncherTakesItAway) {
    Announcer announcer;
    Fake fake(0);
    const test_support::TempFolder folder;
    const std::string socket = folder.path("admin.sock");
    Router router({"--announce-fd", "10", "--admin-socket", socket}, {announcer.inherited()});
    announcer.say(fake, 0, proto::ReplicaState::kReady, fake.instance());
    ASSERT_TRUE(router.wait_state(0, "READY"));
    EXPECT_EQ(ask_unix(socket, "DELETE", "/admin/replicas/0").status, 409);
    EXPECT_EQ(post(router.port(), kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(ask_unix(socket, "POST", "/admin/replicas/0/drain").status, 200);
    EXPECT_EQ(post(router.port(), kChat, chat_body("hi", false)).status, 503);
    announcer.say(fake, 0, proto::ReplicaState::kReady,
                  fake.instance());  // its news change nothing
    EXPECT_EQ(ask_unix(socket, "POST", "/admin/replicas/0/undrain").status, 200);
    EXPECT_EQ(post(router.port(), kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(announcer.hear(), (proto::DrainOrder{0, true}));
    EXPECT_EQ(announcer.hear(), (proto::DrainOrder{0, false}));
}

TEST(RouterSurfaceTest, ADrainAtTheLauncherIsOneHereTooAndUndrainUndoesIt) {
    Announcer announcer;
    Fake fake(0);
    const test_support::TempFolder folder;
    const std::string socket = folder.path("admin.sock");
    Router router({"--announce-fd", "10", "--admin-socket", socket}, {announcer.inherited()});
    announcer.say(fake, 0, proto::ReplicaState::kReady, fake.instance());
    ASSERT_TRUE(router.wait_state(0, "READY"));
    announcer.say(fake, 0, proto::ReplicaState::kReady, fake.instance(), true);
    ASSERT_TRUE(router.wait_state(0, "DRAINING"));
    const auto shown = [&] { return ask_unix(socket, "GET", "/admin/replicas").body; };
    EXPECT_THAT(shown(), HasSubstr("\"drain_asked\":true"));
    announcer.say(fake, 0, proto::ReplicaState::kAbsent, "", true);  // its process has ended
    ASSERT_TRUE(router.wait_state(0, "DOWN"));
    EXPECT_THAT(shown(), HasSubstr("\"drain_asked\":true"));
    EXPECT_EQ(ask_unix(socket, "POST", "/admin/replicas/0/undrain").status, 200);
    EXPECT_EQ(announcer.hear(), (proto::DrainOrder{0, false}));
    EXPECT_THAT(shown(), HasSubstr("\"drain_asked\":false"));
}

TEST(RouterSurfaceTest, AReplicaAddedByUrlIsTheLaunchersFromItsAnnouncementOn) {
    Announcer announcer;
    Fake fake(0);
    const test_support::TempFolder folder;
    const std::string socket = folder.path("admin.sock");
    Router router({"--announce-fd", "10", "--admin-socket", socket}, {announcer.inherited()});
    const std::string body = proto::Json{{"url", fake.url()}}.dump();
    EXPECT_EQ(ask_unix(socket, "POST", "/admin/replicas", body).status, 200);
    ASSERT_TRUE(router.wait_state(0, "READY"));
    RawClient running(router.port());
    running.post(kChat, chat_body("tokens=40 token_ms=5", true));
    ASSERT_TRUE(running.read_body_bytes(300));
    announcer.say(fake, 5, proto::ReplicaState::kReady, fake.instance());
    ASSERT_TRUE(router.wait_state(5, "READY"));
    const Answer whole = running.read_to_end();
    EXPECT_THAT(whole.body, HasSubstr("[DONE]")) << "nothing that runs is disturbed";
    ASSERT_TRUE(router.wait_state(0, "DOWN"));
    const Answer next = post(router.port(), kChat, chat_body("hi", false));
    EXPECT_THAT(next.header("x-quadriga-decision"), HasSubstr("replica=5"));
    const Answer list = ask_unix(socket, "GET", "/admin/replicas");
    EXPECT_THAT(list.body, HasSubstr("it is replica 5, which is known by another address"));
}

TEST(RouterSurfaceTest, AForeignProcessOnAReplicasPortGetsNoWork) {
    Announcer announcer;
    Fake fake(0);
    Router router({"--announce-fd", "10"}, {announcer.inherited()});
    announcer.say(fake, 0, proto::ReplicaState::kReady, "00000000deadbeef");
    RawClient client(router.port());
    client.post(kChat, chat_body("hi", false));
    while (router.metric("quadriga_router_queue_requests{class=\"default\"}") != 1) {
    }
    announcer.say(fake, 0, proto::ReplicaState::kReady, fake.instance());
    EXPECT_EQ(client.read_answer().status, 200);
    EXPECT_EQ(fake.arrivals(), 1U);
}

TEST(RouterSurfaceTest, TermLetsRunningRequestsFinishAndRefusesNewOnes) {
    Fleet fleet(1);
    RawClient running(fleet.router->port());
    running.post(kChat, chat_body("tokens=200 token_ms=5", true));
    RawClient idle(fleet.router->port());  // connected before the signal
    ASSERT_TRUE(running.read_body_bytes(300));
    fleet.router->process().signal(SIGTERM);
    ASSERT_TRUE(fleet.router->process().wait_line({"event=draining"}));
    while (get(*fleet.router, "/ready").status == 200) {
    }
    idle.post(kChat, chat_body("hi", false));
    const Answer refused = idle.read_answer();
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.body, HasSubstr("\"draining\""));
    EXPECT_EQ(refused.header("retry-after"), "5");
    EXPECT_THAT(running.read_answer().body, HasSubstr("data: [DONE]\n\n"));
    EXPECT_EQ(fleet.router->process().wait_exit(), 0);
}

TEST(RouterSurfaceTest, ASecondTermEndsStreamsByTheErrorEventAtOnce) {
    Fleet fleet(1);
    RawClient running(fleet.router->port());
    running.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(running.read_body_bytes(300));
    fleet.router->process().signal(SIGTERM);
    ASSERT_TRUE(fleet.router->process().wait_line({"event=draining"}));
    fleet.router->process().signal(SIGTERM);
    const Answer answer = running.read_answer();
    EXPECT_TRUE(answer.is_complete);
    EXPECT_THAT(answer.body, HasSubstr("event: error\n"));
    EXPECT_THAT(answer.body, HasSubstr("\"draining\""));
    EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
    EXPECT_EQ(fleet.router->process().wait_exit(), 0);
    EXPECT_TRUE(fleet.fakes[0]->process().wait_line({"abort "}));
}

TEST(RouterSurfaceTest, WhenTheDeadlineOfADrainRunsOutWhatIsLeftIsToldAndItEnds) {
    Fleet fleet(1, {"--slots", "1"}, {"--drain-deadline-s", "0.5", "--dispatch-ahead", "0"});
    RawClient running(fleet.router->port());
    running.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(running.read_body_bytes(300));
    RawClient queued(fleet.router->port());
    queued.post(kChat, chat_body("hi", false));
    while (fleet.router->metric("quadriga_router_queue_requests{class=\"default\"}") != 1) {
    }
    fleet.router->process().signal(SIGTERM);
    const Answer refused = queued.read_answer();
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.body, HasSubstr("\"draining\""));
    const Answer answer = running.read_answer();
    EXPECT_TRUE(answer.is_complete);
    EXPECT_THAT(answer.body, HasSubstr("event: error\n"));
    EXPECT_THAT(answer.body, HasSubstr("\"draining\""));
    EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
    EXPECT_TRUE(fleet.router->process().wait_line({"event=request ", "outcome=drained"}));
    EXPECT_EQ(fleet.router->process().wait_exit(), 0);
    EXPECT_TRUE(fleet.fakes[0]->process().wait_line({"abort "}));
}

TEST(RouterSurfaceTest, ItLeavesInPeaceWhileBodiesAreReadAndParsed) {
    constexpr std::size_t kBodies = 16;
    constexpr std::size_t kBodyBytes = std::size_t{3} << 20;
    Fleet fleet(1, {},
                {"--parse-threads", "1", "--drain-grace-s", "0", "--drain-deadline-s", "0.1"});
    const std::string body = long_chat(kBodyBytes);
    std::vector<std::unique_ptr<RawClient>> clients;
    for (std::size_t i = 0; i < kBodies; ++i) {
        clients.push_back(std::make_unique<RawClient>(fleet.router->port()));
        clients.back()->post("/v1/chat/completions", body);
    }
    RawClient halfway(fleet.router->port());
    halfway.send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
        "\r\nContent-Length: 1000\r\n\r\n{");
    fleet.router->process().signal(SIGTERM);
    EXPECT_EQ(fleet.router->process().wait_exit(), 0);
    EXPECT_EQ(fleet.router->process().count("ERROR:"), 0U) << fleet.router->process().text();
}

TEST(RouterSurfaceTest, TheEndOfTheLauncherIsTheEndOfTheRouterAndOfItsWork) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    Fake fake(0);
    auto router = std::make_unique<Router>(
        std::vector<std::string>{"--death-fd", "11", "--replica", fake.url()},
        std::vector<Child::Inherited>{{.fd = ends[0], .as = 11}});
    ASSERT_TRUE(router->wait_state(0, "READY"));
    RawClient running(router->port());
    running.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(running.read_body_bytes(300));
    ::close(ends[0]);
    ::close(ends[1]);
    EXPECT_EQ(router->process().wait_exit(), 0);
    EXPECT_TRUE(fake.process().wait_line({"abort "}));
}

TEST(RouterSurfaceTest, BadFlagsAndATakenPortAreOneLineAndACode) {
    const std::string program = std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router";
    const auto code_of = [&program](std::vector<std::string> flags) {
        flags.insert(flags.begin(), program);
        Child child(std::move(flags), Child::Listen::kStderr);
        return child.wait_exit();
    };
    EXPECT_EQ(code_of({"--no-such-flag"}), 2);
    EXPECT_EQ(code_of({"--replica", "ftp://x", "--port", "0"}), 2);
    EXPECT_EQ(code_of({"--internal-key-file", "/no/such/file"}), 2);
    EXPECT_EQ(code_of({"--help"}), 0);
    const Router first({});
    EXPECT_EQ(code_of({"--port", std::to_string(first.port())}), 6);
}

TEST(RouterSurfaceTest, WhatEndsItIsOneLineWithIdReasonAndFix) {
    const std::string program = std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router";
    const auto words_of = [&program](std::vector<std::string> flags) {
        flags.insert(flags.begin(), program);
        Child child(std::move(flags), Child::Listen::kStderr);
        (void)child.wait_exit();
        EXPECT_EQ(child.line_count(), 1U) << child.text();
        return child.text();
    };
    const std::string unknown = words_of({"--no-such-flag"});
    EXPECT_THAT(unknown, testing::StartsWith("quadriga-router: Q0200 config: "));
    EXPECT_THAT(unknown, HasSubstr("--no-such-flag"));
    EXPECT_THAT(unknown, HasSubstr("; fix: correct the flag"));
    const Router first({});
    const std::string taken = words_of({"--port", std::to_string(first.port())});
    EXPECT_THAT(taken, testing::StartsWith("quadriga-router: Q0600 port: cannot listen on "));
    EXPECT_THAT(taken, HasSubstr("; fix: give another --port"));
    // A check is asked by somebody who knows where the value is from.
    const std::string checked = words_of({"--check-config", "--replica", "ftp://x"});
    EXPECT_THAT(checked, testing::StartsWith("quadriga-router: Q0200 "));
    EXPECT_THAT(checked, Not(HasSubstr("; fix: ")));
}

TEST(RouterSurfaceTest, ItLeavesNoCoreBehindWithWhatItHeld) {
    Router router({});
    std::ifstream limits("/proc/" + std::to_string(router.process().pid()) + "/limits");
    std::string line;
    while (std::getline(limits, line) && line.find("Max core file size") == std::string::npos) {
    }
    EXPECT_THAT(line, testing::ContainsRegex("Max core file size +0 +0 "));
}

/// A listening socket for a child to inherit, and its port.
void listen_on_loopback(int& listener, int& port) {
    listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener, 16), 0);
    socklen_t size = sizeof address;
    ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
}

TEST(RouterSurfaceTest, AnInheritedListeningSocketIsServed) {
    int listener = -1;
    int port = 0;
    ASSERT_NO_FATAL_FAILURE(listen_on_loopback(listener, port));
    Child router({std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router", "--port", "1"},
                 Child::Listen::kStderr, {{.fd = listener, .as = 3}}, {"LISTEN_FDS=1"});
    EXPECT_TRUE(router.wait_line({"listening on http://127.0.0.1:" + std::to_string(port)}));
    EXPECT_EQ(
        proto::http_get("http://127.0.0.1:" + std::to_string(port) + "/health", kPatience).status,
        200);
    ::close(listener);
}

TEST(RouterSurfaceTest, ALogThatNobodyReadsHoldsNoRequest) {
    int listener = -1;
    int port = 0;
    ASSERT_NO_FATAL_FAILURE(listen_on_loopback(listener, port));
    std::array<int, 2> log{};
    ASSERT_EQ(::pipe2(log.data(), O_CLOEXEC), 0);
    ::fcntl(log[1], F_SETPIPE_SZ, 4096);  // full after a few requests
    Child router({std::string(QUADRIGA_BINARY_DIR) + "/bin/quadriga-router", "--port", "1",
                  "--drain-grace-s", "0"},
                 Child::Listen::kStdout, {{.fd = log[1], .as = 2}, {.fd = listener, .as = 3}},
                 {"LISTEN_FDS=1"});
    ::close(log[1]);
    constexpr int kRequests = 300;
    for (int i = 0; i < kRequests; ++i)
        ASSERT_EQ(fleet::get(port, "/v1/models").status, 200) << i;
    router.signal(SIGTERM);
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t count = 0; (count = ::read(log[0], piece.data(), piece.size())) > 0;)
        text.append(piece.data(), static_cast<std::size_t>(count));
    EXPECT_EQ(router.wait_exit(), 0);
    int lines = 0;
    for (std::size_t at = text.find("path=/v1/models"); at != std::string::npos;
         at = text.find("path=/v1/models", at + 1)) {
        ++lines;
    }
    EXPECT_EQ(lines, kRequests) << "a reader that comes late gets all that fits into the bound";
    ::close(log[0]);
    ::close(listener);
}

}  // namespace
}  // namespace fleet

// Clients that leave and replicas that fail, at every point of a request's way.
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "proto/http_client.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kChat = "/v1/chat/completions";

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++count;
    }
    return count;
}

/// User and system time of a process so far.
double cpu_seconds(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skipped;
    constexpr int kFieldsBefore = 11;  // state to cmajflt
    for (int i = 0; i < kFieldsBefore; ++i)
        fields >> skipped;
    double user = 0;
    double system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// A stream that broke off: whole events, one error event, no [DONE], a proper end.
void expect_clean_break(const Answer& answer, std::size_t events) {
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.is_complete) << "the chunked body ends properly";
    EXPECT_TRUE(answer.is_closed) << "and the connection with it";
    EXPECT_EQ(count_of(answer.body, "\"delta\":{\"content\""), events) << answer.body;
    EXPECT_EQ(count_of(answer.body, "[DONE]"), 0U);
    EXPECT_EQ(count_of(answer.body, "event: error\n"), 1U);
    EXPECT_EQ(count_of(answer.body, "\"code\":\"replica_lost\""), 1U);
    EXPECT_EQ(count_of(answer.body, "it is " + answer.header("x-request-id") + "."), 1U);
    EXPECT_EQ(answer.body.substr(answer.body.size() - 2), "\n\n");
    EXPECT_EQ(count_of(answer.body, "\n\n"), events + 1) << "no part of an event is left";
}

TEST(RouterFailureTest, R1_AClientThatLeavesDuringPrefillClosesTheUpstreamAtOnce) {
    Fleet fleet(1);
    std::size_t seen = 0;
    for (const bool is_stream : {true, false}) {
        for (const bool is_reset : {false, true}) {
            RawClient client(fleet.router->port());
            client.post(kChat, chat_body("ttft_ms=60000", is_stream));
            ASSERT_TRUE(fleet.fakes[0]->process().wait_count("arrival ", ++seen));
            const auto left_at = Clock::now();
            is_reset ? client.reset() : client.close();
            ASSERT_TRUE(fleet.fakes[0]->process().wait_count("abort ", seen));
            const auto took = Clock::now() - left_at;
            EXPECT_LT(took, std::chrono::seconds(1)) << "with three processes on a loaded machine";
        }
    }
    EXPECT_EQ(fleet.wait_idle(), "");
    // The router's own share of it.
    EXPECT_EQ(fleet.router->metric("quadriga_router_cancel_seconds_bucket{le=\"0.1\"}"), 4);
    EXPECT_EQ(fleet.router->metric("quadriga_router_client_aborts_total{phase=\"prefill\"}"), 4);
}

TEST(RouterFailureTest, AClientThatLeavesTheQueueOrAStreamIsForgottenToo) {
    Fleet fleet(1, {"--slots", "1"}, {"--dispatch-ahead", "0"});
    RawClient streaming(fleet.router->port());
    streaming.post(kChat, chat_body("tokens=100000 token_ms=1", true));
    ASSERT_TRUE(streaming.read_body_bytes(1000));
    RawClient waiting(fleet.router->port());
    waiting.post(kChat, chat_body("never", true), {"x-request-id: waiting-1"});
    while (fleet.router->metric("quadriga_router_queue_requests{class=\"default\"}") != 1) {
    }
    waiting.close();
    ASSERT_TRUE(fleet.router->process().wait_line({"waiting-1", "outcome=client_abort"}));
    streaming.reset();
    ASSERT_TRUE(fleet.fakes[0]->process().wait_line({"abort "}));
    EXPECT_EQ(fleet.wait_idle(), "");
    EXPECT_EQ(fleet.fakes[0]->arrivals(), 1U) << "what left the queue was never sent";
}

TEST(RouterFailureTest, R3_RefusalsOfTheReplicaPassThroughAndDoNotCountAgainstIt) {
    Fleet fleet(1, {"--max-model-len", "100"});
    const std::string long_body = chat_body(std::string(4000, 'x'), false);
    for (int i = 0; i < 50; ++i) {
        const Answer answer = post(fleet.router->port(), kChat, long_body);
        ASSERT_EQ(answer.status, 400);
        ASSERT_NE(answer.body.find("scripted overflow"), std::string::npos) << answer.body;
    }
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", false)).status, 200);
    EXPECT_EQ(fleet.fakes[0]->arrivals(), 51U) << "no retries";
}

TEST(RouterFailureTest, AReplicaKilledBeforeTheFirstByteIsReplacedByAnother) {
    std::vector<std::unique_ptr<Fake>> fakes;
    fakes.push_back(std::make_unique<Fake>(0, std::vector<std::string>{"--die-on", "poison"}));
    for (int i = 1; i < 4; ++i)
        fakes.push_back(std::make_unique<Fake>(i));
    Router router(replica_flags(fakes));
    for (int i = 0; i < 4; ++i)
        ASSERT_TRUE(router.wait_state(i, "READY"));
    // Four at once, one for each: the one that kills its replica is served elsewhere.
    const auto answers = post_all(
        router.port(), kChat, std::vector<std::string>(4, chat_body("poison ttft_ms=50", false)));
    for (const Answer& answer : answers)
        EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(fakes[0]->process().wait_exit(), -SIGKILL);
    ASSERT_TRUE(router.wait_state(0, "DOWN"));
    EXPECT_GE(router.metric("quadriga_router_retries_total{reason=\"lost\"}").value_or(0), 1);
}

TEST(RouterFailureTest, R6_AReplicaThatDiesInTheMiddleOfAnEventGivesOneErrorEvent) {
    Fleet fleet(1, {"--die-after-events", "20", "--tokens", "40"});
    RawClient client(fleet.router->port());
    client.post(kChat, chat_body("hi", true));
    expect_clean_break(client.read_to_end(), 20);
    EXPECT_TRUE(fleet.router->process().wait_line({"event=request", "outcome=upstream_error"}));
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterFailureTest, R6_AResetConnectionInTheMiddleOfAnEventDoesTheSame) {
    Fleet fleet(1, {"--reset-after-events", "20", "--tokens", "40", "--events-on", "now"});
    RawClient client(fleet.router->port());
    client.post(kChat, chat_body("break now", true));
    expect_clean_break(client.read_to_end(), 20);
    const Answer whole = post(fleet.router->port(), kChat, chat_body("go on", true));
    EXPECT_EQ(count_of(whole.body, "data: [DONE]\n\n"), 1U);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterFailureTest, AStreamThatBreaksBeforeItsFirstEventIsTriedOnceMore) {
    std::vector<std::unique_ptr<Fake>> fakes;
    fakes.push_back(
        std::make_unique<Fake>(0, std::vector<std::string>{"--reset-after-events", "0"}));
    fakes.push_back(std::make_unique<Fake>(1));
    Router router(replica_flags(fakes));
    for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(router.wait_state(i, "READY"));
    for (int i = 0; i < 2;
         ++i) {  // idle replicas take turns, so one of the two goes to the bad one
        const Answer answer = post(router.port(), kChat, chat_body("hi", true));
        EXPECT_EQ(answer.status, 200);
        EXPECT_EQ(count_of(answer.body, "data: [DONE]\n\n"), 1U);
        EXPECT_EQ(count_of(answer.body, "\"delta\":{\"content\""), 8U);
    }
    EXPECT_GE(fakes[0]->arrivals(), 1U);
}

TEST(RouterFailureTest, WhenTheOnlyReplicaDiesTheAnswerIsATrueStatus) {
    Fleet fleet(1, {"--die-on", "poison"});
    const Answer answer = post(fleet.router->port(), kChat, chat_body("poison", true));
    EXPECT_TRUE(answer.status == 502 || answer.status == 503) << answer.status;
    EXPECT_TRUE(answer.is_complete);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterFailureTest, ARequestThatKillsItsReplicaIsNotSentAThirdTime) {
    const std::vector<std::pair<std::string, std::string>> poisons = {
        {kChat, chat_body("poison", false)}, {"/tokenize", R"({"content":"poison"})"}};
    for (const auto& [path, body] : poisons) {
        Fleet fleet(3, {"--die-on", "poison"});
        const Answer answer = post(fleet.router->port(), path, body);
        EXPECT_EQ(answer.status, 502) << path;
        EXPECT_NE(answer.body.find("\"replica_lost\""), std::string::npos) << answer.body;
        EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", false)).status, 200)
            << path << ": the third replica lives";
    }
}

TEST(RouterFailureTest, ABrokenConnectionToALiveReplicaTakesNoOtherRequestWithIt) {
    Fleet fleet(2, {"--drop-on", "drop"});
    constexpr std::size_t kBystanders = 4;
    std::vector<std::unique_ptr<RawClient>> bystanders;
    for (std::size_t i = 0; i < kBystanders; ++i) {
        bystanders.push_back(std::make_unique<RawClient>(fleet.router->port()));
        bystanders.back()->post(kChat, chat_body("ttft_ms=1500", i % 2 == 0));
    }
    while (fleet.fakes[0]->arrivals() + fleet.fakes[1]->arrivals() < kBystanders) {
    }
    // Every connection there is is busy, so these are new ones, closed without a byte.
    const Answer dropped = post(fleet.router->port(), kChat, chat_body("drop", false));
    EXPECT_EQ(dropped.status, 502) << "after one more try";
    for (const auto& bystander : bystanders)
        EXPECT_EQ(bystander->read_answer().status, 200);
    EXPECT_EQ(fleet.fakes[0]->arrivals() + fleet.fakes[1]->arrivals(), kBystanders + 2);
    EXPECT_EQ(fleet.router->process().count("to=DOWN"), 0U);
    EXPECT_EQ(fleet.router->metric("quadriga_router_poison_requests_total"), 0);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterFailureTest, R15_BusyReplicasGiveTheirOwn429AndFewExtraAttempts) {
    Fleet fleet(2, {"--refuse", "429", "--retry-after", "7"}, {"--queue-wait-s", "0.3"});
    int refused = 0;
    for (int i = 0; i < 10; ++i) {
        const Answer answer = post(fleet.router->port(), kChat, chat_body("hi", false));
        EXPECT_EQ(answer.status, 429) << "never 502";
        EXPECT_NE(answer.header("retry-after"), "");
        ++refused;
    }
    const std::size_t arrivals = fleet.fakes[0]->arrivals() + fleet.fakes[1]->arrivals();
    EXPECT_LE(arrivals, static_cast<std::size_t>(refused) + 3) << "the budget's minimum";
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterFailureTest, R16_StartsWithNoReplicaAliveAndRecoversByItself) {
    const ReservedPort reserved;
    const int port = reserved.port();
    Router router({"--replica", "http://127.0.0.1:" + std::to_string(port)});
    ASSERT_TRUE(router.wait_state(0, "DOWN"));
    const Answer early = post(router.port(), kChat, chat_body("hi", false));
    EXPECT_EQ(early.status, 503);
    EXPECT_NE(early.body.find("\"no_replica_ready\""), std::string::npos) << early.body;
    EXPECT_EQ(early.header("retry-after"), "30");
    EXPECT_EQ(proto::http_get(router.url("/health"), kPatience).status, 200);
    EXPECT_EQ(proto::http_get(router.url("/ready"), kPatience).status, 503);

    // It looks for the replica all the time, and does not run in circles over it. A second of its
    // life, of which it may use a small part; a loaded machine makes it less, never more.
    const double before_s = cpu_seconds(router.process().pid());
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_LT(cpu_seconds(router.process().pid()) - before_s, 0.3);

    auto replica = std::make_unique<Fake>(0, std::vector<std::string>{}, port);
    ASSERT_TRUE(router.wait_state(0, "READY"));
    EXPECT_EQ(post(router.port(), kChat, chat_body("hi", false)).status, 200);

    // It dies under load and comes back as another process.
    RawClient client(router.port());
    client.post(kChat, chat_body("tokens=100000 token_ms=1", true));
    ASSERT_TRUE(client.read_body_bytes(500));
    replica->process().signal(SIGKILL);
    ASSERT_EQ(replica->process().wait_exit(), -SIGKILL);  // its port is free again
    EXPECT_EQ(count_of(client.read_answer().body, "\"replica_lost\""), 1U);
    const std::size_t seen = router.process().line_count();
    replica = std::make_unique<Fake>(0, std::vector<std::string>{}, port);
    ASSERT_TRUE(router.process().wait_line(
        {"event=replica_instance", "instance=" + replica->instance()}, seen));
    EXPECT_EQ(post(router.port(), kChat, chat_body("hi", false)).status, 200);
}

TEST(RouterFailureTest, R4_AStoppedReplicaGetsNoNewWorkAndItsWaitingWorkMovesOn) {
    Fleet fleet(2, {}, {"--silence-down-s", "1", "--stream-idle-s", "1", "--ping-s", "0.5"});
    // Find out which replica takes a stream, and stop it while it also holds one without a byte.
    RawClient streaming(fleet.router->port());
    streaming.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(streaming.read_body_bytes(500));
    const std::size_t held = fleet.fakes[0]->arrivals() == 1 ? 0 : 1;
    RawClient other(fleet.router->port());  // goes to the idle one
    other.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(other.read_body_bytes(500));
    fleet.fakes[held]->process().signal(SIGSTOP);
    ASSERT_TRUE(
        fleet.router->process().wait_line({"replica=" + std::to_string(held) + " ", "to=SUSPECT"}));
    const Answer elsewhere = post(fleet.router->port(), kChat, chat_body("hi", false));
    EXPECT_EQ(elsewhere.status, 200);
    const Answer broken = streaming.read_answer();
    EXPECT_EQ(count_of(broken.body, "event: error\n"), 1U);
    EXPECT_EQ(count_of(broken.body, "[DONE]"), 0U);
    ASSERT_TRUE(other.read_body_bytes(3000)) << "streams elsewhere go on";
    fleet.fakes[held]->process().signal(SIGCONT);
    other.close();
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterFailureTest, ALongPlainAnswerIsCutWhenItsReplicaIsSilentAndDown) {
    Fleet fleet(1, {}, {"--silence-down-s", "1.5", "--stream-idle-s", "1", "--ping-s", "0.5"});
    RawClient client(fleet.router->port());
    client.post(kChat, chat_body("hold_after=1500000", false));
    ASSERT_TRUE(client.read_body_bytes(1'100'000)) << "more than is held, so it has begun";
    fleet.fakes[0]->process().signal(SIGSTOP);
    const Answer cut = client.read_to_end();
    EXPECT_EQ(cut.status, 200);
    EXPECT_FALSE(cut.is_complete) << "no final chunk";
    EXPECT_TRUE(cut.is_closed);
    EXPECT_TRUE(fleet.router->process().wait_line(
        {"event=request ", "outcome=upstream_stall", "error=replica_timeout"}));
    EXPECT_EQ(fleet.router->metric("quadriga_router_stream_errors_total{reason=\"stalled\"}"), 1);
    EXPECT_EQ(fleet.wait_idle(), "") << "upstream_inflight too";
}

TEST(RouterFailureTest, ALongPlainAnswerThatPausesOnALivingReplicaGoesOn) {
    Fleet fleet(1, {}, {"--stream-idle-s", "0.2"});
    RawClient client(fleet.router->port());
    client.post(kChat, chat_body("hold_after=1500000", false));
    ASSERT_TRUE(client.read_body_bytes(1'500'000));
    // Three reports later, each a second after the other, more than the limit has passed.
    const Answer other = post(fleet.router->port(), kChat, chat_body("ttft_ms=1000", false));
    EXPECT_EQ(other.status, 200);
    EXPECT_EQ(fleet.router->metric("quadriga_router_upstream_inflight{replica=\"0\"}"), 1);
    client.close();
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterFailureTest, ARequestWhoseReplicasAllHangIs504AndUpstreamStall) {
    for (const bool is_stream : {false, true}) {
        Fleet fleet(2, {"--no-progress"}, {"--step-suspect-s", "0.3", "--step-stall-s", "0.6"});
        const Answer answer = post(fleet.router->port(), kChat, chat_body("hi", is_stream));
        EXPECT_EQ(answer.status, 504) << answer.body;
        EXPECT_EQ(count_of(answer.body, "\"code\":\"replica_timeout\""), 1U) << answer.body;
        EXPECT_TRUE(fleet.router->process().wait_line(
            {"event=request ", "status=504", "outcome=upstream_stall", "attempts=2"}));
        EXPECT_EQ(fleet.fakes[0]->arrivals() + fleet.fakes[1]->arrivals(), 2U);
        EXPECT_EQ(fleet.wait_idle(), "");
    }
}

TEST(RouterFailureTest, AReplicaThatHangsAndOneThatBreaksOffAre502) {
    std::vector<std::unique_ptr<Fake>> fakes;
    fakes.push_back(std::make_unique<Fake>(0, std::vector<std::string>{"--no-progress"}));
    fakes.push_back(std::make_unique<Fake>(1, std::vector<std::string>{"--drop-on", "drop"}));
    std::vector<std::string> flags = replica_flags(fakes);
    flags.insert(flags.end(), {"--step-suspect-s", "0.3", "--step-stall-s", "0.6"});
    Router router(flags);
    for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(router.wait_state(i, "READY"));
    const Answer answer = post(router.port(), kChat, chat_body("drop", false));
    EXPECT_EQ(answer.status, 502) << answer.body;
    EXPECT_TRUE(router.process().wait_line({"event=request ", "outcome=upstream_error"}));
}

TEST(RouterFailureTest, ARequestWithoutAFirstByteLeavesAStoppedReplica) {
    Fleet fleet(1, {}, {"--silence-down-s", "1"});
    RawClient client(fleet.router->port());
    client.post(kChat, chat_body("ttft_ms=300", false));
    ASSERT_TRUE(fleet.fakes[0]->process().wait_line({"arrival "}));
    fleet.fakes[0]->process().signal(SIGSTOP);
    const Answer answer = client.read_answer();
    EXPECT_TRUE(answer.status == 502 || answer.status == 503) << answer.status;
    EXPECT_EQ(fleet.wait_idle(), "");
}

}  // namespace
}  // namespace fleet

// Cases of the router's specification (section 16) over four scripted replicas with 8 slots, named
// after their numbers. Times of the specification are scaled by flags; what is measured on the way
// is printed, and what is asserted leaves room for a loaded machine.
#include <csignal>
#include <iostream>
#include <map>
#include <memory>

#include <gmock/gmock.h>

#include "proto/http_client.h"
#include "proto/json.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;
using testing::Not;
constexpr const char* kChat = "/v1/chat/completions";

std::int64_t at_us(const std::string& line) {
    const std::size_t at = line.find("at_us=");
    return at == std::string::npos ? 0 : std::stoll(line.substr(at + 6));
}

std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
        .count();
}

/// The replica that has logged `part` with this request's id; waits until one has.
std::size_t holder_of(const Fleet& fleet, const std::string& part, const std::string& id) {
    const auto deadline = Clock::now() + kPatience;
    while (Clock::now() < deadline) {  // each look is a round trip
        for (std::size_t i = 0; i < fleet.fakes.size(); ++i) {
            (void)fleet.fakes[i]->arrivals();
            const std::string log = fleet.fakes[i]->process().text();
            const std::size_t at = log.find("request_id=" + id + " ");
            if (at != std::string::npos && log.find(part) != std::string::npos) return i;
        }
    }
    throw std::runtime_error(id + " never arrived");
}

TEST(RouterCasesTest, R1_AClientThatLeavesAnywhereIsGoneAtItsReplicaAtOnce) {
    Fleet fleet(4);
    int number = 0;
    for (const bool is_stream : {true, false}) {
        for (const char* text : {"ttft_ms=60000", "tokens=100000 token_ms=5"}) {
            const std::string id = "leaver-" + std::to_string(++number);
            RawClient client(fleet.router->port());
            client.post(kChat, chat_body(text, is_stream), {"x-request-id: " + id});
            Child& log = fleet.fakes[holder_of(fleet, "arrival ", id)]->process();
            if (is_stream && std::string(text).find("token_ms") != std::string::npos) {
                ASSERT_TRUE(client.read_body_bytes(500));
            }
            const std::int64_t left_us = now_us();
            client.close();
            const auto line = log.wait_line({"abort ", "request_id=" + id + " "});
            ASSERT_TRUE(line) << id;
            const std::int64_t took_us = at_us(*line) - left_us;
            std::cout << "[ MEASURED ] " << (is_stream ? "stream " : "whole  ") << text << ": "
                      << took_us << " us from close to the replica's abort\n";
            EXPECT_LT(took_us, 1'000'000) << "100 ms, and room for a loaded machine";
        }
    }
    EXPECT_EQ(fleet.wait_idle(), "");
    EXPECT_EQ(fleet.router->metric("quadriga_router_cancel_seconds_bucket{le=\"0.1\"}"), 4)
        << "the router's own share";
}

TEST(RouterCasesTest, R3_OverlongPromptsAreAnsweredByTheReplicaAndOpenNoBreaker) {
    Fleet fleet(4, {"--max-model-len", "100"});
    const std::string long_body = chat_body(std::string(4000, 'x'), false);
    for (int i = 0; i < 50; ++i) {
        const Answer answer = post(fleet.router->port(), kChat, long_body);
        ASSERT_EQ(answer.status, 400);
        ASSERT_THAT(answer.body, HasSubstr("scripted overflow"));
    }
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", false)).status, 200);
    for (int i = 0; i < 4; ++i) {
        const std::string label = "{replica=\"" + std::to_string(i) + "\"}";
        EXPECT_EQ(fleet.router->metric("quadriga_router_breaker_state" + label), 0);
    }
}

TEST(RouterCasesTest, R4_AStoppedReplicasWaitingWorkMovesOnWhateverTheRetryBudget) {
    Fleet fleet(4, {}, {"--silence-down-s", "1.5", "--stream-idle-s", "1.5", "--ping-s", "0.5"});
    const int port = fleet.router->port();
    // Three times eight requests without a first byte, so that six or more are on each replica.
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 24; ++i) {
        clients.push_back(std::make_unique<RawClient>(port));
        clients.back()->post(kChat, chat_body("ttft_ms=2500", false));
    }
    for (const auto& fake : fleet.fakes)
        ASSERT_TRUE(fake->process().wait_count("arrival ", 4));
    fleet.fakes[1]->process().signal(SIGSTOP);
    for (const auto& client : clients)
        EXPECT_EQ(client->read_answer().status, 200) << "none is lost with it";
    EXPECT_EQ(fleet.router->metric("quadriga_router_retry_budget_exhausted_total"), 0);
    fleet.fakes[1]->process().signal(SIGCONT);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterCasesTest, R6_ATruncatedStreamIsABreakToo) {
    Fleet fleet(4, {"--truncate-after-events", "20", "--tokens", "40"});
    RawClient client(fleet.router->port());
    client.post(kChat, chat_body("hi", true));
    const Answer answer = client.read_to_end();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.is_complete);
    EXPECT_THAT(answer.body, HasSubstr("event: error\n"));
    EXPECT_THAT(answer.body, HasSubstr("\"replica_lost\""));
    EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
    EXPECT_TRUE(fleet.router->process().wait_line({"event=request", "outcome=upstream_error"}));
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterCasesTest, R7_EventsOfMoreThanTheHoldAndOfOneByteSegmentsPassUnchanged) {
    for (const std::vector<std::string>& flags :
         {std::vector<std::string>{"--segment-bytes", "1", "--tokens", "30"},
          std::vector<std::string>{"--event-bytes", "1500000", "--tokens", "3"}}) {
        Fleet fleet(1, flags);
        const std::string body = chat_body("hi", true);
        const Answer direct = post(fleet.fakes[0]->port(), kChat, body);
        const Answer relayed = post(fleet.router->port(), kChat, body);
        EXPECT_TRUE(relayed.is_complete);
        EXPECT_TRUE(relayed.body == direct.body) << relayed.body.size() << direct.body.size();
        EXPECT_EQ(relayed.body.find("\xEF\xBF\xBD"), std::string::npos) << "no U+FFFD";
    }
}

TEST(RouterCasesTest, R13_AReplicaThatTakesWorkAndMakesNoStepIsFoundOutAndItsWorkMoved) {
    std::vector<std::unique_ptr<Fake>> fakes;
    fakes.push_back(std::make_unique<Fake>(0, std::vector<std::string>{"--no-progress"}));
    for (int i = 1; i < 4; ++i)
        fakes.push_back(std::make_unique<Fake>(i));
    std::vector<std::string> flags = replica_flags(fakes);
    flags.insert(flags.end(), {"--step-suspect-s", "0.5", "--step-stall-s", "2"});
    Router router(flags);
    for (int i = 0; i < 4; ++i)
        ASSERT_TRUE(router.wait_state(i, "READY"));
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 16; ++i) {
        clients.push_back(std::make_unique<RawClient>(router.port()));
        clients.back()->post(kChat, chat_body("ttft_ms=50", i % 2 == 0));
    }
    ASSERT_TRUE(fakes[0]->process().wait_line({"arrival "}));
    EXPECT_EQ(proto::http_get(fakes[0]->url() + "/health", kPatience).status, 200) << "it lies";
    for (const auto& client : clients)
        EXPECT_EQ(client->read_answer().status, 200) << "served elsewhere";
    EXPECT_TRUE(router.process().wait_line({"event=replica_state", "replica=0 ", "to=SUSPECT"}));
    EXPECT_TRUE(router.process().wait_line({"event=replica_state", "replica=0 ", "to=DOWN"}));
}

TEST(RouterCasesTest, R14_ALongPrefillWhoseStepsAdvanceIsLeftAlone) {
    // The first token takes three times what a stall would be; the others' events advance the
    // steps.
    Fleet fleet(1, {"--health-lies"}, {"--step-suspect-s", "1", "--step-stall-s", "2"});
    RawClient steps(fleet.router->port());
    steps.post(kChat, chat_body("tokens=100000 token_ms=20", true));
    ASSERT_TRUE(steps.read_body_bytes(500));
    const std::size_t before = fleet.fakes[0]->arrivals();
    RawClient slow(fleet.router->port());
    slow.post(kChat, chat_body("ttft_ms=6000", false));
    EXPECT_EQ(slow.read_answer().status, 200);
    EXPECT_EQ(fleet.fakes[0]->arrivals(), before + 1) << "nothing was sent again";
    EXPECT_EQ(fleet.router->process().count("to=SUSPECT"), 0U);
    EXPECT_EQ(fleet.router->process().count("to=DOWN"), 0U);
    steps.close();
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterCasesTest, R15_AFullFleetIsLeftInPeaceUntilItsRetryAfter) {
    Fleet fleet(4, {"--refuse", "429", "--retry-after", "60", "--reports-full"},
                {"--queue-wait-s", "0.5", "--step-suspect-s", "3600", "--step-stall-s", "3600",
                 "--dispatch-ahead", "2"});
    const std::vector<std::string> bodies(40, chat_body("hi", false));
    const auto answers = post_all(fleet.router->port(), kChat, bodies);
    for (const Answer& answer : answers)
        EXPECT_EQ(answer.status, 429) << "never 502";
    std::size_t arrivals = 0;
    for (const auto& fake : fleet.fakes)
        arrivals += fake->arrivals();
    EXPECT_LE(arrivals, 4U + 4U) << "each is asked once, and the budget's few";
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterCasesTest, R16_AllFourDieUnderLoadAndReturn) {
    std::vector<std::unique_ptr<ReservedPort>> ports;
    std::vector<std::unique_ptr<Fake>> fakes;
    std::vector<std::string> flags;
    for (int i = 0; i < 4; ++i) {
        ports.push_back(std::make_unique<ReservedPort>());
        flags.insert(flags.end(),
                     {"--replica", "http://127.0.0.1:" + std::to_string(ports.back()->port())});
    }
    Router router(flags);
    EXPECT_EQ(post(router.port(), kChat, chat_body("hi", false)).status / 100, 5);
    for (int i = 0; i < 4; ++i) {
        fakes.push_back(std::make_unique<Fake>(i, std::vector<std::string>{},
                                               ports[static_cast<std::size_t>(i)]->port()));
        ASSERT_TRUE(router.wait_state(i, "READY"));
    }
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 24; ++i) {
        clients.push_back(std::make_unique<RawClient>(router.port()));
        clients.back()->post(kChat, chat_body("tokens=100000 token_ms=2", true));
        ASSERT_TRUE(clients.back()->read_body_bytes(300));
    }
    for (const auto& fake : fakes)
        fake->process().signal(SIGKILL);
    for (const auto& client : clients) {
        const Answer answer = client->read_to_end();
        EXPECT_TRUE(answer.is_complete);
        EXPECT_THAT(answer.body, HasSubstr("\"replica_lost\""));
        EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
    }
    for (const auto& fake : fakes)
        ASSERT_EQ(fake->process().wait_exit(), -SIGKILL);
    const Answer meanwhile = post(router.port(), kChat, chat_body("hi", false));
    EXPECT_EQ(meanwhile.status, 503);
    EXPECT_NE(meanwhile.header("retry-after"), "");
    for (int i = 0; i < 4; ++i) {
        const auto place = static_cast<std::size_t>(i);
        fakes[place] = std::make_unique<Fake>(i, std::vector<std::string>{}, ports[place]->port());
        ASSERT_TRUE(router.process().wait_line(
            {"event=replica_instance", "instance=" + fakes[place]->instance()}));
    }
    EXPECT_EQ(post(router.port(), kChat, chat_body("hi", false)).status, 200);
}

TEST(RouterCasesTest, R17_DeepJsonIsRefusedAndTheNextRequestServed) {
    Fleet fleet(4);
    const int port = fleet.router->port();
    std::string deep = R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",)"
                       R"("function":{"name":"f","parameters":)";
    for (int i = 0; i < 100'000; ++i)
        deep += R"({"a":)";
    deep += "1" + std::string(100'000, '}') + "}}]}";
    for (const std::string& body : {deep, std::string(1'000'000, '[')}) {
        const Answer answer = post(port, kChat, body);
        EXPECT_EQ(answer.status, 400);
        EXPECT_THAT(answer.body, HasSubstr("\"json_too_deep\""));
        EXPECT_EQ(post(port, kChat, chat_body("hi", false)).status, 200);
    }
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterCasesTest, R18_HugeAndNegativeNumbersAre400WithTheirNameAndHugeHeads431) {
    Fleet fleet(4);
    const int port = fleet.router->port();
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"n", "1000000"},
        {"max_tokens", "-1"},
        {"max_tokens", "99999999999999999999999"},
        {"seed", "99999999999999999999999"},
        {"top_logprobs", "-1"},
        {"top_logprobs", "99999999999999999999999"},
        {"logit_bias", R"({"99999999999999999999999":1})"},
        {"logit_bias", R"({"-1":1})"}};
    for (const auto& [name, value] : cases) {
        const Answer answer =
            post(port, kChat,
                 R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,")" + name +
                     "\":" + value + "}");
        EXPECT_EQ(answer.status, 400) << name << "=" << value;
        EXPECT_THAT(answer.body, HasSubstr("\"param\":\"" + name)) << value;
    }
    RawClient huge(port);
    huge.post(kChat, "{}", {"x-long: " + std::string(10'000'000, 'a')});
    EXPECT_EQ(huge.read_answer().status, 431);
    std::size_t arrivals = 0;
    for (const auto& fake : fleet.fakes)
        arrivals += fake->arrivals();
    EXPECT_EQ(arrivals, 0U) << "no replica saw any of it";
    EXPECT_EQ(post(port, kChat, chat_body("hi", false)).status, 200);
}

TEST(RouterCasesTest, AFailingReplicaIsShutOutAndTriedAgainUntilItWorks) {
    std::vector<std::unique_ptr<Fake>> fakes;
    fakes.push_back(std::make_unique<Fake>(
        0, std::vector<std::string>{"--refuse", "500", "--refuse-on", "break"}));
    fakes.push_back(std::make_unique<Fake>(1));
    Router router(replica_flags(fakes));
    for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(router.wait_state(i, "READY"));
    const std::string opened =
        "quadriga_router_breaker_transitions_total{replica=\"0\",to=\"open\"}";
    while (router.metric(opened).value_or(0) < 1) {  // idle replicas take turns
        (void)post(router.port(), kChat, chat_body("break", false));
    }
    // Healthy requests: the first one after the open time is the trial, and closes it.
    while (router.metric("quadriga_router_breaker_state{replica=\"0\"}") != 0) {
        EXPECT_EQ(post(router.port(), kChat, chat_body("hi", false)).status, 200);
    }
    EXPECT_GE(router.metric("quadriga_router_decisions_total{reason=\"trial\",replica=\"0\"}")
                  .value_or(0),
              1);
}

TEST(RouterCasesTest, ARequestThatWasOnTwoInstancesAsTheyDiedIsPoison) {
    Fleet fleet(4, {"--die-on", "poison"}, {"--retries-max", "3"});
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("poison", false)).status, 502);
    EXPECT_EQ(fleet.router->metric("quadriga_router_poison_requests_total"), 1);
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", false)).status, 200);
}

TEST(RouterCasesTest, AStopOfTheRouterItselfIsNotTheReplicasSilence) {
    Fleet fleet(2, {}, {"--silence-down-s", "1"});
    RawClient streaming(fleet.router->port());
    streaming.post(kChat, chat_body("tokens=100000 token_ms=5", true));
    ASSERT_TRUE(streaming.read_body_bytes(500));
    fleet.router->process().signal(SIGSTOP);
    // Replicas report once a second: three of them have been silent for longer than the limit.
    fleet.fakes[0]->process().signal(SIGSTOP);
    fleet.fakes[1]->process().signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // the stop itself, not a wait
    fleet.router->process().signal(SIGCONT);
    ASSERT_TRUE(fleet.router->process().wait_line({"event=was_stopped"}));
    for (const auto& fake : fleet.fakes)
        fake->process().signal(SIGCONT);
    ASSERT_TRUE(streaming.read_body_bytes(5000));
    EXPECT_EQ(fleet.router->process().count("to=DOWN"), 0U);
}

}  // namespace
}  // namespace fleet

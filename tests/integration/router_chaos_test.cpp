// The router between ends that are late, slow, cut or silent: chaos proxies stand between it and
// its replicas, or between a client and it.
#include <gmock/gmock.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"
#include "tests/support/chaos_proxy.h"

namespace fleet {
namespace {

using namespace std::chrono_literals;
using support::Chaos;
using support::ChaosProxy;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kChat = "/v1/chat/completions";

std::uint16_t port_of(int port) {
    return static_cast<std::uint16_t>(port);
}

/// One replica with all of its connections spoiled as `up` and `down` say, and a router.
struct SpoiledReplica {
    SpoiledReplica(const std::vector<std::string>& fake_flags,
                   const std::vector<std::string>& router_flags)
        : fake(0, fake_flags), proxy(port_of(fake.port())) {
        std::vector<std::string> flags = {"--replica",
                                          "http://127.0.0.1:" + std::to_string(proxy.port())};
        flags.insert(flags.end(), router_flags.begin(), router_flags.end());
        router = std::make_unique<Router>(flags);
    }

    Fake fake;
    ChaosProxy proxy;
    std::unique_ptr<Router> router;
};

TEST(RouterChaosTest, R7_AnswersInSegmentsOfOneByteAndLateOnesAreTheSame) {
    SpoiledReplica spoiled({"--tokens", "30"}, {});
    ASSERT_TRUE(spoiled.router->wait_state(0, "READY"));
    const std::string body = chat_body("hi", true);
    const Answer direct = post(spoiled.fake.port(), kChat, body);
    for (const Chaos& down :
         {Chaos{.slice_bytes = 1}, Chaos{.latency = 20ms}, Chaos{.bytes_per_s = 50'000}}) {
        spoiled.proxy.set({}, down);
        const Answer relayed = post(spoiled.router->port(), kChat, body);
        EXPECT_EQ(relayed.status, 200);
        EXPECT_TRUE(relayed.is_complete);
        EXPECT_EQ(relayed.body, direct.body);
        // The next request takes a new connection, hence what is set next.
        spoiled.proxy.reset_all();
        ASSERT_TRUE(spoiled.router->wait_state(0, "READY"));
    }
}

TEST(RouterChaosTest, R6_AConnectionCutAnywhereEndsInWholeEventsAndOneErrorEvent) {
    SpoiledReplica spoiled({"--tokens", "100000", "--token-ms", "1"}, {});
    ASSERT_TRUE(spoiled.router->wait_state(0, "READY"));
    const Answer beginning =
        post(spoiled.fake.port(), kChat, chat_body("tokens=100 token_ms=0", true));
    // Pieces of seven bytes, so that most cuts are in the middle of an event.
    spoiled.proxy.set({}, {.slice_bytes = 7});
    spoiled.proxy.reset_all();
    for (std::size_t bytes = 200; bytes < 2000; bytes += 311) {
        RawClient client(spoiled.router->port());
        client.post(kChat, chat_body("hi", true));
        ASSERT_TRUE(client.read_body_bytes(bytes));
        spoiled.proxy.reset_all();
        const Answer answer = client.read_to_end();
        EXPECT_EQ(answer.status, 200);
        EXPECT_TRUE(answer.is_complete) << "the chunked body ends properly";
        EXPECT_THAT(answer.body, HasSubstr("event: error\n"));
        EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
        const std::string events = answer.body.substr(0, answer.body.find("event: error\n"));
        EXPECT_TRUE(events.ends_with("\n\n")) << "whole events";
        const std::size_t known = std::min(events.size(), beginning.body.size() / 2);
        EXPECT_EQ(events.substr(0, known), beginning.body.substr(0, known));
    }
}

TEST(RouterChaosTest, AReplicaBehindADeadCableIsDownAndItsWorkGoesElsewhere) {
    Fake lost(0);
    Fake other(1);
    ChaosProxy proxy(port_of(lost.port()));
    Router router({"--replica", "http://127.0.0.1:" + std::to_string(proxy.port()), "--replica",
                   other.url(), "--silence-down-s", "1"});
    ASSERT_TRUE(router.wait_state(0, "READY"));
    ASSERT_TRUE(router.wait_state(1, "READY"));
    // From now on it takes connections and answers nothing.
    proxy.set({.timeout = 0ms}, {.timeout = 0ms});
    proxy.reset_all();
    for (int i = 0; i < 4; ++i)
        EXPECT_EQ(post(router.port(), kChat, chat_body("hi", i % 2 == 0)).status, 200);
    ASSERT_TRUE(router.wait_state(0, "DOWN"));
    // The cable is mended.
    const std::size_t seen = router.process().line_count();
    proxy.set({}, {});
    proxy.reset_all();
    ASSERT_TRUE(
        router.process().wait_line({"event=replica_state", "replica=0 ", "to=READY"}, seen));
}

TEST(RouterChaosTest, AClientOnASlowLineGetsEveryByteAndHoldsNobodyUp) {
    Fleet fleet(1, {"--tokens", "200"});
    ChaosProxy line(port_of(fleet.router->port()));
    line.set({}, {.bytes_per_s = 20'000});
    RawClient slow(line.port());
    slow.post(kChat, chat_body("hi", true));
    ASSERT_TRUE(slow.read_body_bytes(1));
    const Answer quick = post(fleet.router->port(), kChat, chat_body("hi", true));
    EXPECT_TRUE(quick.is_complete);
    const Answer late = slow.read_answer();
    EXPECT_TRUE(late.is_complete);
    EXPECT_EQ(late.body, quick.body);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterChaosTest, ClientsThatAreCutOffAnywhereLeaveNothingBehind) {
    Fleet fleet(2, {"--tokens", "100000", "--token-ms", "1"});
    ChaosProxy line(port_of(fleet.router->port()));
    for (const Chaos& up : {Chaos{.limit_bytes = 50}, Chaos{.limit_bytes = 120}}) {
        line.set(up, {});
        RawClient client(line.port());
        client.post(kChat, chat_body("hi", true));
        (void)client.read_to_end();  // cut within the head or the body
    }
    for (const std::size_t limit : {300U, 1000U, 5000U}) {
        line.set({}, {.limit_bytes = limit});
        RawClient client(line.port());
        client.post(kChat, chat_body("hi", true));
        (void)client.read_to_end();
    }
    EXPECT_EQ(fleet.wait_idle(), "");
    EXPECT_EQ(fleet.router->metric("quadriga_router_client_aborts_total{phase=\"decode\"}"), 3);
}

}  // namespace
}  // namespace fleet

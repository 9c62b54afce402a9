// Flags of the router whose effect no other test shows: each is set to a value that can be seen.
#include <csignal>

#include <gmock/gmock.h>

#include "tests/integration/router_announcer.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"
#include "tests/support/temp_folder.h"

namespace fleet {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kChat = "/v1/chat/completions";

TEST(RouterFlagsTest, QueueWaitStartingBoundsTheWaitForAReplicaThatLoads) {
    Announcer announcer;
    Fake fake(0);
    Router router({"--announce-fd", "10", "--queue-wait-starting-s", "0.3"},
                  {announcer.inherited()});
    announcer.say(fake, 0, proto::ReplicaState::kLoading, fake.instance());
    while (get(router.port(), "/ready").body.find("loading") == std::string::npos) {
    }
    const Answer late = post(router.port(), kChat, chat_body("hi", false));
    EXPECT_EQ(late.status, 503);
    EXPECT_THAT(late.body, HasSubstr("\"no_replica_ready\""));
    EXPECT_EQ(late.header("retry-after"), "7") << "the launcher's estimate";
    EXPECT_EQ(fake.arrivals(), 0U);
}

TEST(RouterFlagsTest, SlowStartHoldsANewReplicaBackWhileAnotherCanCarryTheLoad) {
    const ReservedPort port;
    Fake old(0);
    Router router({"--replica", old.url(), "--replica",
                   "http://127.0.0.1:" + std::to_string(port.port()), "--slow-start-s", "2.5"});
    ASSERT_TRUE(router.wait_state(0, "READY"));
    // The time passes while the first replica works; its own slow start is over then.
    EXPECT_EQ(post(router.port(), kChat, chat_body("ttft_ms=2600", false)).status, 200);
    Fake fresh(1, {}, port.port());
    ASSERT_TRUE(router.wait_state(1, "READY"));
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 16; ++i) {
        clients.push_back(std::make_unique<RawClient>(router.port()));
        clients.back()->post(kChat, chat_body("ttft_ms=800", false));
    }
    ASSERT_TRUE(old.process().wait_count("arrival ", 1 + 8)) << "the old one is full";
    EXPECT_LT(fresh.arrivals(), 8U) << "and the new one has not got its half yet";
    for (const auto& client : clients)
        EXPECT_EQ(client->read_answer().status, 200);
}

TEST(RouterFlagsTest, WriteStallCutsAClientThatReadsNothing) {
    Fleet fleet(1, {"--event-bytes", "200000", "--tokens", "100000"}, {"--write-stall-s", "0.5"});
    RawClient deaf(fleet.router->port());
    deaf.post(kChat, chat_body("hi", true));
    ASSERT_TRUE(fleet.fakes[0]->process().wait_line({"abort "}));
    EXPECT_TRUE(fleet.router->process().wait_line({"event=request ", "outcome=client_abort"}));
    while (fleet.router->metric("quadriga_router_slow_client_aborts_total") != 1) {
    }
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterFlagsTest, StreamBufferBytesIsTheLongestEventThatIsHeldBack) {
    Fleet fleet(1,
                {"--event-bytes", "60000", "--tokens", "3", "--reset-after-events", "2",
                 "--events-on", "now"},
                {"--stream-buffer-bytes", "4096"});
    const std::string body = chat_body("hi", true);
    EXPECT_TRUE(post(fleet.router->port(), kChat, body).body ==
                post(fleet.fakes[0]->port(), kChat, body).body)
        << "byte for byte";
    const Answer broken = post(fleet.router->port(), kChat, chat_body("break now", true));
    EXPECT_TRUE(broken.is_complete);
    const std::size_t error = broken.body.find("event: error\n");
    ASSERT_NE(error, std::string::npos);
    EXPECT_GT(error, 2 * 60000U + 20000U) << "most of the broken event had passed";
    EXPECT_EQ(broken.body.substr(error - 2, 2), "\n\n") << "the error is an event of its own";
}

TEST(RouterFlagsTest, AffinityIsolateKeysMatchesAPromptWithTheKeysOwnOnly) {
    const test_support::TempFolder folder;
    const std::string keys = folder.write(
        "keys.toml", "[[key]]\nname = \"alice\"\nsha256 = \"" + digest_of("alice-key") +
                         "\"\n[[key]]\nname = \"bob\"\nsha256 = \"" + digest_of("bob-key") +
                         "\"\n");
    for (const bool is_isolated : {false, true}) {
        std::vector<std::string> flags = {"--keys-file", keys};
        if (is_isolated) flags.emplace_back("--affinity-isolate-keys");
        Fleet fleet(1, {"--cache", "boundary", "--tokens", "1"}, flags);
        const auto matched = [&fleet](const std::string& key) {
            const Answer answer =
                post(fleet.router->port(), kChat, chat_body(std::string(8000, 'x'), true),
                     {"Authorization: Bearer " + key});
            EXPECT_EQ(answer.status, 200);
            const std::string decision = answer.header("x-quadriga-decision");
            const std::size_t at = decision.find("matched=");
            return at == std::string::npos ? -1 : std::atoi(decision.c_str() + at + 8);
        };
        EXPECT_EQ(matched("alice-key"), 0);
        EXPECT_GT(matched("alice-key"), 1000);
        const bool bob_finds_it = matched("bob-key") > 0;
        EXPECT_EQ(bob_finds_it, !is_isolated);
    }
}

TEST(RouterFlagsTest, NoDecisionHeaderLeavesItOut) {
    Fleet fleet(1, {}, {"--no-decision-header"});
    for (const bool is_stream : {true, false}) {
        const Answer answer = post(fleet.router->port(), kChat, chat_body("hi", is_stream));
        EXPECT_EQ(answer.status, 200);
        EXPECT_EQ(answer.header("x-quadriga-decision"), "");
    }
    EXPECT_TRUE(fleet.router->process().wait_line({"event=decision_record"})) << "the log has it";
}

}  // namespace
}  // namespace fleet

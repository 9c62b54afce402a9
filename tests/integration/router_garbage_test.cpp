// Replicas that answer with what is no HTTP, or that forget what they have cached: one expected
// outcome each, the breaker counts it, and the next request is served.
#include <gmock/gmock.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kChat = "/v1/chat/completions";
constexpr int kFaultsInRow = 5;  // of the router's breaker

/// One kind of garbage and what must come of it.
struct Case {
    const char* kind;
    int requests;          // sent one after another
    const char* log_line;  // what the router says of the first
    bool has_begun;        // an event has gone to the client before
};

void PrintTo(const Case& one, std::ostream* out) {
    *out << one.kind;
}

class RouterGarbageTest : public testing::TestWithParam<Case> {};

TEST_P(RouterGarbageTest, IsAnErrorOfTheReplicaAndTheNextRequestIsServed) {
    const Case& one = GetParam();
    Fleet fleet(1, {"--garbage", one.kind, "--garbage-on", "now"}, {"--write-stall-s", "0.5"});
    for (int i = 0; i < one.requests; ++i) {
        const Answer answer = post(fleet.router->port(), kChat, chat_body("break now", true));
        EXPECT_TRUE(answer.is_complete);
        EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
        if (one.has_begun) {
            EXPECT_EQ(answer.status, 200);
            EXPECT_THAT(answer.body, HasSubstr("one "));
            EXPECT_THAT(answer.body, HasSubstr("event: error\n"));
        } else {
            EXPECT_THAT(answer.status, AnyOf(502, 504));
        }
        const bool has_hung = answer.status == 504;
        EXPECT_THAT(answer.body, HasSubstr(has_hung ? "\"replica_timeout\"" : "\"replica_lost\""));
    }
    EXPECT_TRUE(fleet.router->process().wait_line({one.log_line})) << one.log_line;
    EXPECT_EQ(fleet.router->metric(
                  "quadriga_router_upstream_requests_total{outcome=\"lost\",replica=\"0\"}"),
              one.requests);
    const bool opens = one.requests >= kFaultsInRow;
    EXPECT_EQ(fleet.router->metric(
                  "quadriga_router_breaker_transitions_total{replica=\"0\",to=\"open\"}"),
              opens ? 1 : 0);
    const Answer after = post(fleet.router->port(), kChat, chat_body("hi", true));
    EXPECT_EQ(after.status, 200) << "the replica is the only one, so it gets the trial";
    EXPECT_THAT(after.body, HasSubstr("data: [DONE]\n\n"));
    EXPECT_EQ(fleet.router->process().count("to=DOWN"), 0U) << "its reports go on";
    EXPECT_EQ(fleet.wait_idle(), "");
}

INSTANTIATE_TEST_SUITE_P(EveryKind, RouterGarbageTest,
                         testing::Values(Case{"status-line", kFaultsInRow, "kind=malformed", false},
                                         Case{"head", kFaultsInRow, "kind=malformed", false},
                                         Case{"slow", 1, "kind=timeout", false},
                                         Case{"chunk", kFaultsInRow, "event=stream_broken", true},
                                         Case{"empty", kFaultsInRow, "outcome=upstream_error",
                                              false}),
                         [](const testing::TestParamInfo<Case>& one) {
                             std::string name = one.param.kind;
                             std::erase(name, '-');
                             return name;
                         });

TEST(RouterEvictionTest, APredictionThatFailsIsNotBelievedForLong) {
    // Each prompt drives the one before it out, so that of two alternating chats nothing is found.
    Fleet fleet(1, {"--cache", "evicting", "--tokens", "1"});
    const std::string long_text(8000, 'x');
    for (int i = 0; i < 8; ++i) {
        const std::string text = (i % 2 == 0 ? "one " : "two ") + long_text;
        ASSERT_EQ(post(fleet.router->port(), kChat, chat_body(text, true)).status, 200);
    }
    const auto tokens = [&fleet](const std::string& kind) {
        return fleet.router
            ->metric("quadriga_router_affinity_tokens_total{kind=\"" + kind + "\",replica=\"0\"}")
            .value_or(-1);
    };
    EXPECT_EQ(tokens("confirmed"), 0) << "the replica's word counts";
    EXPECT_LE(tokens("predicted"), 6 * 2300) << "what it has disowned is not predicted again";
    EXPECT_EQ(fleet.wait_idle(), "");
}

}  // namespace
}  // namespace fleet

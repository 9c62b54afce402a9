// Replicas that come and go, again and again, and ones that are another instance than was meant:
// nobody's request is lost by it, and who comes back is used again.
#include <csignal>

#include <gmock/gmock.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

/// Requests that are on their way together.
class Batch {
public:
    Batch(int port, int count, const std::string& text) {
        for (int i = 0; i < count; ++i) {
            clients_.push_back(std::make_unique<RawClient>(port));
            clients_.back()->post(kChat, chat_body(text, i % 2 == 0));
        }
    }
    void expect_served(const std::string& when) {
        for (const auto& client : clients_) {
            const Answer answer = client->read_answer();
            EXPECT_EQ(answer.status, 200) << when << ": " << answer.body;
            EXPECT_TRUE(answer.is_complete) << when;
        }
    }

private:
    std::vector<std::unique_ptr<RawClient>> clients_;
};

TEST(RouterFlapTest, AReplicaThatDiesAndReturnsOverAndOverLosesNobodysRequest) {
    const ReservedPort port;
    auto flapping = std::make_unique<Fake>(0, std::vector<std::string>{}, port.port());
    Fake steady(1);
    Router router({"--replica", flapping->url(), "--replica", steady.url()});
    for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(router.wait_state(i, "READY"));
    for (int life = 0; life < 4; ++life) {
        const std::string when = "life " + std::to_string(life);
        Batch before(router.port(), 8, "ttft_ms=150");
        ASSERT_TRUE(flapping->process().wait_line({"arrival "})) << when << ": it has a share";
        flapping->process().signal(SIGKILL);
        ASSERT_EQ(flapping->process().wait_exit(), -SIGKILL);
        before.expect_served(when + ", those that were on it");
        Batch meanwhile(router.port(), 4, "ttft_ms=1");
        meanwhile.expect_served(when + ", while it is away");
        flapping = std::make_unique<Fake>(0, std::vector<std::string>{}, port.port());
        ASSERT_TRUE(router.process().wait_line(
            {"event=replica_instance", "instance=" + flapping->instance()}));
    }
    EXPECT_EQ(router.metric("quadriga_router_breaker_state{replica=\"0\"}"), 0)
        << "another instance starts with a clean record";
    EXPECT_EQ(router.metric("quadriga_router_poison_requests_total"), 0);
    EXPECT_EQ(router.metric("quadriga_router_upstream_inflight{replica=\"0\"}"), 0);
    EXPECT_EQ(router.metric("quadriga_router_upstream_inflight{replica=\"1\"}"), 0);
}

TEST(RouterFlapTest, AReplicaThatStopsAndGoesOnIsSparedAndUsedInTurn) {
    Fleet fleet(2, {}, {"--silence-down-s", "1"});
    Child& log = fleet.router->process();
    for (int turn = 0; turn < 3; ++turn) {
        const std::string when = "turn " + std::to_string(turn);
        std::size_t seen = log.line_count();
        fleet.fakes[0]->process().signal(SIGSTOP);
        ASSERT_TRUE(log.wait_line({"replica=0 ", "to=SUSPECT"}, seen)) << when;
        Batch meanwhile(fleet.router->port(), 4, "ttft_ms=1");
        meanwhile.expect_served(when + ", elsewhere");
        seen = log.line_count();
        fleet.fakes[0]->process().signal(SIGCONT);
        ASSERT_TRUE(log.wait_line({"replica=0 ", "to=READY"}, seen)) << when;
        const std::size_t arrived = fleet.fakes[0]->arrivals();
        Batch after(fleet.router->port(), 8, "ttft_ms=100");
        after.expect_served(when + ", on both");
        EXPECT_GT(fleet.fakes[0]->arrivals(), arrived) << when << ": it has work again";
    }
    EXPECT_EQ(fleet.router->metric("quadriga_router_poison_requests_total"), 0);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterInstanceTest, A421MovesARequestWhateverTheBudgetAndBlamesNobody) {
    std::vector<std::unique_ptr<Fake>> fakes;
    fakes.push_back(std::make_unique<Fake>(
        0, std::vector<std::string>{"--refuse", "421", "--refuse-on", "moved"}));
    fakes.push_back(std::make_unique<Fake>(1));
    Router router(replica_flags(fakes));
    for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(router.wait_state(i, "READY"));
    constexpr int kRequests = 20;  // the budget of second attempts would be three
    for (int i = 0; i < kRequests; ++i) {
        const Answer answer = post(router.port(), kChat, chat_body("moved", i % 2 == 0));
        EXPECT_EQ(answer.status, 200) << answer.body;
        EXPECT_THAT(answer.header("x-quadriga-decision"), HasSubstr("replica=1"));
    }
    const std::size_t asked = fakes[0]->arrivals();
    EXPECT_GE(asked, 5U) << "idle replicas take turns";
    EXPECT_EQ(router.metric("quadriga_router_retries_total{reason=\"refused\"}"), asked);
    EXPECT_EQ(router.metric("quadriga_router_retry_budget_exhausted_total"), 0);
    EXPECT_EQ(router.metric("quadriga_router_breaker_transitions_total{replica=\"0\",to=\"open\"}"),
              0)
        << "another instance says nothing about this one";
    EXPECT_EQ(router.process().count("to=DOWN"), 0U);
}

TEST(RouterInstanceTest, A421OfTheOnlyReplicaIsATrueStatusAndAReplicaKnowsWhomItIsNot) {
    Fleet fleet(1, {"--refuse", "421", "--refuse-on", "moved"});
    const Answer answer = post(fleet.router->port(), kChat, chat_body("moved", true));
    EXPECT_TRUE(answer.status == 502 || answer.status == 503) << answer.status;
    EXPECT_EQ(post(fleet.router->port(), kChat, chat_body("hi", true)).status, 200);
    EXPECT_EQ(fleet.wait_idle(), "");
    const Answer direct = post(fleet.fakes[0]->port(), kChat, chat_body("hi", false),
                               {"x-quadriga-instance: 00000000deadbeef"});
    EXPECT_EQ(direct.status, 421);
}

}  // namespace
}  // namespace fleet

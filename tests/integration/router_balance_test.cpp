// Load over a fleet: even shares, bounded queue, and nothing left when all is over.
// The real router in front of scripted replicas; numbers are cases of the router's specification.
#include <numeric>
#include <random>

#include <gmock/gmock.h>

#include "proto/http_client.h"
#include "proto/json.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using std::chrono::milliseconds;

/// 32k tokens by the fake's count.
std::string long_prompt() {
    return std::string(7 * 32'000 / 2, 'x');
}

std::vector<std::size_t> shares_of(const Fleet& fleet) {
    std::vector<std::size_t> shares;
    for (const auto& fake : fleet.fakes)
        shares.push_back(fake->arrivals());
    return shares;
}

auto about_a_quarter() {
    return testing::Each(testing::AllOf(testing::Ge(24U), testing::Le(26U)));
}

TEST(RouterBalanceTest, R8_AHundredLongPromptsAreChargedAtSelection) {
    // All may start and none ever ends, so nothing but the charges and the reports spreads them.
    Fleet fleet(4, {"--slots", "100"});
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 100; ++i) {
        clients.push_back(std::make_unique<RawClient>(fleet.router->port()));
        clients.back()->post("/v1/chat/completions",
                             chat_body("ttft_ms=600000 " + long_prompt(), true, 1));
    }
    std::vector<std::size_t> shares;
    do {  // each look is a round trip
        shares = shares_of(fleet);
    } while (std::accumulate(shares.begin(), shares.end(), std::size_t{0}) < 100);
    EXPECT_THAT(shares, about_a_quarter());
    clients.clear();
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterBalanceTest, R8_WithEightSlotsTheRestIsSpreadAsReplicasGetRoom) {
    // 60 ms each, one after another in a replica: well above the scheduling noise of a busy
    // machine.
    Fleet fleet(4, {"--slots", "8", "--prefill-rate", "533333"});
    const auto answers =
        post_all(fleet.router->port(), "/v1/chat/completions",
                 std::vector<std::string>(100, chat_body(long_prompt(), false, 1)));
    for (const Answer& answer : answers)
        EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(shares_of(fleet), about_a_quarter());
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterBalanceTest, R2_RequestsCancelledAtRandomPointsLeaveEveryGaugeAtZero) {
    Fleet fleet(4, {"--slots", "8", "--ttft-ms", "10", "--token-ms", "3", "--tokens", "8"});
    const unsigned seed = 20'240'607;
    std::mt19937 random(seed);
    int complete = 0;
    for (int wave = 0; wave < 10; ++wave) {
        std::vector<std::string> bodies;
        std::vector<milliseconds> cancel_after;
        for (int i = 0; i < 100; ++i) {
            bodies.push_back(chat_body("cancel me", random() % 2 == 0));
            // About one in ten is left alone; the others leave in the queue, before the first
            // byte, in the stream, or after the end.
            cancel_after.emplace_back(random() % 10 == 0 ? 60'000 : random() % 120);
        }
        for (const Answer& answer :
             post_all(fleet.router->port(), "/v1/chat/completions", bodies, cancel_after)) {
            complete += answer.is_complete ? 1 : 0;
            EXPECT_TRUE(!answer.is_complete || answer.status == 200) << answer.status;
        }
        EXPECT_EQ(fleet.wait_idle(), "") << "seed " << seed << " wave " << wave;
    }
    EXPECT_GE(complete, 50) << "those left alone are served";
    // The replicas see every cancellation too: nothing runs there any more.
    for (const auto& fake : fleet.fakes) {
        Child& log = fake->process();
        EXPECT_TRUE(log.wait_count("dispatch=", 2 * fake->arrivals())) << "an end to each arrival";
    }
    // And the fleet still serves.
    EXPECT_EQ(post(fleet.router->port(), "/v1/chat/completions", chat_body("hi", false)).status,
              200);
}

TEST(RouterBalanceTest, R11_WhatDoesNotFitIntoTheQueueIs429WithRetryAfter) {
    Fleet fleet(1, {"--slots", "1"}, {"--queue-count-max", "4", "--dispatch-ahead", "1"});
    std::vector<std::unique_ptr<RawClient>> clients;
    // One runs, one is dispatched ahead, four wait.
    for (int i = 0; i < 6; ++i) {
        clients.push_back(std::make_unique<RawClient>(fleet.router->port()));
        clients.back()->post("/v1/chat/completions", chat_body("ttft_ms=60000", true));
    }
    ASSERT_TRUE(fleet.fakes[0]->process().wait_count("arrival ", 2));
    const std::string waiting = "quadriga_router_queue_requests{class=\"default\"}";
    while (fleet.router->metric(waiting) != 4) {  // each look is a round trip
    }
    const Answer refused =
        post(fleet.router->port(), "/v1/chat/completions", chat_body("hi", false));
    EXPECT_EQ(refused.status, 429);
    EXPECT_NE(refused.body.find("\"queue_full\""), std::string::npos) << refused.body;
    const int retry_after = std::atoi(refused.header("retry-after").c_str());
    EXPECT_GE(retry_after, 1);
    EXPECT_LE(retry_after, 60);
    clients.clear();
    EXPECT_EQ(fleet.wait_idle(), "");
    EXPECT_EQ(fleet.router->metric("quadriga_router_rejected_total{reason=\"queue_full\"}"), 1);
}

TEST(RouterBalanceTest, ARequestThatWaitsTooLongIs429QueueTimeout) {
    Fleet fleet(1, {"--slots", "1"}, {"--queue-wait-s", "0.2", "--dispatch-ahead", "0"});
    RawClient first(fleet.router->port());
    first.post("/v1/chat/completions", chat_body("ttft_ms=60000", true));
    ASSERT_TRUE(fleet.fakes[0]->process().wait_line({"arrival "}));
    const Answer late = post(fleet.router->port(), "/v1/chat/completions", chat_body("hi", false));
    EXPECT_EQ(late.status, 429);
    EXPECT_NE(late.body.find("\"queue_timeout\""), std::string::npos) << late.body;
    EXPECT_NE(late.header("retry-after"), "");
}

TEST(RouterBalanceTest, ALowerPriorityNumberRunsFirst) {
    Fleet fleet(1, {"--slots", "1"}, {"--dispatch-ahead", "0"});
    const int port = fleet.router->port();
    RawClient running(port);
    running.post("/v1/chat/completions", chat_body("ttft_ms=60000", true));
    ASSERT_TRUE(fleet.fakes[0]->process().wait_line({"arrival "}));
    RawClient bulk(port);
    bulk.post("/v1/chat/completions", chat_body("hi", false),
              {"x-request-id: bulk-1", "x-quadriga-priority: bulk"});
    while (fleet.router->metric("quadriga_router_queue_requests{class=\"bulk\"}") != 1) {
    }
    RawClient quick(port);
    quick.post("/v1/chat/completions", chat_body("hi", false),
               {"x-request-id: quick-1", "x-quadriga-priority: interactive"});
    while (fleet.router->metric("quadriga_router_queue_requests{class=\"interactive\"}") != 1) {
    }
    running.close();
    EXPECT_EQ(quick.read_answer().status, 200);
    EXPECT_EQ(bulk.read_answer().status, 200);
    for (const char* id : {"request_id=quick-1", "request_id=bulk-1"}) {
        ASSERT_TRUE(fleet.fakes[0]->process().wait_line({"arrival ", id}));
    }
    const std::string log = fleet.fakes[0]->process().text();
    EXPECT_LT(log.find("request_id=quick-1"), log.find("request_id=bulk-1"));
}

}  // namespace
}  // namespace fleet

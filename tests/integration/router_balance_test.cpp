// Load over a fleet: even shares, bounded queue, and nothing left when all is over.
// The real router in front of scripted replicas; numbers are cases of the router's specification.
#include <random>

#include <gtest/gtest.h>

#include "proto/http_client.h"
#include "proto/json.h"
#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using std::chrono::milliseconds;

TEST(RouterBalanceTest, R8_AHundredSimultaneousLongPromptsAreSpreadEvenly) {
    // 32k tokens take 20 ms each, one after another in a replica: charged at selection or not, that
    // is the question.
    Fleet fleet(4, {"--slots", "8", "--prefill-rate", "1600000", "--tokens", "1"});
    const std::string body = chat_body(std::string(4 * 32'000, 'x'), false, 1);
    const auto answers =
        post_all(fleet.router->port(), "/v1/chat/completions", std::vector<std::string>(100, body));
    for (const Answer& answer : answers)
        EXPECT_EQ(answer.status, 200);
    for (const auto& fake : fleet.fakes) {
        EXPECT_NEAR(static_cast<double>(fake->arrivals()), 25, 1);
    }
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
    Fleet fleet(1, {"--slots", "1"}, {"--queue-count-max", "4"});
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
    const std::string log = fleet.fakes[0]->process().text();
    EXPECT_LT(log.find("request_id=quick-1"), log.find("request_id=bulk-1"));
}

}  // namespace
}  // namespace fleet

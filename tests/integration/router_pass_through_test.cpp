// /tokenize and its kind: what is read of them here, and what their attempts say about a replica.
#include <gmock/gmock.h>

#include "tests/integration/router_client.h"
#include "tests/integration/router_fleet.h"

namespace fleet {
namespace {

using testing::HasSubstr;

std::string attempts(const std::string& outcome) {
    return "quadriga_router_upstream_requests_total{outcome=\"" + outcome + "\",replica=\"0\"}";
}

/// Value of the series with these labels in whichever order they are printed; 0 when it is not
/// there.
double attempts_of(Router& router, const std::string& outcome) {
    const std::string other =
        "quadriga_router_upstream_requests_total{replica=\"0\",outcome=\"" + outcome + "\"}";
    const auto first = router.metric(attempts(outcome));
    return first ? *first : router.metric(other).value_or(0);
}

TEST(RouterPassThroughTest, WhatIsNoStrictJsonIsRefusedHere) {
    Fleet fleet(1);
    const int port = fleet.router->port();
    const std::string deep = std::string(200'000, '[');
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"", "invalid_json"},
        {"[1]", "invalid_type"},
        {R"({"content":"x")", "invalid_json"},
        {R"({"content":"x"} {})", "invalid_json"},
        {R"({"content":"x","content":"y"})", "duplicate_key"},
        {R"({"content":NaN})", "invalid_json"},
        {"{\"content\":\"\xff\"}", "invalid_json"},
        {R"({"content":)" + deep, "json_too_deep"},
    };
    for (const char* path : {"/tokenize", "/detokenize", "/apply-template"}) {
        for (const auto& [body, code] : cases) {
            const Answer answer = post(port, path, body);
            EXPECT_EQ(answer.status, 400) << path << " " << body.substr(0, 40);
            EXPECT_THAT(answer.body, HasSubstr("\"code\":\"" + code + "\"")) << body.substr(0, 40);
        }
    }
    EXPECT_EQ(attempts_of(*fleet.router, "ok"), 0) << "none was forwarded";
    const std::string large = R"({"content":")" + std::string(200'000, 'x') + R"("})";
    for (const std::string& body : {std::string(R"({"content":"x"})"), large})
        EXPECT_EQ(post(port, "/tokenize", body).status, 200);
    EXPECT_EQ(attempts_of(*fleet.router, "ok"), 2);
    EXPECT_EQ(fleet.wait_idle(), "");
}

TEST(RouterPassThroughTest, FailuresOpenTheBreakerAndAnAnswerClosesIt) {
    Fleet fleet(1, {"--drop-on", "drop"});
    const int port = fleet.router->port();
    const std::string drop = R"({"content":"drop"})";
    // The first takes a kept connection, whose end says nothing about the replica.
    for (int i = 0; i < 6; ++i) {
        const Answer answer = post(port, "/tokenize", drop);
        EXPECT_EQ(answer.status, 502);
        EXPECT_THAT(answer.body, HasSubstr("replica_lost"));
    }
    EXPECT_EQ(attempts_of(*fleet.router, "lost"), 6);
    EXPECT_TRUE(fleet.router->process().wait_line({"event=breaker", "replica=0", "to=open"}));
    EXPECT_EQ(fleet.router->metric("quadriga_router_breaker_state{replica=\"0\"}"), 1)
        << "half-open: the last one living is asked one by one";
    EXPECT_EQ(post(port, "/tokenize", R"({"content":"x"})").status, 200);
    EXPECT_EQ(fleet.router->metric("quadriga_router_breaker_state{replica=\"0\"}"), 0);
}

TEST(RouterPassThroughTest, AClientThatLeavesSaysNothingAboutTheReplica) {
    Fleet fleet(1);
    RawClient client(fleet.router->port());
    client.post("/tokenize", R"({"content":"ttft_ms=600000"})");
    while (
        fleet.router->metric("quadriga_router_upstream_connections{replica=\"0\",state=\"busy\"}")
                .value_or(0) +
            fleet.router
                ->metric("quadriga_router_upstream_connections{state=\"busy\",replica=\"0\"}")
                .value_or(0) <
        2) {  // the status stream is one
    }
    client.close();
    while (attempts_of(*fleet.router, "aborted") != 1) {
    }
    EXPECT_EQ(fleet.router->metric("quadriga_router_breaker_state{replica=\"0\"}"), 0);
}

TEST(RouterPassThroughTest, AReplicaThatKeepsSilentIs504) {
    Fleet fleet(1, {}, {"--stream-idle-s", "0.3"});
    const Answer answer =
        post(fleet.router->port(), "/tokenize", R"({"content":"ttft_ms=600000"})");
    EXPECT_EQ(answer.status, 504);
    EXPECT_THAT(answer.body, HasSubstr("replica_timeout"));
    EXPECT_TRUE(fleet.router->process().wait_line(
        {"event=request ", "path=/tokenize", "outcome=upstream_stall"}));
}

}  // namespace
}  // namespace fleet
